"""Holds programs that several ranks train together, in their shape and in small: each is a generator that yields losses.

An example: `losses = plain(job)` builds a perceptron, passes it through `job.wrap` (`rekindle.Module`, or what gives it back
for eager), hands it to DistributedDataParallel and trains one step at each `next(losses)`. It sets `job.model`, whose
parameters are compared after the last step, and draws its data from torch's generator, other data in each rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

PROGRAMS = {
    "replicated": (
        "plain", "wrapped_outside", "views_of_buckets", "accumulated", "static_graph", "unused_parameters", "two_backwards",
        "comm_hook", "order_of_buckets", "uneven_inputs", "buffers", "zero_redundancy",
    ),
    "sharded": ("blocks", "blocks_kept", "whole_model", "mixed_precision", "explicit_prefetch", "saved_and_loaded"),
    "deep_speed": ("stage_1", "stage_2", "stage_3", "stage_3_leaves"),
    "split": ("tensor_parallel", "sequence_parallel", "dtensor_parallel", "pipeline"),
    "frameworks": ("accelerate_loop", "lightning_ddp"),
}  # fmt: skip
# The programs of each module of this folder.


@dataclass
class Job:
    """Says what a program trains, as one of several ranks.

    wrap: gives what takes the module's place
    model: set by the program
    """

    wrap: Callable[[nn.Module], nn.Module]
    rank: int
    world: int
    model: nn.Module | None = None

    def draw_apart(self) -> None:
        """Lets each rank draw other numbers from here on: data, and what is dropped."""
        torch.manual_seed(1 + self.rank)
