"""What a trace does not see by itself in a forward: run from graphs where that is honest, else in eager with a clear reason."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import rekindle
import torch
import torch.nn.functional as F
from module_support import Twins, assert_same
from torch import nn


class Averaged(nn.Module):
    """The momentum of its norms is one over the number of batches so far."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.images = nn.BatchNorm1d(4, momentum=None), nn.BatchNorm2d(3, momentum=None, affine=False)

    def forward(self, rows: torch.Tensor, images: torch.Tensor) -> Any:
        return self.rows(rows), self.images(images)


def test_a_batch_norm_without_momentum_averages_over_all_batches(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Averaged()
    for source in ("export", "local"):
        twins = Twins(copy.deepcopy(model), cache_dir=tmp_path, fallback="error")
        for batch in (5, 5, 6, 9):
            twins.call(torch.randn(batch, 4), torch.randn(batch, 3, 4, 4))
        assert int(twins.module.rows.num_batches_tracked) == 4
        assert twins.status.exports == (source == "export")


def test_a_batch_norm_of_an_empty_batch_keeps_its_statistics(tmp_path: Path) -> None:
    twins = Twins(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), cache_dir=tmp_path, fallback="error")
    for batch in (3, 0, 0, 4):
        twins.call(torch.randn(batch, 4))


