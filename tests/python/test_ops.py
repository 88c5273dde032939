"""Each op a user may write: outputs, gradients and random state against eager, or why it runs in eager.

Our error against a float64 reference may be at most twice eager's, plus a few units in the last place.
"""

from __future__ import annotations

import copy
import dataclasses
import pathlib
from typing import Any

import op_cases_losses
import op_cases_modules
import op_cases_pointwise
import op_cases_shapes
import pytest
import rekindle
import torch
from op_cases import Case
from rekindle.lookup.store import flush
from seeded import seeded
from torch import nn
from torch.utils._pytree import tree_flatten

CASES = [*op_cases_pointwise.CASES, *op_cases_shapes.CASES, *op_cases_losses.CASES, *op_cases_modules.CASES]


@dataclasses.dataclass
class Step:
    """All that one call and its backward leave behind."""

    structure: Any
    outputs: list[Any]
    gradients: dict[str, torch.Tensor | None]
    random_state: torch.Tensor


def draw(case: Case, dtype: torch.dtype, seed: int) -> list[Any]:
    generator = seeded(seed)
    return [make(dtype, generator) for make in case.inputs]


def step(called: nn.Module, inputs: list[Any], seed: int) -> Step:
    """One forward, and one backward with cotangents that depend on the outputs' shapes alone."""
    called.zero_grad()
    torch.manual_seed(seed)
    flat, structure = tree_flatten(called(*inputs))
    generator = seeded(seed)
    roots = [x for x in flat if isinstance(x, torch.Tensor) and x.requires_grad]
    cotangents = [torch.randn(root.shape, generator=generator, dtype=torch.float64).to(root.dtype) for root in roots]
    if roots:
        torch.autograd.backward(roots, cotangents)
    wanted = {f"input {i}": x for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.requires_grad}
    wanted.update(called.named_parameters())
    gradients = {name: None if x.grad is None else x.grad.to_dense().clone() for name, x in wanted.items()}
    return Step(str(structure), flat, gradients, torch.get_rng_state())


def check_close(what: str, ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> None:
    assert (ours.dtype, ours.shape) == (eager.dtype, eager.shape), what
    if not eager.is_floating_point():
        assert torch.equal(ours, eager), what
        return
    dtype = eager.dtype
    ours, eager, exact = (x.detach().double() for x in (ours, eager, exact))
    finite = eager.isfinite()
    torch.testing.assert_close(ours[~finite], eager[~finite], equal_nan=True, msg=lambda text: f"{what}: {text}")
    assert torch.equal(ours.isfinite(), finite), f"{what} is finite elsewhere"
    if not finite.any():
        return
    ours, eager, exact = ours[finite], eager[finite], exact[finite]
    ulp = torch.finfo(dtype).eps
    slack = 16 * ulp * max(1.0, float(exact.abs().max()))
    error, allowed = float((ours - exact).abs().max()), 2 * float((eager - exact).abs().max()) + slack
    assert error <= allowed, (
        f"{what} is off by {error:.3g}, more than {allowed:.3g}: "
        f"{ours.flatten()[:12].tolist()}, not {exact.flatten()[:12].tolist()}"
    )


def check(ours: Step, eager: Step, exact: Step, where: str) -> None:
    assert ours.structure == eager.structure
    assert torch.equal(ours.random_state, eager.random_state), f"{where}: other random numbers were drawn"
    for i, (mine, theirs, best) in enumerate(zip(ours.outputs, eager.outputs, exact.outputs, strict=True)):
        if not isinstance(theirs, torch.Tensor):
            assert mine == theirs
            continue
        assert mine.requires_grad == theirs.requires_grad, f"{where}: output {i}"
        check_close(f"{where}: output {i} of {theirs.dtype}", mine, theirs, best)
    assert ours.gradients.keys() == eager.gradients.keys()
    for name, theirs in eager.gradients.items():
        mine, best = ours.gradients[name], exact.gradients[name]
        assert (mine is None) == (theirs is None), f"{where}: gradient of {name} is {mine}, in eager {theirs}"
        if mine is not None and theirs is not None and best is not None:
            check_close(f"{where}: gradient of {name} of {theirs.dtype}", mine, theirs, best)


class Trial:
    """One case in one dtype: a fresh export, a second step, and a hit through a second wrapper."""

    def __init__(self, case: Case, dtype: torch.dtype, cache_dir: pathlib.Path) -> None:
        torch.manual_seed(0)
        self.case, self.dtype = case, dtype
        self.module = case.make().to(dtype).train(case.train)
        self.eager = copy.deepcopy(self.module)
        self.exact = self.eager if case.random else copy.deepcopy(self.module).double()
        self.exact_dtype = dtype if case.random else torch.float64
        fallback = "error" if case.expect == "graph" else "eager"
        self.options = rekindle.Options(cache_dir=cache_dir, fallback=fallback, log="off")

    def wrap(self) -> rekindle.Module:
        return rekindle.Module(self.module, self.options)

    def compare(self, wrapped: rekindle.Module, seed: int) -> None:
        where = f"{self.case.name}, {rekindle.status(wrapped).source}, step {seed}"
        ours = step(wrapped, draw(self.case, self.dtype, seed), seed)
        eager = step(self.eager, draw(self.case, self.dtype, seed), seed)
        exact = step(self.exact, draw(self.case, self.exact_dtype, seed), seed)
        check(ours, eager, exact, where)
        self.check_source(wrapped)

    def check_source(self, wrapped: rekindle.Module) -> None:
        status = rekindle.status(wrapped)
        if self.case.expect == "graph":
            assert not status.bypass
            return
        assert status.source == "eager", f"runs from a graph now: change what the case expects ({status})"
        assert [code for code, _ in status.bypass] == [self.case.expect], status.bypass


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """One directory for all: an entry that serves a case it was not made for shows as a wrong result."""
    return tmp_path_factory.mktemp("ops")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_op_is_eagers(case: Case, shared_cache: pathlib.Path) -> None:
    trials = [Trial(case, dtype, shared_cache) for dtype in case.dtypes]
    for trial in trials:
        wrapped = trial.wrap()
        trial.compare(wrapped, 1)
        trial.compare(wrapped, 2)
        if case.expect == "graph":
            # Cases that differ in the values of their inputs only share an entry.
            status = rekindle.status(wrapped)
            assert (status.source, status.exports, status.hits) in (("export", 1, 0), ("local", 0, 1))
    if case.expect != "graph":
        return
    flush()
    for trial in trials:
        again = trial.wrap()
        trial.compare(again, 3)
        assert rekindle.status(again).source == "local"


def test_names_are_distinct() -> None:
    names = [case.name for case in CASES]
    assert sorted(set(names)) == sorted(names)
