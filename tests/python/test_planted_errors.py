"""Errors planted into what a graph returns: the comparison with eager finds each, and takes no right graph for a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import rekindle
import torch
from module_support import rows, tiny_gpt, tokens
from rekindle.miss import acceptance, recheck, sized
from rekindle.process.random_states import set_random_states
from rekindle.reasons import Bypass, Reason
from torch import nn
from torch.nn import functional as F


class Observed(nn.Module):
    """A model that adds to its result what a parameter makes of it, a million times smaller, and keeps a mean in a buffer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.faint = nn.Parameter(torch.tensor([0.3, -0.2]))
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        result = self.model(*args)
        result = result[0] if isinstance(result, tuple) else result
        self.seen.mul_(0.9).add_(result.detach().square().mean())
        return result + 1e-7 * torch.sin(self.faint).sum() * result.detach()


class Attention(nn.Module):
    """Its keys have a bias, which changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.q(x) @ self.k(x).transpose(1, 2) / 8**0.5, -1) @ self.v(x)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2)
        share = torch.zeros(x.shape[0], 4).scatter(1, chosen, weights)
        return sum(share[:, i : i + 1] * F.gelu(expert(x)) for i, expert in enumerate(self.experts))


class Coder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(8, 6), nn.Linear(3, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, spread = self.encode(x).chunk(2, -1)
        return F.dropout(self.decode(mean + spread.exp() * torch.randn_like(mean)), 0.2, self.training)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 3, 2, 1), nn.ConvTranspose2d(8, 3, 2, 2)
        self.norm, self.last = nn.GroupNorm(2, 8), nn.Conv2d(6, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        deep = F.silu(self.norm(self.down(x)))
        return self.last(torch.cat([x, self.up(deep)], 1))


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bags, self.line = nn.EmbeddingBag(32, 8, mode="mean"), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.log_softmax(self.line(self.bags(x)), -1)


def _convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 6, 3), nn.BatchNorm2d(6)
    )


def _encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True)


_Case = tuple[Callable[[], nn.Module], Callable[[], tuple[torch.Tensor, ...]]]
_MODELS: dict[str, _Case] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)), lambda: (rows(),)),
    "convolutions": (_convolutions, lambda: (torch.randn(4, 3, 8, 8),)),
    "encoder": (_encoder, lambda: (torch.randn(3, 5, 8),)),
    "gpt": (lambda: tiny_gpt(0.1), lambda: (tokens(),)),
    "lstm": (lambda: nn.LSTM(4, 8, 2, batch_first=True), lambda: (torch.randn(3, 6, 4),)),
    "attention": (Attention, lambda: (torch.randn(3, 5, 8),)),
    "unet": (UNet, lambda: (torch.randn(2, 3, 8, 8),)),
    "experts": (Experts, lambda: (torch.randn(6, 8),)),
    "coder": (Coder, lambda: (torch.randn(5, 8),)),
    "bags": (Bags, lambda: (torch.randint(0, 32, (4, 6)),)),
}


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * ctx.factor, None


class Planted:
    """A session with one error. faint: the position of an input with a tiny gradient. Its last output goes to a buffer."""

    def __init__(self, session: Any, error: str, faint: int) -> None:
        self._session, self._error, self._faint = session, error, faint

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def forward(self, inputs: list[torch.Tensor], grad: bool) -> list[torch.Tensor]:
        given = list(inputs)
        if self._error == "a faint gradient":
            given[self._faint] = _Scaled.apply(given[self._faint], 1 + 1e-4)
        elif self._error == "an absent gradient":
            given[self._faint] = given[self._faint].detach()
        outputs = list(self._session.forward(given, grad))
        first = outputs[0]
        match self._error:
            case "an output":
                outputs[0] = first + first.detach() * 1e-5
            case "an element":
                outputs[0] = first + torch.zeros_like(first).index_fill_(0, torch.tensor(0), 0.01) * first.detach()
            case "a buffer":
                outputs[-1] = outputs[-1] * (1 + 1e-5)
            case "a random draw":
                torch.rand(1)
            case "a stride":
                outputs[0] = first.transpose(0, -1).clone(memory_format=torch.contiguous_format).transpose(0, -1)
        return outputs


_ERRORS = ["an output", "an element", "a faint gradient", "a buffer", "a random draw", "an absent gradient", "a stride"]


def _planting(found: dict[str, Bypass], compare: Callable[..., Any]) -> Callable[..., Any]:
    """Compares graphs with each error before it compares the right one."""

    def compare_all(session: Any, eager: Any, names: Any, *rest: Any, **named: Any) -> Any:
        for error in _ERRORS if not found else ():
            planted = Planted(session, error, names.index("faint"))
            set_random_states(eager.random_states[0])
            try:
                compare(planted, replace(eager, outputs=eager.again()), names, *rest, **named)
            except Bypass as bypass:
                found[error] = bypass
        return compare(session, eager, names, *rest, **named)

    return compare_all


@pytest.mark.parametrize("name", _MODELS)
def test_each_error_is_found_and_the_right_graph_is_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, inputs = _MODELS[name]
    torch.manual_seed(0)
    found: dict[str, Bypass] = {}
    monkeypatch.setattr(acceptance, "compare_session", _planting(found, acceptance.compare_session))
    model = rekindle.Module(Observed(make()), rekindle.Options(log="off"))
    model(*inputs())
    assert rekindle.status(model).source == "export", rekindle.status(model).bypass
    assert [*found] == _ERRORS
    assert {bypass.reason for bypass in found.values()} == {Reason.VERIFICATION_FAILED}


def _mlp() -> Observed:
    torch.manual_seed(0)
    return Observed(_MODELS["mlp"][0]())


class Definite(nn.Module):
    """Takes a root of a matrix that has none with other numbers, so that eager runs for the numbers of the call only."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(0.8 + 0.2 * torch.eye(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.linalg.cholesky(self.matrix)


