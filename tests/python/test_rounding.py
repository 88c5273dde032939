"""What eager's rounding explains of a difference to eager, and what it does not."""

from __future__ import annotations

import contextlib
import pathlib
import resource
import types
from collections.abc import Iterator
from typing import Any

import rekindle
import torch
from rekindle.compare.rounding import Exact, Noise, judge
from rekindle.compare.rounding_operators import rounds_like


def _cancelling(x: torch.Tensor, order: tuple[int, ...] = (0, 1, 2, 3)) -> torch.Tensor:
    """Zero but for rounding, which depends on the order."""
    total = torch.zeros(x.shape[1:])
    for i in order:
        total = total + x[i].sin() * 100
    return total - (x.double().sin() * 100).sum(0).float()


def _numbers(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(3))


def test_another_order_of_a_sum_is_rounding() -> None:
    x = _numbers(4, 8)
    (judged,) = judge(lambda: [_cancelling(x)])
    for order in ((3, 2, 1, 0), (2, 0, 3, 1)):
        assert judged.admits(_cancelling(x, order))
    assert not judged.admits(_cancelling(x) + 1e-3)


@contextlib.contextmanager
def _precision(of: Any, precision: str) -> Iterator[None]:
    before, of.fp32_precision = of.fp32_precision, precision
    try:
        yield
    finally:
        of.fp32_precision = before


def test_products_of_fewer_digits_round_as_these() -> None:
    on_gpu, aten = types.SimpleNamespace(dtype=torch.float32, device=torch.device("cuda")), torch.ops.aten
    assert (
        rounds_like(aten.convolution.default, on_gpu) is rounds_like(aten.convolution_backward.default, on_gpu) is torch.float16
    )
    assert rounds_like(aten.mm.default, on_gpu) is rounds_like(aten.convolution.default, _numbers(2)) is torch.float32
    with _precision(torch.backends.cuda.matmul, "tf32"):
        assert rounds_like(aten.addmm.default, on_gpu) is torch.float16
        assert rounds_like(aten.mul.Tensor, on_gpu) is torch.float32
    assert rounds_like(aten.addmm.default, _numbers(2).double()) is torch.float64


def test_noise_is_that_of_the_digits_that_a_product_reads() -> None:
    x, w = _numbers(64, 64), _numbers(64, 64)
    errors = []
    for precision in ("ieee", "bf16"):
        with _precision(torch.backends.mkldnn.matmul, precision), Noise(1):
            errors.append(float((x @ w).sub(x.double() @ w.double()).norm()))
    assert 1000 < errors[1] / errors[0] < 100_000  # 2 ** 16


def test_gradients_are_judged_too() -> None:
    x = _numbers(3, 5).requires_grad_()

    def gradient() -> list[torch.Tensor | None]:
        rounded = torch.nn.functional.layer_norm(x.bfloat16(), (5,)).float() * _numbers(3, 5)
        return list(torch.autograd.grad(rounded.exp().sum(), x))

    (judged,) = judge(gradient)
    (eager,) = gradient()
    assert judged.admits(eager) and judged.admits(eager * (1 + 1e-4))
    assert not judged.admits(eager * 1.2)


def test_what_cancels_inside_of_a_loss_is_rounding() -> None:
    x = (12 * _numbers(96, 4)).requires_grad_()
    right = x.detach().argmax(1)

    def results() -> list[torch.Tensor | None]:
        loss = torch.nn.functional.cross_entropy(x, right, reduction="none")
        return [loss, *torch.autograd.grad(loss, x, torch.ones(96))]

    judged = judge(results)
    for seed in range(20):
        with torch.no_grad(), Noise(seed):
            moved = x - x.amax(1, True)
            logarithms = moved - moved.exp().sum(1, True).log()
            mine = [-logarithms.gather(1, right[:, None])[:, 0], logarithms.exp() - torch.nn.functional.one_hot(right, 4)]
        assert all(one.admits(x) for one, x in zip(judged, mine, strict=True)), seed
        assert not any(one.admits(x * (1 + 1e-5)) for one, x in zip(judged, mine, strict=True))


