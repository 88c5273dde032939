"""One export serves all sizes that a model does not branch on; each branch has its own."""

from __future__ import annotations

import builtins
import copy
import json
import threading
from typing import Any

import dynamic_models
import pytest
import rekindle
import torch
from dynamic_idioms import IDIOMS
from dynamic_models import Model, x
from module_support import Twins, mlp, rows, tokens
from rekindle.export.torchscript import adapter
from rekindle.miss import acceptance
from rekindle.miss.attempts import WrongElsewhere
from torch import nn

CASES = {**dynamic_models.CASES, **IDIOMS}
_IN_EVALUATION = ("view", "images", "encoder", "branch", "batches of 0 and 1")


@pytest.mark.parametrize(("name", "training"), [*((name, True) for name in CASES), *((name, False) for name in _IN_EVALUATION)])
def test_sizes_change_and_results_are_eagers(name: str, training: bool) -> None:
    make, calls, exports = CASES[name]
    model = make().train(training)
    for expected, sources in ((exports, {"export", "memory"}), (0, {"local", "memory"})):
        twins = Twins(copy.deepcopy(model), fallback="error")  # the second is what another process would find
        for call in calls:
            with torch.set_grad_enabled(training):
                twins.call(*(tensor.clone() for tensor in call))
            assert twins.status.source in sources
        assert twins.status.exports == expected
        rekindle.cache.stats()  # waits until everything is stored


@pytest.mark.parametrize("architecture", ["gpt2", "bert"])
def test_models_of_transformers(architecture: str) -> None:
    transformers = pytest.importorskip("transformers")
    small = {"vocab_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}
    if architecture == "gpt2":
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**small, n_positions=32, use_cache=False))
    else:
        model = transformers.BertForMaskedLM(transformers.BertConfig(**small, intermediate_size=32))
    for exports in (1, 0):
        twins = Twins(copy.deepcopy(model).train(), fallback="error")
        for batch, length in ((4, 8), (2, 11), (3, 3)):
            ids = torch.randint(0, 40, (batch, length))
            twins.call(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids)
        assert twins.status.exports == exports
        rekindle.cache.stats()


def test_gradients_of_inputs_have_their_sizes() -> None:
    twins = Twins(Model(dynamic_models.scale), fallback="error")
    for call in (x(4, 5, 6), x(7, 3, 6)):
        inputs = [call[0].clone().requires_grad_() for _ in range(2)]
        for model, given in zip((twins.eager, twins.wrapped), inputs, strict=True):
            model(given).sum().backward()
        torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    assert twins.status.exports == 1


def test_a_gradient_of_a_gradient_follows_the_sizes_of_its_call() -> None:
    twins = Twins(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), fallback="error")
    for batch in (4, 7):
        found = []
        for model in (twins.eager, twins.wrapped):
            given = x(batch, 6)[0].clone().requires_grad_()
            (gradient,) = torch.autograd.grad(model(given).sum(), given, create_graph=True)
            found.append(torch.autograd.grad(gradient.square().sum(), given)[0])
        torch.testing.assert_close(*found)
    assert twins.status.exports == 1


def test_static_exports_are_for_one_set_of_sizes() -> None:
    twins = Twins(nn.Linear(6, 8), fallback="error", dynamic="static")
    for call in (x(4, 6), x(7, 6), x(4, 6)):
        twins.call(*call)
    assert twins.status.exports == 2


def test_a_size_beyond_what_eager_takes_raises_as_in_eager() -> None:
    twins = Twins(Model(dynamic_models.positions))
    twins.call(*x(4, 5, 6))
    twins.call(*x(4, 40, 6))
    for model in (twins.eager, twins.wrapped):
        with pytest.raises(RuntimeError, match="must match the size"):
            model(*x(4, 41, 6))
    assert twins.status.exports == 1


def test_many_sizes_have_plans_of_their_own_and_one_export() -> None:
    twins = Twins(nn.Linear(6, 8), fallback="error")
    for _ in range(2):
        for batch in range(2, 30):
            twins.call(*x(batch, 6))
    assert twins.status.exports == 1
    assert twins.status.plans == 28  # which are small


def test_an_explanation_names_the_size_that_does_not_fit() -> None:
    model = rekindle.Module(Model(dynamic_models.branch))
    model(*x(3, 6))
    rekindle.cache.stats()
    assert rekindle.explain(model, *x(3, 6)).outcome == "hit"
    why = rekindle.explain(model, *x(1, 6))
    assert [(found.path, found.old, found.new) for found in why.differences] == [("shape argument 0", "[s0, 6]", "[1, 6]")]
    why = rekindle.explain(model, *x(8, 6))
    assert (why.outcome, why.reason) == ("miss", "sizes")
    assert [found.old for found in why.differences] == ["3 > 4 is False"]
    assert "in branch" in why.differences[0].path


