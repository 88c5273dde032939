"""PyTorch's own module database as a suite. Everything in training mode."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import rekindle
import torch
from comparison import Outcome, try_call


def run(
    pattern: str, samples: int, options: rekindle.Options, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Iterator[Outcome]:
    """One outcome a set of inputs, named `module#number`; the first `samples` of each module of torch.nn, in training and, where
    it differs, in evaluation."""
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        if pattern not in info.name or dtype not in info.dtypes:
            continue
        for training in (True, False) if info.train_and_eval_differ else (True,):
            name = info.name if training else f"{info.name}.eval"
            torch.manual_seed(0)
            found = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
            for i, given in enumerate(itertools.islice(found, samples)):
                made, call = given.constructor_input, given.forward_input
                module = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
                yield try_call(f"{name}#{i}", module, call.args, call.kwargs, options, device)
