"""Results with objects that are no containers, such as transformers' caches of keys and values, and with sizes in them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import rekindle
import torch
from module_support import Mlp, Twins, mlp, rows
from torch import nn


class Memory:
    """What a layer remembers."""

    def __init__(self, layers: list[Any]) -> None:
        self.layers = layers
        self.dtype, self.device = layers[0].dtype, layers[0].device
        self.kind = Memory
        self.seen = layers[0].shape[0] + 1
        self.size = layers[0].shape
        self.owner = self


class Watched(Memory):
    def __del__(self) -> None:
        pass


class Remembering(nn.Module):
    """Returns its result and an object that holds what is behind it."""

    def __init__(self, kind: type[Memory] = Memory) -> None:
        super().__init__()
        self.inner, self.kind = mlp(), kind

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        hidden = self.inner.first(x)
        memory = self.kind([hidden, hidden.tanh()])
        return {"y": self.inner.second(torch.relu(hidden)), "memory": memory, "again": memory}


class Keeping(nn.Module):
    """Returns one object at each call, in which it puts the newest tensor."""

    def __init__(self, kept: Memory) -> None:
        super().__init__()
        self.inner, self.kept = mlp(), [kept]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Memory]:
        return self.inner(x), self.kept[0]


def _checked(twins: Twins, x: torch.Tensor) -> Any:
    theirs, ours = twins.both(lambda model: model(x))
    memory = ours["memory"]
    assert type(memory) is type(theirs["memory"]) and memory is ours["again"] and memory.owner is memory
    assert (memory.seen, memory.dtype, memory.device) == (len(x) + 1, torch.float32, torch.device("cpu"))
    assert memory.kind is Memory and memory.size == theirs["memory"].size and type(memory.size) is torch.Size
    for mine, other in zip([ours["y"], *memory.layers], [theirs["y"], *theirs["memory"].layers], strict=True):
        torch.testing.assert_close(mine, other)
    for result in (theirs, ours):
        (result["y"].sum() + result["memory"].layers[1].square().sum()).backward()
    twins.compare()
    return ours


def test_objects_are_made_again_at_all_sizes() -> None:
    for exports in (1, 0):
        twins = Twins(Remembering(), fallback="error")
        results = [_checked(twins, rows(count, count)) for count in (5, 3, 8, 5)]
        assert twins.status.exports == exports
        assert len({id(result["memory"]) for result in results}) == 4, "one object for several calls"
        rekindle.cache.stats()  # waits until everything is stored


class Plain(Mlp):
    """Returns what JSON has no numbers and no texts for, too."""

    def forward(self, x: torch.Tensor) -> dict[Any, Any]:  # type: ignore[override]
        odd = ["\udcff", "é\0", "\\udcff", -(1 << 70), 1 << 63, -1, True, 0.1, -0.0, float("inf"), -float("inf"), None]
        return {"y": super().forward(x), "odd": odd, -float("inf"): 1, 1 << 64: 2, None: 3}


def test_plain_values_are_what_they_were() -> None:
    for source in ("export", "local"):
        twins = Twins(Plain(), fallback="error")
        theirs, ours = twins.both(lambda model: model(rows()))
        assert twins.status.source == source
        del theirs["y"], ours["y"]
        assert repr(ours) == repr(theirs)
        rekindle.cache.stats()  # waits until everything is stored


def test_an_object_that_is_the_same_at_each_call_is_eagers() -> None:
    kept = Memory([torch.ones(2)])
    twins = Twins(Keeping(kept))
    assert twins.wrapped(rows())[1] is twins.module.kept[0]
    assert twins.reasons() == ["unsupported_output"]


def test_no_object_is_made_whose_class_may_run_code() -> None:
    twins = Twins(Remembering(Watched))
    _checked(twins, rows())
    assert twins.reasons() == ["unsupported_output"]


def test_a_class_of_an_entry_that_cannot_be_rebuilt_is_refused() -> None:
    from rekindle.reasons import Bypass
    from rekindle.results.rebuilding import Structure

    assert type(Structure({"object": [__name__, "Memory"], "items": []}).rebuild([], [], [])) is Memory
    for name in ([__name__, "Watched"], ["module_support", "Mlp"], ["builtins", "int"], ["builtins", "type"], [__name__, "rows"]):
        with pytest.raises(Bypass, match="unsupported_output"):
            Structure({"object": name, "items": []}).rebuild([], [], [])


def test_the_default_cache_of_a_language_model() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 40, "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 16}
    for exports, family in ((1, "Mistral"), (0, "Mistral")):
        torch.manual_seed(0)
        config = getattr(transformers, f"{family}Config")(**sizes, num_key_value_heads=1, pad_token_id=0)
        twins = Twins(getattr(transformers, f"{family}ForCausalLM")(config).train(), fallback="error")
        for batch, length in ((4, 8), (2, 11), (3, 5)):
            ids = torch.randint(0, 40, (batch, length))
            result = twins.call(input_ids=ids, labels=ids)
            assert result.past_key_values.get_seq_length() == length
        assert twins.status.exports == exports
        rekindle.cache.stats()


def test_verify_compares_what_objects_hold() -> None:
    wrapped = rekindle.Module(copy.deepcopy(Remembering()))
    found = rekindle.verify(wrapped, rows())
    assert found and "result['memory'].layers" not in str(found)
    assert any("['layers'][1]" in row.what for row in found.rows)


class Measured(Mlp):
    """Returns sizes, too."""

    def forward(self, x: torch.Tensor) -> dict[str, Any]:  # type: ignore[override]
        y = super().forward(x)
        return {"y": y, "rows": x.shape[0], "numbers": 2 * x.numel() + 1, "shape": y.shape}


def test_sizes_in_a_result_are_those_of_the_call() -> None:
    for exports in (1, 0):
        torch.manual_seed(0)
        twins = Twins(Measured(), fallback="error")
        for count in (5, 3, 8, 5):
            result = twins.call(rows(count, count))
            assert (result["rows"], result["numbers"], result["shape"]) == (count, 8 * count + 1, (count, 3))
        assert twins.status.exports == exports
        rekindle.cache.stats()