_LARGE_CASES = {"at other sizes": (_mlp, rows, 2), "for the call": (lambda: Observed(Definite()), lambda: torch.randn(5, 8), 1)}


@pytest.mark.parametrize("error", [*_ERRORS, None])
@pytest.mark.parametrize("compared", _LARGE_CASES)
def test_it_is_found_in_a_large_graph_whose_gradients_are_compared_once(
    compared: str, error: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, inputs, without = _LARGE_CASES[compared]
    compare, differentiated = acceptance.compare_session, []

    def planted(session: Any, eager: Any, names: Any, *rest: Any, **named: Any) -> Any:
        differentiated.append(eager.differentiated)
        return compare(Planted(session, error or "none", names.index("faint")), eager, names, *rest, **named)

    monkeypatch.setattr(acceptance, "compare_session", planted)
    monkeypatch.setattr(sized, "_LARGE", 0)
    model = rekindle.Module(make(), rekindle.Options(log="off"))
    model(inputs())
    if error is None:
        assert rekindle.status(model).source == "export"
        assert sorted(differentiated) == [False] * without + [True]
    else:
        assert [code for code, _ in rekindle.status(model).bypass] == ["verification_failed"]


@pytest.mark.parametrize("error", _ERRORS)
def test_rekindle_verify_finds_it(error: str) -> None:
    model = rekindle.Module(_mlp(), rekindle.Options(log="off"))
    model(rows())
    (variant,) = model._runtime._kinds.graphs()
    names = [f"input {i}" for i in range(1)] + variant.contract.state
    assert rekindle.verify(model, rows())
    variant.session = Planted(variant.session, error, [names[i] for i in variant.used].index("faint"))
    variant.served = None  # which has the session that is right
    found = rekindle.verify(model, rows())
    assert not found, str(found)
    kinds = {"an output": "result", "an element": "result", "a stride": "result", "a buffer": "buffer", "a random draw": "random"}
    assert {row.kind for row in found.differences} == {kinds.get(error, "gradient")}


@pytest.mark.parametrize("error", _ERRORS)
def test_the_mode_verify_finds_it(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rekindle.Module(_mlp(), rekindle.Options(log="off"))(rows())
    rekindle.cache.stats()  # waits until everything is stored
    compare = acceptance.compare_session
    verify = recheck.verify

    def verify_planted(*args: Any, **named: Any) -> Any:
        def planted(session: Any, eager: Any, names: Any, *rest: Any, **more: Any) -> Any:
            return compare(Planted(session, error, names.index("faint")), eager, names, *rest, **more)

        with monkeypatch.context() as patch:
            patch.setattr(acceptance, "compare_session", planted)
            return verify(*args, **named)

    monkeypatch.setattr(recheck, "verify", verify_planted)
    model = rekindle.Module(_mlp(), rekindle.Options(log="off", cache="verify"))
    model(rows())
    assert rekindle.status(model).verify_failures == 1
