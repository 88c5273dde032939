"""Does what rekindle.verify does: runs a module in eager and through its graph, and says how they differ.

The runs leave the module as it was. For an nn.Linear without a bias that is called with a tensor that requires a gradient, the
rows are "structure of the result", "result", "input 0 after the call", the gradients "input 0" and "weight", and "random state";
"strides of result" comes before the last if the result lies otherwise than eager's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import keystr, tree_flatten_with_path

from rekindle import _native
from rekindle.compare.differentiation import differentiation, norm
from rekindle.compare.distance import Distance
from rekindle.compare.doubts import Doubt, compared, set_bounds
from rekindle.compare.report import Row
from rekindle.compare.verification import Again, unexplained
from rekindle.functions.inlining import checkpoints_inlined
from rekindle.modules.module_tables import named_buffers, named_modules, named_parameters
from rekindle.process import world
from rekindle.process.collectives import answered_here
from rekindle.process.random_states import RandomStates, random_states, random_states_equal, set_random_states
from rekindle.reasons import Bypass
from rekindle.results.contract import flatten_arguments, rebuild_arguments
from rekindle.results.layouts import copied, same_strides
from rekindle.results.structure import is_plain_class


def compared_runs(wrapped: nn.Module, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Row]:
    """Runs one call of the module in eager and one of the wrapped one, and returns a row for each result."""

    def run(callee: Callable[..., Any]) -> _Run:
        with state_kept(module), checkpoints_inlined(), answered_here(), _native.AllRows():
            return _run(callee, module, args, kwargs)

    eager = run(module)
    ours = run(wrapped)
    return _rows(ours, eager, lambda: [x if isinstance(x, torch.Tensor) else None for _, _, x in run(module).values])


@dataclass
class _Run:
    """Holds what one run gave."""

    structure: Any  # of the result
    values: list[tuple[str, str, Any]]  # (what, kind, value), in the same order at each run
    random_states: RandomStates  # after the call


@contextmanager
def state_kept(module: nn.Module) -> Iterator[None]:
    """Gives the buffers and the random states, after the block, what they had before."""
    buffers = [(part._buffers, dict(part._buffers)) for part in named_modules(module).values()]
    contents = [(buffer, copied(buffer)) for buffer in named_buffers(module).values()]
    states = random_states()
    try:
        with world.interpreter_random_states_kept():
            yield
    finally:
        set_random_states(states)
        for table, before in buffers:
            if any(table.get(name) is not buffer for name, buffer in before.items()) or table.keys() != before.keys():
                table.clear()
                table.update(before)
        with torch.no_grad():
            for buffer, content in contents:
                if not _is_same(buffer, content):
                    buffer.copy_(content)


def _is_same(buffer: torch.Tensor, content: torch.Tensor) -> bool:
    if not buffer.is_floating_point() and not buffer.is_complex():
        return torch.equal(buffer, content)
    distance = Distance.between(buffer, content)
    return distance.is_like and distance.norm == 0


def _run(callee: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Run:
    tensors = [copied(tensor) for tensor in flatten_arguments(args, kwargs)]
    own_args, own_kwargs = rebuild_arguments(args, kwargs, tensors)
    result = callee(*own_args, **own_kwargs)
    drawn = random_states()
    structure, results = _flattened(result, "result")
    wanted = {f"input {i}": tensor for i, tensor in enumerate(tensors) if tensor.requires_grad}
    wanted |= {name: parameter for name, parameter in named_parameters(module).items() if parameter.requires_grad}
    gradients = _gradients(list(results.values()), wanted, drawn)
    values = [(what, "result", x.detach() if isinstance(x, torch.Tensor) else x) for what, x in results.items()]
    values += [(f"input {i} after the call", "result", tensor.detach()) for i, tensor in enumerate(tensors)]
    values += [(what, "gradient", x) for what, x in zip(wanted, gradients, strict=True)]
    values += [(what, "buffer", copied(buffer).detach()) for what, buffer in named_buffers(module).items()]
    return _Run(structure, values, drawn)


def _flattened(result: Any, path: str, above: tuple[Any, ...] = ()) -> tuple[Any, dict[str, Any]]:
    """Returns the structure of a result, and its leaves by path.

    Of plain objects in it, such as a key-value cache, the leaves are the attributes.

    path: the name of the result
    above: objects that hold the result
    """
    leaves, tree = tree_flatten_with_path(result)
    structure, found = [tree], {}
    for place, leaf in leaves:
        name = f"{path}{keystr(place)}"
        if any(leaf is one for one in above):
            structure.append(type(leaf))
        elif is_plain_class(type(leaf)):
            inner, attributes = _flattened(vars(leaf), name, (*above, leaf))
            structure.append((type(leaf), inner))
            found.update(attributes)
        else:
            found[name] = leaf
    return structure, found


def _gradients(leaves: list[Any], wanted: dict[str, torch.Tensor], states: RandomStates) -> list[torch.Tensor | None]:
    outputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    tensors = list(wanted.values())
    differentiate = differentiation(outputs, tensors, states) if torch.is_grad_enabled() else None
    return [None] * len(tensors) if differentiate is None else differentiate(outputs)


def _rows(ours: _Run, eager: _Run, again: Again) -> list[Row]:
    same = ours.structure == eager.structure and [x[:2] for x in ours.values] == [x[:2] for x in eager.values]
    rows: list[Row] = []
    doubts: dict[int, Doubt] = {}
    for i, (what, kind, theirs) in enumerate(eager.values if same else []):
        mine = ours.values[i][2]
        found, equal = _compared(what, i, mine, theirs)
        doubts.update({doubt.position: doubt for doubt in found})
        rows.append(Row(what, kind, equal, *_sizes(mine, theirs)))
    for kind in ("result", "gradient", "buffer"):
        if mine := [doubt for i, doubt in doubts.items() if rows[i].kind == kind]:
            norms = (norm(x) for _, its, x in eager.values if its == kind and isinstance(x, torch.Tensor))
            set_bounds(mine, max(norms), 0.0)
    for doubt in unexplained(list(doubts.values()), again) if doubts else ():
        rows[doubt.position].equal = False
    strides = [
        Row(f"strides of {what}", kind, False)
        for (what, kind, mine), (_, _, theirs) in zip(ours.values, eager.values, strict=False)
        if same and kind == "result" and _lies_otherwise(mine, theirs)
    ]
    draws = Row("random state", "random", random_states_equal(ours.random_states, eager.random_states))
    return [Row("structure of the result", "result", same), *rows, *strides, draws]


def _compared(what: str, position: int, mine: Any, theirs: Any) -> tuple[list[Doubt], bool]:
    """Returns (a doubt whether the values are equal, if there is one; whether they may be)."""
    if not isinstance(theirs, torch.Tensor) or not isinstance(mine, torch.Tensor):
        return [], type(mine) is type(theirs) and bool(mine == theirs)
    if theirs.layout is not torch.strided or mine.layout is not torch.strided:
        return [], mine.layout is theirs.layout and torch.equal(mine.to_dense(), theirs.to_dense())
    try:
        return compared(what, position, mine, theirs), True
    except Bypass:
        return [], False


def _sizes(mine: Any, theirs: Any) -> tuple[float, float]:
    if not isinstance(mine, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        return 0.0, 0.0
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype or theirs.dtype is torch.bool:
        return (0.0 if mine.shape == theirs.shape else math.inf), _largest(theirs)
    return _largest(mine - theirs), _largest(theirs)


def _lies_otherwise(mine: Any, theirs: Any) -> bool:
    both = all(isinstance(x, torch.Tensor) and x.layout is torch.strided for x in (mine, theirs))
    return both and mine.shape == theirs.shape and not same_strides(mine, theirs)


def _largest(value: Any) -> float:
    if not isinstance(value, torch.Tensor) or value.numel() == 0 or value.dtype is torch.bool:
        return 0.0
    return float(value.abs().double().nan_to_num(0.0, 0.0, 0.0).max())
