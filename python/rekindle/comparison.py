"""rekindle.verify(model, *args, **kwargs): one call in eager and one through the graph, compared."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import keystr, tree_flatten_with_path

from rekindle.contract import flatten_arguments, rebuild_arguments
from rekindle.layouts import same_strides
from rekindle.module import Module, status, unwrap
from rekindle.module_tables import named_buffers, named_modules, named_parameters
from rekindle.structure import is_plain_class

# Two orders of summation differ by a few units in the last place of the largest terms.
_ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}


@dataclass
class Row:
    """One result of both runs. `difference`: the largest absolute one; `scale`: the largest magnitude in eager's.

    error, eager_error: 2-norms of the difference to a run in float64, where there is one.
    """

    what: str
    kind: str
    equal: bool
    difference: float = 0.0
    scale: float = 0.0
    error: float | None = None
    eager_error: float | None = None


@dataclass
class Comparison:
    """What rekindle.verify found. True when everything agrees; prints as a table.

    source: where the graph came from, or "eager" when the call has none: see `status(model).bypass` for why.
    """

    source: str
    rows: list[Row] = field(default_factory=list)

    def __bool__(self) -> bool:
        return all(row.equal for row in self.rows)

    @property
    def differences(self) -> list[Row]:
        """The rows that do not agree."""
        return [row for row in self.rows if not row.equal]

    def __str__(self) -> str:
        width = max((len(row.what) for row in self.rows), default=0)
        lines = [f"{'' if row.equal else 'DIFFERS':<8}{row.kind:<9}{row.what:<{width}}  {_numbers(row)}" for row in self.rows]
        verdict = "agrees with eager" if self else f"{len(self.differences)} of {len(self.rows)} results differ from eager"
        return "\n".join([*lines, f"{verdict} (graph: {self.source})"])


def _numbers(row: Row) -> str:
    errors = "" if row.error is None else f"   error {row.error:.2e}, eager's {row.eager_error:.2e}"
    return f"{row.difference:9.2e} of {row.scale:9.2e}{errors}"


def verify(model: Module, *args: Any, **kwargs: Any) -> Comparison:
    """Compare `model(*args, **kwargs)` with the same call of the module in eager.

    Compared are the results and their strides, the gradients of every parameter and of every floating-point input for
    random cotangents, the buffers and the state of the random generator after the call. A result agrees when it is within
    rounding of eager's or, where a copy of the module can run in float64, not farther from that run than twice what eager is.
    Parameters, `.grad`, buffers, the inputs and the random state are afterwards what they were before; what else the
    forward changes is changed once for each run. Raises TypeError for a module that is not wrapped, and what the call raises.
    """
    if not isinstance(model, Module):
        raise TypeError(f"rekindle.verify takes a rekindle.Module, not a {type(model).__name__}")
    module = unwrap(model)
    with _state_kept(module):
        eager = _run(module, module, args, kwargs)
    with _state_kept(module):
        ours = _run(model, module, args, kwargs)
    found = Comparison(status(model).source)
    exact = _in_double(module, args, kwargs) if torch.is_tensor(eager.any_floating) else None
    _compare_all(found, ours, eager, exact)
    return found


@dataclass
class _Run:
    structure: Any
    results: dict[str, Any]
    gradients: dict[str, torch.Tensor | None]
    buffers: dict[str, torch.Tensor]
    random_state: torch.Tensor

    @property
    def any_floating(self) -> torch.Tensor | None:
        """A result in less than double precision, if there is one."""
        return next((value for value in self.results.values() if _is_inexact(value)), None)


def _is_inexact(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.bfloat16, torch.float16)


@contextmanager
def _state_kept(module: nn.Module) -> Iterator[None]:
    buffers = [(buffer, buffer.detach().clone()) for buffer in named_buffers(module).values()]
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def _run(callee: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Run:
    tensors = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in flatten_arguments(args, kwargs)]
    own_args, own_kwargs = rebuild_arguments(args, kwargs, tensors)
    result = callee(*own_args, **own_kwargs)
    random_state = torch.get_rng_state()
    structure, results = _flattened(result, "result")
    wanted = {f"input {i}": tensor for i, tensor in enumerate(tensors) if tensor.requires_grad}
    wanted |= {name: parameter for name, parameter in named_parameters(module).items() if parameter.requires_grad}
    gradients = _gradients(list(results.values()), wanted)
    buffers = {name: buffer.detach().clone() for name, buffer in named_buffers(module).items()}
    detached = {name: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for name, leaf in results.items()}
    for i, tensor in enumerate(tensors):
        detached[f"input {i} after the call"] = tensor.detach()
    return _Run(structure, detached, gradients, buffers, random_state)


def _flattened(result: Any, path: str, above: tuple[Any, ...] = ()) -> tuple[Any, dict[str, Any]]:
    """The structure of a result, and its leaves by path; of plain objects in it, such as a key-value cache, the attributes.

    above: objects that hold the result.
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


