"""Models of transformers are recorded without a bypass; volatile fields of their configs do not count."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from fingerprint_support import Recorder, verify
from rekindle.key import fingerprint
from rekindle.key.values.objects import VOLATILE_FIELDS

transformers = pytest.importorskip("transformers")

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


def gpt2(**fields: Any) -> Any:
    config = transformers.GPT2Config(
        n_layer=2,
        n_embd=32,
        n_head=2,
        vocab_size=64,
        n_positions=32,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    for name, value in fields.items():
        setattr(config, name, value)
    return transformers.GPT2LMHeadModel(config)


def llama(**fields: Any) -> Any:
    config = transformers.LlamaConfig(**SIZES, intermediate_size=64, use_cache=False, **fields)
    return transformers.LlamaForCausalLM(config)


def bert(**fields: Any) -> Any:
    return transformers.BertForMaskedLM(transformers.BertConfig(**SIZES, intermediate_size=64, **fields))


def describe(model: Any) -> fingerprint.Fingerprint:
    ids = torch.zeros(2, 8, dtype=torch.int64)
    return fingerprint.describe(model, (ids,), {"labels": ids}, {})


@pytest.mark.parametrize("make", [gpt2, llama, bert])
@pytest.mark.parametrize("training", [True, False])
def test_a_forward_is_recorded_and_verifies(make: Any, training: bool) -> None:
    model = make().train(training)
    ids = torch.zeros(2, 8, dtype=torch.int64)
    before = describe(model)
    with Recorder(before) as recorder:
        model(ids, labels=ids)
    assert verify(recorder.observations, before.places) is None
    assert before.difference(describe(model)) is None
    assert before.digest() == describe(make().train(training)).digest()


@pytest.mark.parametrize(
    "fields",
    [{"activation_function": "relu"}, {"attn_pdrop": 0.2}, {"scale_attn_weights": False}, {"_other": 1}],
)
def test_every_other_field_of_a_config_counts(fields: dict[str, Any]) -> None:
    assert describe(gpt2()).difference(describe(gpt2(**fields))) is not None


@pytest.mark.parametrize("name", sorted(VOLATILE_FIELDS["transformers", "PreTrainedConfig"]))
def test_volatile_fields_of_a_config_do_not_count(name: str) -> None:
    assert describe(gpt2()).difference(describe(gpt2(**{name: "elsewhere"}))) is None


def test_the_attention_implementation_counts() -> None:
    eager = gpt2()
    eager.set_attn_implementation("eager")
    assert "attn_implementation" in (describe(gpt2()).difference(describe(eager)) or "")


def test_tied_and_untied_heads_differ() -> None:
    model = gpt2()
    untied = copy.deepcopy(model)
    untied.lm_head.weight = torch.nn.Parameter(untied.lm_head.weight.detach().clone())
    assert describe(model).difference(describe(untied)) is not None


def test_a_patched_attention_function_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = gpt2()
    ids = torch.zeros(2, 8, dtype=torch.int64)
    with Recorder(describe(model)) as recorder:
        model(ids, labels=ids)
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "sdpa", lambda *args, **kwargs: None)
    assert "ALL_ATTENTION_FUNCTIONS" in (verify(recorder.observations) or "")
