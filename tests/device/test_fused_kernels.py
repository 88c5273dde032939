"""Pointwise ops that become one kernel compute what they compute one by one: results, gradients, layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from chains import CHAINS, gelu_by_formula
from device_of_tests import HostCompiler, HostKernel
from device_twins import Made, Twins
from rekindle import _native
from torch import Tensor, nn
from torch.nn import functional as F


class Compiler(HostCompiler):
    """Notes what it compiles, and lets a test change it."""

    def __init__(self) -> None:
        self.sources: list[str] = []
        self.changed: Callable[[str], str] = lambda source: source

    def compile(self, source: str, name: str, device: str) -> HostKernel:
        """Returns what runs the kernel `name`."""
        self.sources.append(source)
        return super().compile(self.changed(source), name, device)


@pytest.fixture(autouse=True)
def compiler(capfd: pytest.CaptureFixture[str]) -> Iterator[Compiler]:
    """That of the test device. A kernel that is refused for what it computes fails the test, unless the test has changed it."""
    made = Compiler()
    _native.set_kernel_compiler("privateuseone", made)
    yield made
    _native.set_kernel_compiler("privateuseone", None)
    assert "launched one by one" not in capfd.readouterr().err


def _rows(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*(sizes or (6, 4)), device="test:0").to(dtype).requires_grad_(dtype.is_floating_point)


def _twins(forward: Callable[[Any, Tensor], Any], **options: Any) -> Twins:
    return Twins(Made(forward), **{"fused_kernels": True, "fallback": "error", "cache": "off", "log": "warning"} | options)


def _launches(twins: Twins, x: Callable[[], Tensor], calls: int = 3, **tolerance: float) -> int:
    """How many fused kernels the last of some calls has launched, forward and backward."""
    for _ in range(calls):
        before = HostKernel.launches
        twins.call(x(), **tolerance)
    return HostKernel.launches - before


@pytest.mark.parametrize("forward", CHAINS.values(), ids=CHAINS)
def test_results_and_gradients_are_eagers(forward: Callable[[Any, Tensor], Any]) -> None:
    twins = _twins(forward)
    assert _launches(twins, _rows) > 0
    twins.call(_rows(5, 4))  # other sizes, of which no four elements can be taken at once


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["gelu", "swish", "broadcast", "two results", "largest", "gradients"])
def test_other_types(name: str, dtype: torch.dtype) -> None:
    module = Made(CHAINS[name]).to(dtype)
    twins = Twins(module, fused_kernels=True, fallback="error", cache="off", log="warning")
    for copy in (twins.eager, twins.module):
        copy.scale = copy.scale.to(dtype)
    rounded = {} if dtype == torch.float64 else {"rtol": 4e-2, "atol": 4e-2}  # sums of what other kernels round elsewhere
    assert _launches(twins, lambda: _rows(dtype=dtype), **rounded) > 0


def test_autocast() -> None:
    """Casts are part of the kernel."""
    twins = _twins(gelu_by_formula)
    with torch.autocast("test", dtype=torch.bfloat16):
        assert _launches(twins, lambda: _rows(8, 4), rtol=4e-2, atol=4e-2) > 0


def test_dropout() -> None:
    """Draws as in eager; the gradient's scale joins its neighbours."""
    twins = _twins(lambda self, x: F.dropout(self.a(x) * 2, 0.3).tanh() * 3 + F.dropout(x.exp(), 0.5))
    assert _launches(twins, _rows) > 0


def test_a_chain_is_one_kernel(compiler: Compiler) -> None:
    assert _launches(_twins(gelu_by_formula), _rows) == 2  # forward and backward
    assert len(compiler.sources) == 2


def test_what_lies_between_takes_no_memory() -> None:
    def arena(fused: bool) -> int:
        twins = Twins(Made(gelu_by_formula), fused_kernels=fused, fallback="error", cache="off", log="warning")
        for _ in range(2):
            twins.call(_rows(17_000, 4))
        return twins.status.arena_bytes

    assert arena(True) <= arena(False) / 2


def test_gradients_that_are_absent_stay_absent() -> None:
    """A Function that returns None for one of its inputs ends the way back there."""

    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            return x + y

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
            return dy, None

    def forward(self: Made, x: Tensor) -> Tensor:
        return Half.apply((x * 2 + 1).tanh(), (self.a(x) * 3 - 1).exp() * 2) * 3 + (self.a.bias * 2).tanh()

    twins = _twins(forward)
    assert _launches(twins, _rows) > 0
    assert twins.module.a.weight.grad is None
    assert twins.module.a.bias.grad is not None


