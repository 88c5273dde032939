"""PyTorch's own module database, and small models of known families, as suites. Everything in training mode."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import rekindle
import torch
from conformance_trial import Outcome, try_call
from torch import nn


def run_modules(pattern: str, samples: int, options: rekindle.Options) -> Iterator[Outcome]:
    """One outcome a set of inputs, named `module#number`; the first `samples` of each module of torch.nn."""
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        if pattern not in info.name or torch.float32 not in info.dtypes:
            continue
        torch.manual_seed(0)
        found = info.module_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=True, training=True
        )
        for i, given in enumerate(itertools.islice(found, samples)):
            made, call = given.constructor_input, given.forward_input
            module = info.module_cls(*made.args, **made.kwargs)
            yield try_call(f"{info.name}#{i}", module, call.args, call.kwargs, options)


class Tagger(nn.Module):
    """Embedding, bidirectional LSTM, projection, loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = (
            nn.Embedding(50, 16),
            nn.LSTM(16, 12, 2, batch_first=True, bidirectional=True, dropout=0.1),
        )
        self.out, self.loss = nn.Linear(24, 7), nn.CrossEntropyLoss()

    def forward(self, tokens: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        scores = self.out(self.lstm(self.embed(tokens))[0])
        return self.loss(scores.flatten(0, 1), tags.flatten())


def _tokens(high: int = 50) -> torch.Tensor:
    return torch.randint(1, high, (2, 10))


def _language(
    name: str, config: str, **sizes: Any
) -> tuple[Callable[[], nn.Module], Callable[[], dict[str, Any]]]:
    def make() -> nn.Module:
        import transformers

        return getattr(transformers, name)(getattr(transformers, config)(vocab_size=50, **sizes))

    def inputs() -> dict[str, Any]:
        tokens = _tokens()
        return {"input_ids": tokens, "labels": tokens}

    return make, inputs


def _vision(
    name: str, config: str, **sizes: Any
) -> tuple[Callable[[], nn.Module], Callable[[], dict[str, Any]]]:
    def make() -> nn.Module:
        import transformers

        return getattr(transformers, name)(
            getattr(transformers, config)(num_labels=4, problem_type="single_label_classification", **sizes)
        )

    return make, lambda: {"pixel_values": torch.randn(2, 3, 64, 64), "labels": torch.randint(0, 4, (2,))}


_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
_MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, Any]]]] = {
    "lstm_tagger": (Tagger, lambda: {"tokens": _tokens(), "tags": torch.randint(0, 7, (2, 10))}),
    "bert": _language("BertForMaskedLM", "BertConfig", **_SMALL),
    "gpt2": _language("GPT2LMHeadModel", "GPT2Config", n_embd=32, n_layer=2, n_head=2, use_cache=False),
    "llama": _language("LlamaForCausalLM", "LlamaConfig", **_SMALL, use_cache=False),
    "mistral": _language("MistralForCausalLM", "MistralConfig", **_SMALL, num_key_value_heads=1, use_cache=False),
    "t5": _language(
        "T5ForConditionalGeneration", "T5Config", d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2,
        decoder_start_token_id=0, use_cache=False,
    ),
    "vit": _vision("ViTForImageClassification", "ViTConfig", **_SMALL, image_size=64),
    "resnet": _vision("ResNetForImageClassification", "ResNetConfig", embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2]),
    "convnext": _vision("ConvNextForImageClassification", "ConvNextConfig", hidden_sizes=[8, 16], depths=[2, 2], num_stages=2),
    "efficientnet": _vision("EfficientNetForImageClassification", "EfficientNetConfig", width_coefficient=0.25, hidden_dim=320),
    "mobilenet": _vision("MobileNetV2ForImageClassification", "MobileNetV2Config", depth_multiplier=0.35),
    "segformer": _vision("SegformerForImageClassification", "SegformerConfig", hidden_sizes=[8, 8, 16, 16]),
}  # fmt: skip


def run_models(pattern: str, samples: int, options: rekindle.Options) -> Iterator[Outcome]:
    """One outcome a model; `samples` is of no use here, for each call is made twice anyway."""
    for name, (make, inputs) in _MODELS.items():
        if pattern in name:
            torch.manual_seed(0)
            yield try_call(name, make().train(), (), inputs(), options)
