"""Arguments of torch's operators that a trace, an exporter or a kernel takes otherwise than eager does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
import torch.nn.functional as F
from module_support import Twins
from rekindle.export.unchecked import Allowed, allowed_by
from rekindle.miss import perturbation
from seeded import seeded
from torch import nn

MASK = torch.tensor([[True, False, True], [False, False, True], [True, True, False], [False, True, False]])


def x() -> torch.Tensor:
    return torch.randn(4, 3, generator=seeded(0))


class Scaled(nn.Module):
    """A function after a product with a parameter."""

    def __init__(self, function: Callable[..., object], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.scale, self.function = nn.Parameter(torch.tensor(1.5, dtype=dtype)), function

    def forward(self, x: torch.Tensor, *others: torch.Tensor) -> object:
        return self.function(x * self.scale, *others)


def assigned(place: object, value: object) -> Callable[[torch.Tensor], torch.Tensor]:
    def assign(y: torch.Tensor) -> torch.Tensor:
        y = y * 1
        y[place] = value
        return y

    return assign


def check(function: Callable[..., object], *given: torch.Tensor, dtype: torch.dtype = torch.float32) -> None:
    """In a graph, cold and warm, everything is eager's."""
    for source in ("export", "local"):
        twins = Twins(Scaled(function, dtype), fallback="error")
        twins.call(*given)
        assert twins.status.source == source
        rekindle.cache.stats()  # waits until everything is stored


