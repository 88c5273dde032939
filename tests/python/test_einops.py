"""einops: its functions and layers run in graphs, for all sizes, at every start."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import python_process
import rekindle
import torch
from torch import nn

einops = pytest.importorskip("einops")
layers = pytest.importorskip("einops.layers.torch")


class Net(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor] | nn.Module) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(12, 12), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.linear(x))


def split_heads(x: torch.Tensor) -> torch.Tensor:
    return einops.rearrange(x, "b n (h d) -> b h n d", h=3)


def patches(x: torch.Tensor) -> torch.Tensor:
    return einops.rearrange(x, "b n (h w) -> (b n) h w", h=4)


def means(x: torch.Tensor) -> torch.Tensor:
    return einops.reduce(x, "b n (g c) -> b g", "mean", g=4)


def largest(x: torch.Tensor) -> torch.Tensor:
    return einops.reduce(x, "b n c -> b 1 c", "max")


def repeated(x: torch.Tensor) -> torch.Tensor:
    batch, length, _ = x.shape
    return einops.repeat(x[0, 0], "c -> b n c", b=batch, n=length) + x


def products(x: torch.Tensor) -> torch.Tensor:
    return einops.einsum(x, x, "b i d, b j d -> b i j")


def packed(x: torch.Tensor) -> torch.Tensor:
    together, sizes = einops.pack([x, x[:, 0]], "b * c")
    sequence, one = einops.unpack(together * 2, sizes, "b * c")
    return sequence + one[:, None]


def of_a_list(x: torch.Tensor) -> torch.Tensor:
    return einops.rearrange([x, 2 * x], "t b n c -> b (t n) c")


def parsed(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(einops.parse_shape(x, "b n _")["b"], -1)


MADE = {
    "layer": functools.partial(layers.Rearrange, "b n (h d) -> b h n d", h=2),
    "reducing": functools.partial(layers.Reduce, "b n c -> b c", "mean"),
    "mixing": functools.partial(layers.EinMix, "b n c -> b n d", weight_shape="c d", bias_shape="d", c=12, d=5),
}
FUNCTIONS = (split_heads, patches, means, largest, repeated, products, packed, of_a_list, parsed)
CALLED = {function.__name__: lambda function=function: function for function in FUNCTIONS} | MADE


@pytest.mark.parametrize("name", CALLED)
def test_one_graph_serves_all_sizes_with_eagers_results(name: str) -> None:
    torch.manual_seed(0)
    eager = Net(CALLED[name]())
    own = Net(CALLED[name]())
    own.load_state_dict(eager.state_dict())
    wrapped = rekindle.Module(own, rekindle.Options(cache="off"))
    for batch, length in ((4, 6), (3, 5), (7, 9)):
        given = torch.randn(batch, length, 12)
        theirs, mine = (given.clone().requires_grad_() for _ in range(2))
        expected, found = eager(theirs), wrapped(mine)
        torch.testing.assert_close(found, expected)
        expected.square().sum().backward()
        found.square().sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)
        torch.testing.assert_close(own.linear.weight.grad, eager.linear.weight.grad)
    status = rekindle.status(wrapped)
    assert (status.source, status.exports, status.bypass) == ("memory", 1, [])


_PROGRAM = """
import sys
import rekindle, torch, einops
from torch import nn
if "warm" in sys.argv:
    einops.rearrange(torch.zeros(2, 6), "a (b c) -> a b c", b=3)  # its caches are filled in another order
    einops.reduce(torch.zeros(2, 6), "a b -> a", "sum")
import einops_model
model = rekindle.Module(einops_model.Net(), rekindle.Options(cache_dir="cache"))
print(float(model(torch.ones(2, 12)).sum()), rekindle.status(model).source)
"""
_MODEL = """
import torch
from einops import rearrange
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        return rearrange(x, "b (h d) -> h b d", h=3) * 2
"""


def test_what_einops_has_cached_before_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "einops_model.py").write_text(_MODEL)
    found = []
    for how in ("cold", "warm"):
        done = python_process.run("-c", _PROGRAM, how, cwd=tmp_path, check=True)
        found.append(done.stdout.split())
    assert found == [["48.0", "export"], ["48.0", "local"]]


def test_another_backend_for_tensors_is_a_miss(monkeypatch: pytest.MonkeyPatch, cache_dir: Path) -> None:
    from einops import _backends

    model = Net(split_heads)
    given = torch.randn(2, 3, 12)
    rekindle.Module(model)(given)

    class Doubling(_backends.TorchBackend):
        framework_name = "doubling"

        def reshape(self, x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
            return super().reshape(2 * x, shape)

    for kind in (torch.Tensor, nn.Parameter):
        monkeypatch.setitem(_backends._type2backend, kind, Doubling())
    again = rekindle.Module(model)
    torch.testing.assert_close(again(given), model(given))
