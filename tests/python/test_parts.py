"""Partial capture: submodules of a module that stays in eager run from graphs; all that is seen is what eager shows."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from module_support import Twins
from rekindle.errors import FallbackError
from seeded import seeded
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """A residual block with statistics and random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return x + scale * self.drop(self.down(torch.relu(self.up(self.norm(x)))))


class Branching(Block):
    """Branches on a value, which no graph does."""

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        y = super().forward(x, scale=scale)
        return y * 2 if y.sum() > 0 else y


class Encoder(nn.Module):
    """Blocks in a list, one of which branches."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Branching(), nn.Sequential(nn.Linear(4, 4), nn.Tanh())])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Model(nn.Module):
    """Blocks and a head around a forward that is given."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.first, self.second, self.encoder = Block(), Block(), Encoder()
        self.head = nn.Linear(4, 2)
        self.calls = 0
        self.does = forward

    def forward(self, x: torch.Tensor) -> Any:
        return self.does(self, x)


def straight(self: Model, x: torch.Tensor) -> torch.Tensor:
    return self.head(self.second(self.first(x), scale=0.5))


def branches(self: Model, x: torch.Tensor) -> torch.Tensor:
    x = self.first(x)
    if x.sum() > 0:
        x = x * 2
    return self.head(self.second(x))


def counts(self: Model, x: torch.Tensor) -> torch.Tensor:
    self.calls += 1
    return straight(self, x) * self.calls


def encodes(self: Model, x: torch.Tensor) -> torch.Tensor:
    return self.head(self.encoder(self.first(x)))


def writes_in_place(self: Model, x: torch.Tensor) -> torch.Tensor:
    x = self.first(x)
    x += float(x.detach().mean())
    x = self.second(x)
    x.mul_(2)
    return self.head(x)


def recomputes(self: Model, x: torch.Tensor) -> torch.Tensor:
    x = checkpoint(self.first, x, use_reentrant=False)
    x = checkpoint(self.second, x, use_reentrant=True)
    return self.head(self.first(x)) * float(x.detach().mean())


def mixes_modes(self: Model, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        target = self.first(x)
    with torch.autocast("cpu", torch.bfloat16):
        x = self.second(x)
    return self.head(self.first(x.float()) - target) * float(target.mean())


FORWARDS: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "control flow on values": (branches, {"": "eager", "first": "local", "second": "local"}),
    "a changed attribute": (counts, {"": "eager", "first": "local", "second": "local"}),
    "a submodule that cannot": (
        encodes,
        {
            "": "eager",
            "first": "local",
            "encoder": "eager",
            "encoder.layers.0": "local",
            "encoder.layers.1": "eager",
            "encoder.layers.2": "local",
        },
    ),
    "writes to results of parts": (writes_in_place, {"": "eager", "first": "local", "second": "local"}),
    "checkpoints": (recomputes, {"": "eager", "first": "local", "second": "local"}),
    "regions without gradient and in lower precision": (mixes_modes, {"": "eager", "first": "local", "second": "local"}),
}


def rows(step: int) -> torch.Tensor:
    return torch.randn(6, 4, generator=seeded(step)).requires_grad_()