def test_a_write_through_a_view_of_what_was_put_together(tmp_path: Path) -> None:
    """Torch's inference of shapes divides by 0 where it finds a size of 0 in such a graph, which would end the process."""

    class Written(nn.Module):
        def forward(self, x: torch.Tensor, sized: torch.Tensor) -> Any:
            parts = (x * 1).split(max(1, x.shape[-1] // 2), -1)
            turned = torch.cat(parts[::-1], -1).double()
            turned.transpose(0, -1).add_(2.0)
            return turned, sized * 2

    twins = Twins(Written(), cache_dir=tmp_path, fallback="error")
    for rows in (3, 3, 5):
        twins.call(torch.randn(1), torch.randn(rows, 4))


class LeastSquares(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return tuple(torch.linalg.lstsq(x, y, driver="gelsd"))  # the default driver finds another rank from time to time


@pytest.mark.parametrize("rows", [3, 4, 7])
def test_residuals_of_least_squares_are_there_or_not(tmp_path: Path, rows: int) -> None:
    torch.manual_seed(0)
    for source in ("export", "local"):
        twins = Twins(LeastSquares(), cache_dir=tmp_path)
        for _ in range(3):
            twins.call(torch.randn(rows, 4).double(), torch.randn(rows, 2).double())
        assert twins.status.source == source
    deficient = torch.randn(rows, 4).double()
    deficient[:, 2:] = 0
    twins.call(deficient, torch.randn(rows, 2).double())  # without residuals, whatever the graph expects


class Slopes(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return (
            torch.gradient(x, spacing=[2.0, 0.5]),
            torch.gradient(x, spacing=(3, 1.5), dim=(1, 0), edge_order=2),
            torch.gradient(x),
        )


def test_slopes_with_a_spacing_for_each_dimension(tmp_path: Path) -> None:
    for source in ("export", "local"):
        twins = Twins(Slopes(), cache_dir=tmp_path, fallback="error")
        twins.call(torch.randn(4, 5, requires_grad=True))
        assert twins.status.source == source


class Clamped(nn.Module):
    """Writes that autograd does not see: gradients pass as if they were not there."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        y, z = self.layer(x), self.layer(x).sin()
        with torch.no_grad():
            y.mul_(2).clamp_(min=-0.1)
            z[1:3] = y[:2]
            z[0] = -0.0
        return y * 3, z * z, F.gaussian_nll_loss(x, y, self.layer(x).square())


def test_writes_in_no_grad_regions_leave_a_gradient_what_it_is(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Clamped()
    for source in ("export", "local"):
        twins = Twins(copy.deepcopy(model), cache_dir=tmp_path, fallback="error")
        for rows in (5, 4):
            twins.call(torch.randn(rows, 4))
        assert twins.status.exports == (source == "export")


class Overwritten(nn.Module):
    """Autograd has saved what is written, so that a backward is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x).exp()
        with torch.no_grad():
            y.mul_(2)
        return y


def test_a_write_in_a_no_grad_region_to_what_is_saved_is_an_error_of_the_backward(tmp_path: Path) -> None:
    twins = Twins(Overwritten(), cache_dir=tmp_path)
    for model in (twins.eager, twins.wrapped, twins.wrapped):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            model(torch.randn(5, 4)).sum().backward()


class Noisy(nn.Module):
    """Draws from a generator of its own, or from one that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.generator = nn.Linear(4, 4), None

    def forward(self, x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        return self.layer(x + torch.randn(x.shape, generator=generator or self.generator))


@pytest.mark.parametrize(("own", "reason"), [(True, "opaque_value"), (False, "unsupported_input")])
def test_draws_from_other_generators_are_eagers(tmp_path: Path, own: bool, reason: str) -> None:
    model = Noisy()
    wrapped = rekindle.Module(module := copy.deepcopy(model), rekindle.Options(cache_dir=tmp_path))
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    if own:
        model.generator, module.generator = generators
    for step in range(3):
        x = torch.full((5, 4), float(step))
        given = ((), ()) if own else ((generators[0],), (generators[1],))
        assert_same(wrapped(x, *given[1]), model(x, *given[0]))
    assert [code for code, _ in rekindle.status(wrapped).bypass] == [reason]


class Lazy(nn.Module):
    """Makes a mask at its first call and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.mask = nn.Linear(4, 4), None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mask is None:
            self.mask = torch.ones(4, 4).tril()
        return self.layer(x) @ self.mask


def test_what_a_first_call_makes_is_made_in_eager_and_then_served_from_a_graph(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Lazy()
    for exports in (1, 0):
        twins = Twins(copy.deepcopy(model), cache_dir=tmp_path)
        for _ in range(3):
            twins.call(torch.randn(5, 4))
        assert twins.reasons() == ["state_mutated"]
        assert (twins.status.eager_calls, twins.status.exports) == (1, exports)


class Catches(nn.Module):
    """Goes on after a call that fails: at some sizes only, at all, or for some values."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.linear, self.what = nn.Linear(4, 4), what

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            if self.what == "some sizes":
                return self.linear(x) * x.view(-1, 9).size(0)
            if self.what == "all sizes":
                return self.linear(x[:, :3])
            return self.linear(x) + torch.linalg.cholesky(x[:4])
        except Exception:
            return self.linear(x).view(x.size(0), -1).sin()


@pytest.mark.parametrize("what", ["some sizes", "all sizes"])
def test_a_forward_goes_on_after_a_call_that_fails_for_its_sizes(tmp_path: Path, what: str) -> None:
    for source in ("export", "local"):
        twins = Twins(Catches(what), cache_dir=tmp_path, fallback="error")
        torch.manual_seed(0)
        for batch in (5, 8, 9, 5, 18):
            twins.call(torch.randn(batch, 4))
        assert twins.status.exports == (4 if source == "export" else 0)


def test_a_forward_that_goes_on_after_a_call_that_fails_for_its_values_runs_in_eager() -> None:
    twins = Twins(Catches("some values"))
    twins.call(-torch.eye(4))
    twins.call(torch.eye(4))
    assert twins.status.exports == 0
    assert twins.reasons() == ["value_specialized"]
    assert "linalg_cholesky failed" in twins.status.bypass[0][1]


class WrittenUnseen(nn.Module):
    """Writes through tensors without a gradient to memory that others with one see, which keep it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        y, z, v = self.layer(x), self.layer(x) * 2, self.layer(x).clone()
        y.detach().mul_(2)[0] = 3
        part = z[1:3]
        part.detach().add_(x[:2])
        z.mul_(2)
        z.detach()[:, 0] = 0
        seen = v.detach()
        with torch.no_grad():
            v[0].mul_(2)
        return y * y, z.cos(), part * 3, v * v, seen + 1


class WrittenData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x).exp()
        y.data[0] = 0
        return y


@pytest.mark.parametrize("dynamic", ["auto", "static"])
def test_writes_through_tensors_without_a_gradient_leave_it_what_it_is(tmp_path: Path, dynamic: str) -> None:
    torch.manual_seed(0)
    model = WrittenUnseen()
    for source in ("export", "local"):
        twins = Twins(copy.deepcopy(model), cache_dir=tmp_path, fallback="error", dynamic=dynamic)
        for rows in (5, 5, 4) if dynamic == "auto" else (5, 5):
            twins.call(torch.randn(rows, 4))
        assert twins.status.exports == (source == "export")
        with torch.no_grad():
            twins.call(torch.randn(5, 4))


def test_what_is_written_to_data_that_a_backward_may_have_kept_runs_in_eager() -> None:
    twins = Twins(WrittenData())
    twins.call(torch.randn(3, 4))
    assert twins.reasons() == ["unsupported_op"]
    assert "test_forward_idioms.py" in twins.status.bypass[0][1]
    assert "writes to .data of a tensor that has a gradient" in twins.status.bypass[0][1]