def test_doubles_follow_views_writes_and_random_numbers() -> None:
    def run() -> torch.Tensor:
        torch.manual_seed(0)
        x = _numbers(4, 6) / 3
        part = x[1:].t()
        part.mul_(3)[2] = x[0, :3]
        x += torch.nn.functional.dropout(x, 0.5) * torch.rand_like(x)
        return x * torch.floor(x)

    torch.manual_seed(0)
    wide = _numbers(4, 6).double() / 3
    part = wide[1:].t()
    part.mul_(3)[2] = wide[0, :3]
    noise = torch.empty(4, 6).bernoulli_(0.5).div_(0.5)
    wide += wide * noise * torch.rand(4, 6)
    with Exact() as exact:
        found = exact.of(run()).clone()
    torch.testing.assert_close(found, wide * torch.floor(wide), rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(found.float(), run())


def test_what_is_no_real_number_is_written_once() -> None:
    def run() -> list[torch.Tensor]:
        count, wave, held = torch.arange(6), torch.ones(6, dtype=torch.complex64), torch.full((6,), 2)
        count += torch.where(count < 3, count, 7)
        count.bitwise_xor_(5)[2:].mul_(2)
        wave *= 2j
        torch.add(held, held, out=held)
        torch._foreach_add_([count, held], 1)
        return [count, wave, held]

    expected = run()
    for seed in (None, 0):
        with Exact(seed):
            found = run()
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_what_is_exact_in_eager_has_to_be_exact() -> None:
    x = _numbers(6)
    judged = judge(lambda: [x.flip(0), None, torch.where(x > 0, x, 2 * x)])
    assert judged[1] is None
    assert all(sample.norm == 0 for i in (0, 2) for sample in judged[i].samples)
    assert not judged[0].admits(x.flip(0) * (1 + 1e-6))


def test_what_a_kernel_reads_lies_as_in_eager() -> None:
    """PyTorch's gradient of a batch norm takes a scale for a dense one where x and dy are: that is not rounding."""
    torch.manual_seed(0)
    x, scale = torch.randn(64, 4, requires_grad=True), torch.rand(4, 4) * 8

    def gradient(scale: torch.Tensor) -> torch.Tensor:
        result = torch.nn.functional.batch_norm(x, None, None, scale, None, training=True)
        return torch.autograd.grad(result.sin().sum(), x)[0]

    [judged] = judge(lambda: [gradient(scale.diagonal())])
    assert judged is not None and judged.admits(gradient(scale.diagonal()))
    assert not judged.admits(gradient(scale.diagonal().contiguous()))


class Signs(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(_numbers(5))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.sgn(self.weight), x.sin()


def test_gradients_without_memory_are_zeros() -> None:
    """The backward of `sgn` gives such."""
    wrapped = rekindle.Module(Signs(), rekindle.Options(cache="off"))
    for _ in range(2):
        wrapped(_numbers(3))[0].sum().backward()
        assert not wrapped.weight.grad.any()
        wrapped.weight.grad = None
    assert rekindle.status(wrapped).source == "export", rekindle.status(wrapped).bypass
    assert rekindle.verify(wrapped, _numbers(3))
    x = _numbers(6).requires_grad_()
    for one in judge(lambda: list(torch.autograd.grad(x.sgn().sum(), x))):
        assert one.admits(torch.zeros(6)) and not one.admits(torch.full((6,), 1e-6))


def _resident() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_what_eager_has_let_go_takes_no_memory_in_double() -> None:
    x, before, most = _numbers(1 << 20), _resident(), 0
    with Exact() as exact:
        y = x
        for _ in range(100):
            y = y * 1.01
            most = max(most, _resident())
    assert most - before < 300 << 20  # all of it is 800 MiB
    torch.testing.assert_close(exact.of(y), x.double() * 1.01**100, rtol=1e-12, atol=0)


def test_memory_that_is_used_again_has_new_numbers() -> None:
    with Exact() as exact:
        for i in range(50):
            x = torch.full((70_000,), float(i))
            assert torch.equal(exact.of(x), x.double())
            y = x / 3
            torch.testing.assert_close(exact.of(y), x.double() / 3, rtol=1e-15, atol=0)
            del x, y