def trained(model: nn.Module, module: nn.Module, steps: int = 4) -> dict[str, Any]:
    """All that a few steps leave behind."""
    torch.manual_seed(7)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    results, gradients = [], []
    for step in range(steps):
        x = rows(step)
        optimizer.zero_grad()
        result = model(x)
        result.square().mean().backward()
        optimizer.step()
        results.append(result.detach())
        gradients += [x.grad, *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
    return {"results": results, "gradients": gradients, "state": {**module.state_dict()}, "random": torch.get_rng_state()}


def compared(
    make: Callable[[], Model], prepare: Callable[[Any, Model], Any] = lambda model, module: None, **options: Any
) -> rekindle.Status:
    """Train in eager, with a cold and a warm cache; `prepare` gets the model and its module, and returns what else to compare."""
    torch.manual_seed(0)
    module, expected = make(), None
    for kind in ("eager", "cold", "warm"):
        own = copy.deepcopy(module)
        model = own if kind == "eager" else rekindle.Module(own, rekindle.Options(log="error", **options))
        also = prepare(model, own)
        found = {**trained(model, own), "also": also}
        if expected is None:
            expected = found
        assert found["also"] == expected["also"], kind
        for what in ("results", "gradients", "state", "random"):
            torch.testing.assert_close(
                found[what], expected[what], rtol=2e-4, atol=2e-5, msg=lambda text, what=what, kind=kind: f"{kind} {what}: {text}"
            )
        assert not any("forward" in part.__dict__ for part in own.modules())
        rekindle.lookup.store.flush()
    status = rekindle.status(model)
    assert status.exports == 0, "the warm run exports nothing"
    return status


def sources(status: rekindle.Status) -> dict[str, str]:
    return {part.name: part.source for part in status.parts}


@pytest.mark.parametrize("name", FORWARDS)
def test_parts_run_from_graphs(name: str) -> None:
    forward, expected = FORWARDS[name]
    assert sources(compared(lambda: Model(forward))) == expected


def hooked(where: str) -> Callable[[Any, Model], list[str]]:
    """Hooks of every kind on one submodule, all of which change what they are given; their calls in order."""

    def prepare(model: Any, module: Model) -> list[str]:
        log: list[str] = []
        target = module.get_submodule(where)

        def note(what: str, result: Any) -> Any:
            log.append(what)
            return result

        target.register_forward_pre_hook(lambda _, args, kwargs: note("pre", ((args[0] * 1.5,), kwargs)), with_kwargs=True)
        target.register_forward_hook(lambda _, args, kwargs, out: note(f"post {sorted(kwargs)}", out + 1), with_kwargs=True)
        target.register_full_backward_pre_hook(lambda _, grads: note("backward pre", (grads[0] * 0.5,)))
        target.register_full_backward_hook(
            lambda _, inner, outer: note("backward", tuple(g if g is None else g * 2 for g in inner))
        )
        target.register_forward_hook(lambda *_: note("always", None), always_call=True)
        return log

    return prepare


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("first", {"": "eager", "first": "local", "second": "local"}),
        ("first.up", {"": "eager", "first": "eager", "second": "local"}),
        ("", {}),  # around the graph
    ],
)
def test_hooks_run_around_parts_as_in_eager(where: str, expected: dict[str, str]) -> None:
    def make() -> Model:
        return Model(straight)

    status = compared(make, hooked(where))
    assert sources(status) == expected
    assert {code for code, _ in status.bypass} == ({"hooks"} if where else set())


def test_a_transformer_runs_from_graphs_around_a_hooked_layer() -> None:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    module = BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=16, **sizes))
    tokens = torch.randint(0, 50, (2, 8))
    seen: list[list[torch.Tensor]] = []
    for kind in ("eager", "cold", "warm"):
        own = copy.deepcopy(module)
        model = own if kind == "eager" else rekindle.Module(own, rekindle.Options(log="error"))
        own.bert.encoder.layer[0].attention.self.register_full_backward_hook(lambda module, inner, outer: (inner[0] * 1.5,))
        torch.manual_seed(1)
        for _ in range(3):
            model.zero_grad()
            loss = model(input_ids=tokens, labels=torch.tensor([0, 1])).loss
            loss.backward()
        seen.append([loss.detach(), *(p.grad for p in own.parameters() if p.grad is not None)])
        torch.testing.assert_close(seen[-1], seen[0], rtol=1e-3, atol=1e-5)
        rekindle.lookup.store.flush()
    found = sources(rekindle.status(model))
    assert found["bert.embeddings"] == found["bert.encoder.layer.1"] == found["bert.encoder.layer.0.output"] == "local"
    assert found["bert.encoder.layer.0"] == "eager"


def test_the_status_says_why_and_prints_as_lines() -> None:
    torch.manual_seed(0)
    model = rekindle.Module(Model(encodes), rekindle.Options(log="error"))
    for step in range(3):
        model(rows(step))
    reasons = {part.name: part.reason for part in rekindle.status(model).parts}
    assert reasons["first"] is None
    assert reasons["encoder.layers.1"].startswith("value_specialized: ")
    lines = [str(part) for part in rekindle.status(model).parts]
    assert lines[0].startswith("(the module): eager (value_specialized: ")
    assert lines[1] == "first: export"
    assert "encoder.layers.2: export" in lines


def test_a_module_runs_from_one_graph_again_when_the_hook_is_gone() -> None:
    torch.manual_seed(0)
    module = Model(straight)
    model = rekindle.Module(copy.deepcopy(module), rekindle.Options(log="error"))
    handle = model.first.up.register_full_backward_hook(lambda *_: None)
    for step in range(3):
        model(rows(step))
    assert rekindle.status(model).source == "eager"
    handle.remove()
    torch.manual_seed(1)
    ours = model(rows(3))
    assert rekindle.status(model).source == "export"
    module.load_state_dict(model.state_dict())
    assert ours.requires_grad