def test_a_hit_at_other_sizes_can_be_verified() -> None:
    module = Model(dynamic_models.view)
    rekindle.Module(module)(*x(4, 5, 6))
    rekindle.cache.stats()
    checked = rekindle.Module(module, rekindle.Options(cache="verify"))
    checked(*x(7, 3, 6))
    status = rekindle.status(checked)
    assert (status.hits, status.verify_failures) == (1, 0)


def test_an_entry_says_which_sizes_are_fixed_and_why() -> None:
    model = rekindle.Module(Model(dynamic_models.loop))
    model(*x(4, 5, 6))
    rekindle.cache.stats()
    (row,) = rekindle.cache.ls()
    assert json.loads(row["meta"])["inputs"] == "float32[s0, 5, 6]"


def test_what_is_wrong_at_other_sizes_is_for_one_size_only() -> None:
    def frozen(self, x):  # torch's tracer does not see through NumPy
        return self.linear(x) * float(torch.ones(x.shape).detach().sum().bool().sum() + len(memoryview(bytes(x.nbytes))))

    twins = Twins(Model(frozen))
    for call in (x(4, 6), x(7, 6), x(4, 6)):
        twins.call(*call)


def test_a_failing_call_inside_the_forward_leaves_nothing_behind() -> None:
    def tries(self, x):
        try:
            return self.linear(x).sum(x.size(0))  # no dimension of it
        except IndexError:
            return self.linear(x).view(x.size(0), -1)

    twins = Twins(Model(tries))
    for call in (x(4, 6), x(7, 6)):
        twins.call(*call)
    fine = Twins(Model(dynamic_models.view), fallback="error")
    fine.call(*x(4, 5, 6))


def test_tokens_keep_their_range_when_sizes_are_tried() -> None:
    embedding = nn.Embedding(32, 4)
    twins = Twins(nn.Sequential(embedding, nn.Linear(4, 2)), fallback="error")
    twins.call(tokens())
    twins.call(tokens()[:, :7].contiguous())
    assert twins.status.exports == 1


def test_a_graph_that_is_wrong_at_other_sizes_is_not_exported_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_wrong(*given: Any) -> Any:
        raise WrongElsewhere("at other sizes", given[-1])

    exports: list[Any] = []
    export = adapter.export
    monkeypatch.setattr(acceptance, "_verify_elsewhere", is_wrong)
    monkeypatch.setattr(adapter, "export", lambda request: exports.append(request) or export(request))
    twins = Twins(mlp(), fallback="error")
    for _ in range(2):
        twins.call(rows(count=5))
    assert len(exports) == 1


@pytest.mark.parametrize("tied", [0, 1])
def test_dimensions_that_are_equal_by_chance_cost_no_second_trace(tied: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A width tied to a weight, and one that is not: a guess makes one symbol of both, and a trial two."""

    def forward(self, *given):
        return self.linear(given[tied]) + given[1 - tied].sum(1, keepdim=True)

    traces: list[Any] = []
    export = adapter.export
    monkeypatch.setattr(adapter, "export", lambda request: traces.append(request) or export(request))
    for _ in ("cold", "warm"):
        twins = Twins(Model(forward), fallback="error")
        for count, columns in ((5, 6), (4, 9), (7, 3)):
            twins.call(*(x(count, 6 if i == tied else columns)[0] for i in range(2)))
        assert len(traces) == 1
        rekindle.lookup.store.flush()


def test_len_is_pythons_own_to_other_threads_and_after_an_export() -> None:
    seen = []

    def forward(self, x):
        other = threading.Thread(target=lambda: seen.append(type(len(torch.ones(3)))))
        other.start()
        other.join()
        if len(x) > 5:
            raise ValueError("too long")
        return self.linear(x) * len(x)

    before = builtins.len
    twins = Twins(Model(forward))
    twins.call(*x(4, 6))
    with pytest.raises(ValueError, match="too long"):
        twins.wrapped(*x(7, 6))
    assert set(seen) == {int}
    assert builtins.len is before


def test_a_len_of_the_users_own_is_theirs_after_an_export(monkeypatch: pytest.MonkeyPatch) -> None:
    python = len

    def measured(value: Any) -> int:
        return python(value)

    def forward(self, x):
        return self.linear(x) * len(x)

    monkeypatch.setattr(builtins, "len", measured)
    twins = Twins(Model(forward))
    twins.call(*x(4, 6))
    assert builtins.len is measured
    twins.call(*x(5, 6))
    assert twins.status.bypass == []
