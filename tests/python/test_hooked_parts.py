"""Hooks on submodules of a module: parts run from graphs around them, and all that is seen is what eager shows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from parts_support import Model, compared, rows, sources, straight
from torch import nn


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


def test_hooks_on_all_modules_leave_no_parts() -> None:
    log: list[str] = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: log.append(type(module).__name__))
    try:
        status = compared(lambda: Model(straight))
    finally:
        handle.remove()
    assert status.parts == []
    assert log[: len(log) // 3] * 3 == log