def test_other_layouts() -> None:
    """Results lie as eager's do."""

    class Images(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return F.silu(self.a(x) * 2 + 1).tanh() * 3

    twins = Twins(Images(), fused_kernels=True, fallback="error", cache="off", log="warning")
    before = HostKernel.launches
    for _ in range(2):
        x = _rows(2, 3, 9, 9).detach().to(memory_format=torch.channels_last)
        assert twins.call(x)[0].stride() == twins.eager(x).stride()
    assert HostKernel.launches > before


def test_a_kernel_that_computes_something_else_is_not_used(compiler: Compiler, capfd: pytest.CaptureFixture[str]) -> None:
    compiler.changed = lambda source: source.replace(" = mul(", " = add(")
    twins = _twins(gelu_by_formula)
    assert _launches(twins, _rows, calls=1) == 2  # each is tried once
    assert _launches(twins, _rows) == 0
    assert "computes something else; its ops are launched one by one" in capfd.readouterr().err


def test_a_difference_in_one_element_is_found(compiler: Compiler, capfd: pytest.CaptureFixture[str]) -> None:
    compiler.changed = lambda source: source.replace("= hyperbolic_tangent(s1)", "= s1 > 4.9f ? 0.5f : hyperbolic_tangent(s1)")
    twins = _twins(lambda self, x: (x * 2 + 1).tanh() * 1000)
    twins.call(torch.tensor([[2.0, 1.0, 0.5, 0.1]] + [[0.3, 1.0, 0.5, 0.1]] * 63, device="test:0", requires_grad=True))
    assert "the kernel of Mul+Add+Tanh+Mul for test:0 computes something else" in capfd.readouterr().err


@pytest.mark.parametrize("allocation", range(1, 13))
def test_memory_that_runs_out_while_a_kernel_is_tried(allocation: int, compiler: Compiler) -> None:
    """The call has eager's results, or runs out of memory; what follows is right."""
    twins = _twins(lambda self, x: (x * 2 + self.a.bias).tanh() * 3)
    twins.call(_rows())
    _native.set_kernel_compiler("privateuseone", compiler)  # forgets what has been tried
    x = _rows(7, 4)
    torch.ops.test_device.fail_allocation(allocation)
    try:
        ours = twins.wrapped(x)
    except torch.OutOfMemoryError:
        pass
    else:
        torch.ops.test_device.fail_allocation(0)
        torch.testing.assert_close(ours, twins.eager(x))
    torch.ops.test_device.fail_allocation(0)
    for _ in range(2):
        twins.call(x)


def test_a_kernel_that_cannot_be_compiled_is_not_used(compiler: Compiler, capfd: pytest.CaptureFixture[str]) -> None:
    compiler.changed = lambda source: source + "!"
    twins = _twins(gelu_by_formula)
    assert _launches(twins, _rows) == 0
    assert capfd.readouterr().err.count("is not compiled for") == 1


def test_memory_that_begins_between(compiler: Compiler) -> None:
    """A chain runs op by op where a tensor begins in the middle of four elements."""
    twins = _twins(lambda self, x: (x * 2 + 1).tanh() * self.a.bias)
    assert _launches(twins, _rows) == 2
    whole = torch.randn(25, device="test:0")
    before = HostKernel.launches
    twins.call(whole[1:].view(6, 4).requires_grad_())
    assert HostKernel.launches - before < 2


def test_it_is_an_option() -> None:
    twins = Twins(Made(gelu_by_formula), fallback="error", cache="off", log="warning")
    assert _launches(twins, _rows) == 0


class Layers(nn.Module):
    """Two layers and a chain, enough for a graph of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(gelu_by_formula(self, x))


class Halves(nn.Module):
    """Asks for a value between its modules, so that it is no graph and each of them is one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Layers(), Layers()

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        return self.second(hidden * 2 if hidden.sum() > 1e9 else hidden)


def test_the_status_counts_the_kernels_of_all_parts() -> None:
    twins = Twins(Halves(), fused_kernels=True, cache="off")
    assert _launches(twins, _rows) == 4
    assert len(twins.status.parts) == 3  # the module itself, too
    assert twins.status.fused_kernels == 4
