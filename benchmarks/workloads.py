"""Defines the training jobs that the demo and the benchmark run, by name: a model with random weights, its batches, its loss."""

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

# Behind this directory, whose files have names of theirs.
sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))

import text
import torch
from gpt import GPT, GPTConfig
from torch import Tensor, nn
from torch.nn import functional as F

_CLASSES = 1000  # as of ImageNet


@dataclass(frozen=True)
class Workload:
    """Says how to make a model, what to feed it and where its loss is."""

    about: str  # the model and the batch, for a reader
    make_model: Callable[[float], nn.Module]  # takes the dropout ratio
    batches: Callable[[int], Iterator[dict[str, Tensor]]]  # a seed -> an endless stream of arguments for the model
    loss: Callable[[object], Tensor]  # the model's output -> the scalar to differentiate
    learning_rate: float = 1e-4
    library: tuple[str, str] | None = None  # the package that the model is from, and the name that is imported from it

    def prepare(self) -> None:
        """Imports what the model's library needs, so that the clock of its construction does not see that."""
        if self.library is not None:
            package, name = self.library
            getattr(importlib.import_module(package), name)


class NextByte(nn.Module):
    """Predicts a byte from the bytes before it, by a perceptron."""

    def __init__(self, length: int, dropout: float, width: int = 1024) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(length, width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, 256),
        )

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Returns the mean cross entropy of target int64[batch] given x float32[batch, length]."""
        return F.cross_entropy(self.layers(x), target)


class Classifier(nn.Module):
    """Computes the loss of an image classifier inside of the module."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, images: Tensor, target: Tensor) -> Tensor:
        """Returns the mean cross entropy of target int64[batch] given images float32[batch, 3, height, width]."""
        return F.cross_entropy(self.layers(images), target)


def _text(batch: int, length: int, inputs: Callable[[Tensor, Tensor], dict[str, Tensor]]) -> Callable[[int], Iterator]:
    """Returns batches of real text, whose bytes serve as token ids; inputs: (tokens, targets) -> the model's arguments."""

    def batches(seed: int) -> Iterator[dict[str, Tensor]]:
        train_text, _ = text.split(text.load())
        return (inputs(*pair) for pair in text.Batches(train_text, batch, length, seed))

    return batches


def _noise(count: int) -> Callable[[int], Iterator[dict[str, Tensor]]]:
    """Returns batches of so many images of random numbers with random classes."""

    def batches(seed: int) -> Iterator[dict[str, Tensor]]:
        generator = torch.Generator().manual_seed(seed)
        while True:
            images = torch.randn(count, 3, 224, 224, generator=generator)
            yield {"images": images, "target": torch.randint(_CLASSES, (count,), generator=generator)}

    return batches


def _gpt2(layers: int) -> Callable[[float], nn.Module]:
    def make(dropout: float) -> nn.Module:
        from transformers import GPT2Config, GPT2LMHeadModel

        rates = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": 0.0}
        return GPT2LMHeadModel(GPT2Config(n_layer=layers, use_cache=False, **rates))

    return make


def _bert(dropout: float) -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig(hidden_dropout_prob=dropout, attention_probs_dropout_prob=0.0))


def _llama(dropout: float) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8, "num_key_value_heads": 4}
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=8, use_cache=False, **sizes))


def _t5(dropout: float) -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(T5Config(dropout_rate=dropout, use_cache=False, decoder_start_token_id=0))


def _vit(dropout: float) -> nn.Module:
    from torchvision.models import vit_b_16

    return Classifier(vit_b_16(dropout=dropout))


def _resnet50(dropout: float) -> nn.Module:
    from torchvision.models import resnet50

    return Classifier(resnet50())


def _mask_every_seventh(tokens: Tensor) -> dict[str, Tensor]:
    hidden = tokens.clone()
    hidden[:, ::7] = 103  # BERT's [MASK]
    labels = tokens.where(hidden != tokens, -100)
    return {"input_ids": hidden, "labels": labels}


def _as_labels(tokens: Tensor, targets: Tensor) -> dict[str, Tensor]:
    return {"input_ids": tokens, "labels": tokens}


WORKLOADS = {
    "gpt": Workload(
        "a GPT of 4 layers and width 256 (examples/gpt.py), 16 x 128 tokens",
        lambda dropout: GPT(GPTConfig(dropout=dropout)),
        _text(16, 128, lambda tokens, targets: {"tokens": tokens, "targets": targets}),
        lambda output: output,
        learning_rate=5e-4,
    ),
    "mlp": Workload(
        "a perceptron of 64, 1024, 1024 and 256 units, batch 256",
        lambda dropout: NextByte(length=64, dropout=dropout),
        _text(256, 64, lambda tokens, targets: {"x": tokens / 255.0, "target": targets[:, -1]}),
        lambda output: output,
        learning_rate=5e-4,
    ),
    "gpt2-4": Workload(
        "GPT-2 of 4 layers, 2 x 64 tokens",
        _gpt2(4),
        _text(2, 64, _as_labels),
        lambda output: output.loss,
        library=("transformers", "GPT2LMHeadModel"),
    ),
    "gpt2-12": Workload(
        "GPT-2 of 12 layers, 2 x 64 tokens",
        _gpt2(12),
        _text(2, 64, _as_labels),
        lambda output: output.loss,
        library=("transformers", "GPT2LMHeadModel"),
    ),
    "bert": Workload(
        "BERT-base, masked language modelling, 2 x 128 tokens",
        _bert,
        _text(2, 128, lambda tokens, targets: _mask_every_seventh(tokens)),
        lambda output: output.loss,
        library=("transformers", "BertForMaskedLM"),
    ),
    "llama": Workload(
        "a Llama of 8 layers and width 512, 2 x 128 tokens",
        _llama,
        _text(2, 128, _as_labels),
        lambda output: output.loss,
        library=("transformers", "LlamaForCausalLM"),
    ),
    "vit": Workload(
        "ViT-B/16, 4 images of 224 x 224",
        _vit,
        _noise(4),
        lambda output: output,
        library=("torchvision", "models"),
    ),
    "resnet50": Workload(
        "ResNet-50, 4 images of 224 x 224",
        _resnet50,
        _noise(4),
        lambda output: output,
        library=("torchvision", "models"),
    ),
    "t5": Workload(
        "T5-small, 4 x 64 tokens",
        _t5,
        _text(4, 64, _as_labels),
        lambda output: output.loss,
        library=("transformers", "T5ForConditionalGeneration"),
    ),
}


def _larger(name: str, about: str, batches: Callable[[int], Iterator[dict[str, Tensor]]]) -> None:
    """Adds a workload of the same model with batches for a GPU, as `NAME-gpu`."""
    WORKLOADS[f"{name}-gpu"] = replace(
        WORKLOADS[name], about=f"{WORKLOADS[name].about.rpartition(', ')[0]}, {about}", batches=batches
    )


_larger("gpt2-12", "8 x 512 tokens", _text(8, 512, _as_labels))
_larger("bert", "32 x 128 tokens", _text(32, 128, lambda tokens, targets: _mask_every_seventh(tokens)))
_larger("llama", "16 x 256 tokens", _text(16, 256, _as_labels))
_larger("t5", "32 x 128 tokens", _text(32, 128, _as_labels))
_larger("vit", "32 images of 224 x 224", _noise(32))
_larger("resnet50", "32 images of 224 x 224", _noise(32))
