"""Results of a graph, and gradients, lie in memory as eager's do: with its strides, at every size."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable

import pytest
import rekindle
import torch
from torch import nn
from torch.nn import functional as F


def _options(directory: pathlib.Path) -> rekindle.Options:
    return rekindle.Options(cache_dir=directory, fallback="error", log="off")


def _layout(result: torch.Tensor | tuple[torch.Tensor, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    results = result if isinstance(result, tuple) else (result,)
    return [(tuple(tensor.shape), tensor.stride()) for tensor in results]


class Function(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        return self.function(x * self.weight)


class Residual(nn.Module):
    """A block as in ResNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.second(F.relu(self.norm(self.first(x)))))


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.blocks = nn.Sequential(Residual(8), nn.MaxPool2d(2), Residual(8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.blocks(self.stem(x))
        return features, features.mean((2, 3))


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    return x[:, :, None].expand(-1, -1, 3, -1).contiguous(memory_format=torch.channels_last) + 1


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor | tuple[torch.Tensor, ...]]] = {
    "transposed": lambda x: x.transpose(1, 2),
    "elementwise of a transpose": lambda x: torch.relu(x.transpose(0, 2)),
    "a part": lambda x: x[:, 1],
    "every second": lambda x: x[..., ::2],
    "expanded": lambda x: x.sum(0).unsqueeze(0).expand(5, -1, -1),
    "to channels last": _channels_last,
    "as a clone of it": lambda x: _channels_last(x).clone(memory_format=torch.preserve_format),
    "as a contiguous clone": lambda x: _channels_last(x).clone(memory_format=torch.contiguous_format),
    "by to": lambda x: _channels_last(x).to(torch.float64).to(memory_format=torch.contiguous_format),
    "several": lambda x: (x.transpose(0, 1), x.mean(1), torch.cat([x, x], 1).permute(2, 0, 1).exp()),
    "matrix product": lambda x: torch.matmul(x.transpose(1, 2), x).transpose(0, 1) * 2,
    "softmax": lambda x: torch.softmax(x.transpose(1, 2), -1),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", ["static", "auto"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_have_the_strides_of_eager(name: str, dynamic: str, tmp_path: pathlib.Path) -> None:
    eager = Function(FUNCTIONS[name])
    options = rekindle.Options(cache_dir=tmp_path, fallback="error", log="off", dynamic=dynamic)
    for wrapped in (rekindle.Module(copy.deepcopy(eager), options) for _ in ("cold", "warm")):
        for size in ((2, 4, 6), (3, 5, 8)):
            x, y = (torch.arange(float(torch.Size(size).numel())).reshape(size).requires_grad_() for _ in range(2))
            expected, found = eager(x), wrapped(y)
            assert _layout(found) == _layout(expected)
            torch.testing.assert_close(found, expected)
            theirs, mine = (
                torch.autograd.grad([r.sum() for r in (result if isinstance(result, tuple) else (result,))], given)
                for result, given in ((expected, x), (found, y))
            )
            assert _layout(mine) == _layout(theirs)
            torch.testing.assert_close(mine, theirs)
    assert rekindle.status(wrapped).exports == 0


@pytest.mark.parametrize("training", [True, False])
def test_a_convolutional_net_in_channels_last_stays_in_it(training: bool, tmp_path: pathlib.Path) -> None:
    torch.manual_seed(0)
    eager = ConvNet().to(memory_format=torch.channels_last).train(training)
    for start in ("cold", "warm"):
        reference, wrapped = copy.deepcopy(eager), rekindle.Module(copy.deepcopy(eager), _options(tmp_path))
        for batch, side in ((2, 19), (4, 19), (3, 27)):
            x = torch.randn(batch, 3, side, side).to(memory_format=torch.channels_last).requires_grad_()
            y = x.detach().clone().requires_grad_()
            expected, found = reference(x), wrapped(y)
            assert _layout(found) == _layout(expected)
            assert found[0].is_contiguous(memory_format=torch.channels_last)
            torch.testing.assert_close(found, expected)
            for features, pooled in (expected, found):
                (features.square().mean() + pooled.sum()).backward()
            pairs = [*zip(reference.parameters(), wrapped.parameters(), strict=True), (x, y)]
            for theirs, mine in pairs:
                assert mine.grad.stride() == theirs.grad.stride()
                torch.testing.assert_close(mine.grad, theirs.grad)
                mine.grad = theirs.grad = None
        assert (rekindle.status(wrapped).exports == 0) == (start == "warm")


def test_a_result_that_cannot_be_viewed_in_eager_cannot_be_viewed(tmp_path: pathlib.Path) -> None:
    wrapped = rekindle.Module(Function(FUNCTIONS["transposed"]), _options(tmp_path))
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        wrapped(torch.ones(2, 3, 4)).view(-1)


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


def test_an_attention_in_evaluation_takes_the_way_of_eager(tmp_path: pathlib.Path) -> None:
    model = SelfAttention().eval()
    for exports in (1, 0):
        wrapped = rekindle.Module(copy.deepcopy(model), _options(tmp_path))
        for sizes in ((2, 3, 8), (4, 5, 8)):
            x = torch.randn(sizes)
            with torch.no_grad():
                found, expected = wrapped(x), model(x)
            torch.testing.assert_close(found, expected)
            assert found.stride() == expected.stride()
        assert rekindle.status(wrapped).exports == exports