@pytest.mark.parametrize(
    "function",
    [
        lambda y: y + True,
        lambda y: y.masked_fill(MASK, True) * torch.full_like(y, True),
        lambda y: torch.where(MASK, y, False) + F.threshold(y, False, True),
        lambda y: (MASK == True) * y,  # noqa: E712
        lambda y: MASK.masked_fill(MASK, False) * y,
    ],
    ids=["added", "filled", "chosen", "compared", "boolean result"],
)
def test_a_boolean_stands_for_a_number(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    check(function, x())


@pytest.mark.parametrize("value", [2.5, True, torch.tensor(2.0)], ids=["number", "boolean", "tensor"])
def test_a_tensor_is_filled(value: object) -> None:
    check(lambda y: (torch.fill(y, value) + torch.fill_(y * 2, value), torch.zero_(y * 2)), x())


@pytest.mark.parametrize("value", [0.0, True, float("-inf"), torch.tensor(2.0)], ids=str)
def test_the_places_of_a_mask_are_assigned(value: object) -> None:
    check(lambda y: (assigned(MASK, value)(y), assigned(MASK[:, 0], value)(y), assigned(y > 0, value)(y)), x())


def test_rows_of_a_mask_are_assigned() -> None:
    check(lambda y, row: assigned(MASK[:, 0], row)(y), x(), torch.randn(3))


@pytest.mark.parametrize("operator", [torch.native_batch_norm, torch._native_batch_norm_legit], ids=["native", "legit"])
def test_running_statistics_are_written_by_every_operator_that_does(operator: Callable[..., object]) -> None:
    class Normalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(3) + 0.5)
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("variance", torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            normalized = operator(x, self.weight, None, self.mean, self.variance, True, 0.1, 1e-5)
            updated = torch.ops.aten._batch_norm_with_update(x, self.weight, None, self.mean, self.variance, 0.2, 1e-5)
            return normalized[0] * updated[0]

    twins = Twins(Normalized(), fallback="error")
    for _ in range(2):
        twins.call(x())


@pytest.mark.parametrize("mode", ["area", "nearest", "linear"])
def test_an_interpolation_by_a_factor(mode: str) -> None:
    check(lambda y: F.interpolate(y[None], scale_factor=1.7, mode=mode, recompute_scale_factor=True), x())


def test_empty_vectors_are_left_out_of_a_concatenation() -> None:
    check(lambda y, empty: torch.cat([y, empty], dim=-1), x(), torch.empty(0))


def test_a_repetition_of_no_times_has_a_gradient() -> None:
    check(lambda y: y.repeat(0, 2), x())


@pytest.mark.parametrize(
    "function",
    [
        lambda y: F.layer_norm(y, (3,), y[0]),
        lambda y: F.scaled_dot_product_attention(y, y * 3, y * 2, is_causal=True),
        lambda y: torch.addcmul(y, y, y, value=0.3),
    ],
    ids=["layer_norm", "attention", "addcmul"],
)
@pytest.mark.parametrize("grad", [True, False])
def test_bfloat16_is_as_precise_as_eager(function: Callable[[torch.Tensor], torch.Tensor], grad: bool) -> None:
    given, model = x().bfloat16(), Scaled(function, torch.bfloat16)
    wrapped = rekindle.Module(model, rekindle.Options(fallback="error"))
    with torch.set_grad_enabled(grad):
        found = wrapped(given).double()
        expected = model(given).double()
        exact = Scaled(function, torch.float64)(given.double())
    scale = exact.abs().max()
    assert (found - exact).abs().max() <= 2 * (expected - exact).abs().max() + 2**-9 * scale


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize(
    "function",
    [
        lambda y: y * 0.1,
        lambda y: y / 3.3,
        lambda y: 0.1 / (y + 3),
        lambda y: 0.3 - y,
        lambda y: y * 1e5 * 1e-5,
        lambda y: y * y.float().exp().mean(),
        lambda y: torch.add(y, y, alpha=0.7),
    ],
    ids=["product", "quotient", "of a number", "difference", "beyond float16", "0-dim", "alpha"],
)
def test_numbers_beside_half_precision_are_not_rounded_to_it(
    function: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    given = torch.linspace(-1, 1, 64).to(dtype).requires_grad_()
    model = Scaled(function, dtype)
    wrapped = rekindle.Module(model, rekindle.Options(fallback="error"))
    found, expected = wrapped(given), model(given)
    assert torch.equal(found, expected)
    gradients = [torch.autograd.grad(result.sum(), given)[0] for result in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    "function",
    [
        lambda y: torch.baddbmm(y[0], y[..., None], y[:, None], beta=0.6, alpha=0.2),
        lambda y: torch.addmm(y[0, 0], y, y.mT, beta=0.6, alpha=0.2),
        lambda y: F.cross_entropy(y, torch.tensor([0, 2, 1, 1]), label_smoothing=0.1),
        lambda y: F.layer_norm(y * 1e-3, (3,)),
        lambda y: torch.addcmul(y, y, y, value=0.3),
        lambda y: F.mse_loss(y[0, 0], y[1, 1]),
    ],
    ids=["baddbmm", "addmm", "cross_entropy", "layer_norm", "addcmul", "mse_loss"],
)
def test_numbers_of_float64_keep_their_precision(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    given, model = x().double(), Scaled(function, torch.float64)
    wrapped = rekindle.Module(model, rekindle.Options(fallback="error"))
    torch.testing.assert_close(wrapped(given), model(given), rtol=1e-14, atol=1e-14)


def test_complex_results_are_compared_within_rounding() -> None:
    check(lambda y: torch.view_as_real(torch.fft.fft(y).exp()), x())
    wrapped = rekindle.Module(Scaled(lambda y: torch.fft.fft(y).exp()), rekindle.Options(fallback="error"))
    torch.testing.assert_close(wrapped(x()), wrapped.module(x()))
    wrapped = rekindle.Module(Scaled(lambda y: y.chalf()), rekindle.Options(fallback="error"))
    assert wrapped(x()).dtype is torch.complex32


def test_a_mask_may_be_causal_or_not() -> None:
    layer = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True), 1, enable_nested_tensor=False)
    twins = Twins(layer, fallback="error")
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    for mask in (causal, causal.T.contiguous(), causal):
        twins.call(torch.randn(2, 4, 8), mask=mask)
    assert twins.status.exports == 1


def test_inputs_may_have_many_dimensions_of_open_size() -> None:
    twins = Twins(Scaled(lambda y: F.avg_pool3d(y, 2)), fallback="error")
    for sizes in ((2, 3, 4, 5, 6), (3, 2, 6, 4, 7)):
        twins.call(torch.randn(sizes))
    assert twins.status.exports == 1


def test_operators_that_do_not_check_what_they_are_given_are_given_nothing_made_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[int, ...]] = []

    def unpack(y: torch.Tensor, pivots: torch.Tensor) -> torch.Tensor:
        return torch.lu_unpack(y, pivots)[1]

    run = perturbation.run_eager
    monkeypatch.setattr(perturbation, "run_eager", lambda *given: (calls.append(tuple(given[2][0].shape)), run(*given))[1])
    factors, pivots = torch.linalg.lu_factor(torch.randn(5, 5))
    twins = Twins(Scaled(unpack), fallback="error")
    twins.call(factors.contiguous(), pivots)

    def normalize(y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return torch.native_batch_norm(y, None, None, mean.clone(), variance.clone(), True, 0.5, 1e-5)[0]

    Twins(Scaled(normalize), fallback="error").call(torch.randn(5, 5, 5), torch.zeros(5), torch.ones(5))
    assert calls == []
    assert allowed_by(torch.relu) is Allowed.ANYTHING
    assert allowed_by(torch.ctc_loss) is allowed_by(torch.ops.aten._ctc_loss.default) is Allowed.LARGER


def test_attention_is_tried_with_as_many_values_as_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: set[tuple[int, int]] = set()
    run = perturbation.run_eager

    def seen(*given: Any) -> Any:
        lengths.add((given[1][1].shape[-2], given[1][2].shape[-2]))
        return run(*given)

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(query + torch.ones(8, 16), key, value)

    monkeypatch.setattr(perturbation, "run_eager", seen)
    twins = Twins(Scaled(attend), fallback="error")
    for length in (8, 5, 11):
        twins.call(torch.randn(2, 3, 8, 16), torch.randn(2, 3, length, 16), torch.randn(2, 3, length, 16))
    assert len(lengths) > 1 and all(keys == values for keys, values in lengths)
    assert twins.status.exports == 1