def test_a_part_whose_inputs_always_have_other_sizes_is_not_exported_for_ever() -> None:
    def selects(self: Model, x: torch.Tensor) -> torch.Tensor:
        return self.second(x[x.sum(-1) > 0] if x.sum() > 0 else x)

    torch.manual_seed(0)
    module = Model(selects).eval()
    model = rekindle.Module(copy.deepcopy(module), rekindle.Options(log="error", dynamic="static"))
    for count in range(2, 42, 2):
        x = torch.ones(count, 4)
        torch.testing.assert_close(model(x), module(x))
    status = rekindle.status(model)
    assert 10 < status.exports <= 16
    assert sources(status)["second"] == "eager"
    torch.testing.assert_close(model(torch.ones(2, 4)), module(torch.ones(2, 4)))
    assert sources(rekindle.status(model))["second"] == "export"


def test_errors_leave_the_modules_as_they_were() -> None:
    def fails(self: Model, x: torch.Tensor) -> torch.Tensor:
        x = branches(self, x)
        if len(seen) == 3:
            raise KeyError("own error")
        return x

    seen: list[int] = []
    module = Model(fails)
    model = rekindle.Module(module, rekindle.Options(log="error"))
    for step in range(5):
        seen.append(step)
        if len(seen) == 3:
            with pytest.raises(KeyError, match="own error"):
                model(rows(step))
        else:
            model(rows(step))
        assert not any("forward" in part.__dict__ for part in module.modules())
    with pytest.raises(RuntimeError, match=r"running_mean|size|shape"):
        model(torch.randn(6, 5))


def test_a_module_copied_in_the_middle_of_a_call_is_its_own() -> None:
    copies: list[Any] = []

    def copying(self: Model, x: torch.Tensor) -> torch.Tensor:
        x = branches(self, x)
        copies[:] = [copy.deepcopy(self.first), pickle.loads(pickle.dumps(self.first))]
        return x

    torch.manual_seed(0)
    module = Model(copying)
    module.eval()
    model = rekindle.Module(module, rekindle.Options(log="error"))
    for step in range(3):
        model(rows(step))
    assert sources(rekindle.status(model))["first"] == "export"
    for other in copies:
        with torch.no_grad():
            other.up.weight.zero_(), other.up.bias.zero_(), other.down.bias.zero_()
        torch.testing.assert_close(other(rows(0)), rows(0))


def test_threads_share_a_module_with_parts() -> None:
    torch.manual_seed(0)
    module = Model(branches).eval()
    model = rekindle.Module(module, rekindle.Options(log="error"))
    expected = [module(rows(step)).detach() for step in range(8)]
    results: dict[tuple[int, int], torch.Tensor] = {}

    def run(thread: int) -> None:
        for step in range(8):
            results[thread, step] = model(rows(step)).detach()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for (_, step), ours in results.items():
        torch.testing.assert_close(ours, expected[step])
    assert len(results) == 32
    model(rows(0))
    assert not any("forward" in part.__dict__ for part in module.modules())


def test_without_eager_there_are_no_parts() -> None:
    model = rekindle.Module(Model(branches), rekindle.Options(fallback="error", log="error"))
    for step in range(3):
        with pytest.raises(FallbackError, match="value_specialized"):
            model(rows(step))


def test_hooks_on_all_modules_leave_no_parts() -> None:
    log: list[str] = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: log.append(type(module).__name__))
    try:
        status = compared(lambda: Model(straight))
    finally:
        handle.remove()
    assert status.parts == []
    assert log[: len(log) // 3] * 3 == log


class _Forces(nn.Module):
    """Differentiates one of its submodules in the forward, as potentials of molecules do."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.detach().requires_grad_()
        energy = self.energy(x).sum()
        (gradient,) = torch.autograd.grad(energy, x, create_graph=True)
        return energy, -gradient


def test_a_part_is_differentiated_twice_inside_of_the_forward() -> None:
    torch.manual_seed(2)
    twins = Twins(_Forces())
    for _ in range(5):
        twins.call(torch.randn(4, 3))
        for model in (twins.eager, twins.module):
            for parameter in model.parameters():
                parameter.data -= 0.1 * parameter.grad
                parameter.grad = None
    assert {part.name: part.source for part in twins.status.parts}["energy"] != "eager"
