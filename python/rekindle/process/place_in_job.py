"""Tells which of a job's processes this one is."""

from __future__ import annotations

import os
from typing import Any

import torch


def place_in_job() -> tuple[int, int]:
    """Returns the rank of this process and how many there are, as torch.distributed or torchrun's variables say."""
    distributed: Any = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