def _gradients(leaves: list[Any], wanted: dict[str, torch.Tensor]) -> dict[str, torch.Tensor | None]:
    outputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not outputs or not wanted or not torch.is_grad_enabled():
        return {}
    generator = torch.Generator().manual_seed(0)
    cotangents = [torch.randn(leaf.shape, generator=generator, dtype=torch.float64).to(leaf) for leaf in outputs]
    found = torch.autograd.grad(outputs, list(wanted.values()), cotangents, allow_unused=True)
    return dict(zip(wanted, found, strict=True))


def _in_double(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Run | None:
    """The run of a copy in float64 from the same random state; None for a module that cannot."""
    widened = [tensor.double() if _is_inexact(tensor) else tensor for tensor in flatten_arguments(args, kwargs)]
    widened = [
        wide.detach().requires_grad_(given.requires_grad)
        for wide, given in zip(widened, flatten_arguments(args, kwargs), strict=True)
    ]
    if any(
        module.training and isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0
        for part in named_modules(module).values()
    ):
        return None  # other dtypes draw other masks
    try:
        wide = copy.deepcopy(module).double()
        wide_args, wide_kwargs = rebuild_arguments(args, kwargs, widened)
        with _state_kept(module), torch.autocast("cpu", enabled=False):
            return _run(wide, wide, wide_args, wide_kwargs)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None  # the module insists on a dtype, or cannot be copied: rounding alone decides


def _compare_all(found: Comparison, ours: _Run, eager: _Run, exact: _Run | None) -> None:
    same = ours.structure == eager.structure
    found.rows.append(Row("structure of the result", "result", same))
    groups = [("result", "results"), ("gradient", "gradients"), ("buffer", "buffers")]
    scale = max((_largest(value) for value in eager.gradients.values()), default=0.0)
    for kind, name in groups if same else []:
        mine, theirs = getattr(ours, name), getattr(eager, name)
        truth = getattr(exact, name) if exact is not None else {}
        for what, value in theirs.items():
            floor = scale if kind == "gradient" else 0.0
            found.rows.append(_compare(what, kind, mine.get(what), value, truth.get(what), floor))
            if kind == "result" and _lies_otherwise(mine.get(what), value):
                found.rows.append(Row(f"strides of {what}", kind, False))
    found.rows.append(Row("random state", "random", torch.equal(ours.random_state, eager.random_state)))


def _lies_otherwise(mine: Any, theirs: Any) -> bool:
    both = all(isinstance(x, torch.Tensor) and x.layout is torch.strided for x in (mine, theirs))
    return both and mine.shape == theirs.shape and not same_strides(mine, theirs)


def _largest(value: Any) -> float:
    if not isinstance(value, torch.Tensor) or value.numel() == 0 or value.dtype is torch.bool:
        return 0.0
    return float(value.abs().double().nan_to_num(0.0, 0.0, 0.0).max())


def _compare(what: str, kind: str, mine: Any, theirs: Any, truth: Any, floor: float) -> Row:
    if not isinstance(theirs, torch.Tensor) or not isinstance(mine, torch.Tensor):
        return Row(what, kind, type(mine) is type(theirs) and bool(mine == theirs))
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return Row(what, kind, False, math.inf, _largest(theirs))
    if not theirs.is_floating_point() and not theirs.is_complex():
        different = (mine != theirs).sum().item()
        return Row(what, kind, different == 0, float(different), float(theirs.numel()))
    if not torch.equal(mine.isfinite(), theirs.isfinite()) or not torch.equal(mine.isnan(), theirs.isnan()):
        return Row(what, kind, False, math.inf, _largest(theirs))
    row = Row(what, kind, True, _largest(mine - theirs), _largest(theirs))
    row.equal = row.difference <= _ROUNDING.get(theirs.dtype, 1e-5) * max(row.scale, 1e-2 * floor)
    if isinstance(truth, torch.Tensor) and truth.shape == theirs.shape:
        row.error, row.eager_error = (float((value.double() - truth).norm()) for value in (mine, theirs))
        row.equal = row.equal or row.error <= 2 * row.eager_error
    return row
