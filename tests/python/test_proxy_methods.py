"""Methods of the user's class run with the wrapped module as `self`: calls of it in them run from graphs."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rekindle
import torch
from module_support import Twins
from torch import nn


class Trained(nn.Module):
    """Has the methods that training frameworks ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)
        self.seen = 0
        self.__count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))

    def training_step(self, x: torch.Tensor) -> torch.Tensor:
        self.__count += 1
        return self(x).square().mean()

    def by_forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.forward(x).sum()

    def nested(self, x: torch.Tensor) -> torch.Tensor:
        return self.training_step(x) + self.by_forward(x)

    def looped(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.cat([self(x), x[:, :1]], 1)
        return x

    def steps(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
        for _ in range(2):
            yield self(x)

    async def awaited(self, x: torch.Tensor) -> torch.Tensor:
        return self(x)

    @torch.no_grad()
    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return self(x).argmax(-1)

    @property
    def at_ones(self) -> torch.Tensor:
        return self(torch.ones(2, 4))

    @classmethod
    def of_class(cls, model: Any, x: torch.Tensor) -> torch.Tensor:
        assert cls in (Trained, Derived)
        return model(x)

    def __matmul__(self, x: torch.Tensor) -> torch.Tensor:
        return self(x)


class Derived(Trained):
    """Overrides a method and calls what it overrides."""

    def training_step(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return super().training_step(x) * 2


USES: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "a step": lambda model, x: model.training_step(x),
    "forward": lambda model, x: model.by_forward(x),
    "methods in methods": lambda model, x: model.nested(x),
    "a loop": lambda model, x: model.looped(x),
    "a generator": lambda model, x: list(model.steps(x)),
    "a coroutine": lambda model, x: asyncio.run(model.awaited(x)),
    "a decorated method": lambda model, x: model.predict(x),
    "a property": lambda model, x: model.at_ones,
    "a class method": lambda model, x: model.of_class(model, x),
    "a special method": lambda model, x: model @ x,
    "a bound method": lambda model, x: (lambda step: step(x))(model.training_step),
    "a function of the class": lambda model, x: Trained.training_step(model, x),
    "a method set later": lambda model, x: types.MethodType(lambda self, x: self(x), model)(x),
}


@pytest.mark.parametrize("kind", [Trained, Derived])
def test_calls_in_methods_run_from_graphs(kind: type[Trained]) -> None:
    torch.manual_seed(3)
    twins = Twins(kind(), fallback="error")
    for name, use in USES.items():
        x = torch.randn(5, 4)
        theirs, ours = twins.both(lambda model, use=use, x=x: use(model, x))
        torch.testing.assert_close(ours, theirs, msg=lambda text, name=name: f"{name}: {text}")
        if name == "a step":
            assert twins.status.source == "export"
            for loss in (theirs, ours):
                loss.backward()
            twins.compare()
    assert twins.status.eager_calls == 0
    assert vars(twins.module)["_Trained__count"] == vars(twins.eager)["_Trained__count"] > 0
    assert twins.module.seen == twins.eager.seen


class Recursive(Trained):
    """Its forward calls the module itself."""

    def forward(self, x: torch.Tensor, depth: int = 2) -> torch.Tensor:
        return self(x * 0.5, depth - 1) + self.first(x) if depth else self.first(x)


def test_a_forward_that_calls_the_module_does_not_call_the_wrapper() -> None:
    twins = Twins(Recursive(), fallback="error")
    twins.call(torch.randn(2, 4))
    assert twins.status.exports == 1
    assert len(twins.wrapped._runtime._kinds) == 1


def test_hooks_of_a_module_that_its_forward_calls_are_left_to_eager() -> None:
    twins, calls = Twins(Recursive()), ([], [])
    for model, log in zip((twins.eager, twins.wrapped), calls, strict=True):
        model.register_forward_hook(lambda module, args, result, log=log: log.append(args[1:]))
    for _ in range(3):
        twins.call(torch.randn(2, 4))
    assert calls[0] == calls[1]
    assert len(calls[0]) == 9
    assert twins.reasons() == ["hooks"]


def test_hooks_see_the_wrapper_and_run_around_the_graph_wherever_they_were_registered() -> None:
    logs: list[list[Any]] = []
    for wrap in (False, True):
        torch.manual_seed(0)
        module, log = Trained(), []
        logs.append(log)
        module.register_forward_pre_hook(lambda module, args, log=log: log.append("before") or (args[0] * 2,))
        model: Any = rekindle.Module(module, rekindle.Options(fallback="error")) if wrap else module
        model.register_forward_hook(lambda module, args, result, log=log, model=model: log.append(module is model) or result + 1)
        model.register_full_backward_hook(lambda module, inner, outer, log=log: log.append(len(inner)))
        model.register_full_backward_pre_hook(lambda module, outer, log=log: log.append(outer[0].sum().item()))
        for _ in range(2):
            x = torch.ones(2, 4, requires_grad=True)
            log.append(round(float(model(x).sum().detach()), 4))
            model.training_step(x).backward()
            log.append(round(float(x.grad.sum()), 4))
        with pytest.raises(RuntimeError):
            model.register_forward_hook(lambda *_, log=log: log.append("always"), always_call=True) and model(torch.ones(2, 5))
    assert [type(entry) for entry in logs[0]] == [type(entry) for entry in logs[1]]
    assert logs[1] == pytest.approx(logs[0], abs=1e-4) if all(type(e) is float for e in logs[0]) else True
    for theirs, ours in zip(*logs, strict=True):
        assert ours == (pytest.approx(theirs, abs=1e-4) if type(theirs) is float else theirs)


def test_a_transformer_generates_as_its_twin_does() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 32, "n_positions": 16}
    module = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=31)).eval()
    model = rekindle.Module(module, rekindle.Options(log="error"))
    tokens = torch.tensor([[1, 2, 3]])
    theirs, ours = (one.generate(tokens, max_new_tokens=2, do_sample=False, use_cache=False) for one in (module, model))
    assert theirs.tolist() == ours.tolist()
    assert rekindle.status(model).source != "none"


def test_lightning_trains_from_graphs() -> None:
    lightning = pytest.importorskip("lightning.pytorch")

    class Lit(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return self(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    x = torch.randn(8, 4)
    states = []
    for wrap in (False, True):
        torch.manual_seed(0)
        module = Lit()
        model: Any = rekindle.Module(module, rekindle.Options(log="error")) if wrap else module
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=4)
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}
        lightning.Trainer(max_epochs=2, accelerator="cpu", **quiet).fit(model, loader)
        states.append(model.state_dict())
    torch.testing.assert_close(states[1], states[0])
    status = rekindle.status(model)
    assert {part.name: part.source for part in status.parts}.get("net", status.source) == "export"
