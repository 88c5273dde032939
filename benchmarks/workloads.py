"""Defines the training jobs that the demo and the benchmark run, by name; each builds a real model on real text."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import text
from gpt import GPT, GPTConfig
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Workload:
    """Says how to make a model, what to feed it and where its loss is."""

    make_model: Callable[[float], nn.Module]  # takes the dropout ratio
    batch: int  # sequences per step
    length: int  # tokens per sequence
    inputs: Callable[[Tensor, Tensor], dict[str, Tensor]]  # (tokens, targets) -> the model's arguments
    loss: Callable[[object], Tensor]  # the model's output -> the scalar to differentiate
    learning_rate: float = 5e-4
    prepare: Callable[[], None] | None = None  # imports what the model's library needs, before any clock starts

    def batches(self, seed: int) -> Iterator[dict[str, Tensor]]:
        """Returns an endless, seeded stream of arguments for the model."""
        train_text, _ = text.split(text.load())
        return (self.inputs(*pair) for pair in text.Batches(train_text, self.batch, self.length, seed))


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


def _gpt2(dropout: float) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=4, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=0.0, use_cache=False))


def _encoder(dropout: float) -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(
        BertConfig(
            hidden_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=1024,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=0.0,
        )
    )


def _mask_every_seventh(tokens: Tensor) -> dict[str, Tensor]:
    hidden = tokens.clone()
    hidden[:, ::7] = 103  # BERT's [MASK]
    labels = tokens.where(hidden != tokens, -100)
    return {"input_ids": hidden, "labels": labels}


def _import_transformers() -> None:
    from transformers import BertForMaskedLM, GPT2LMHeadModel  # noqa: F401


WORKLOADS = {
    # Our own GPT, from examples/gpt.py.
    "gpt": Workload(
        make_model=lambda dropout: GPT(GPTConfig(dropout=dropout)),
        batch=16,
        length=128,
        inputs=lambda tokens, targets: {"tokens": tokens, "targets": targets},
        loss=lambda output: output,
    ),
    # transformers' GPT-2 at full width and vocabulary, four layers, random weights; bytes serve as token ids.
    "gpt2": Workload(
        make_model=_gpt2,
        batch=2,
        length=64,
        inputs=lambda tokens, targets: {"input_ids": tokens, "labels": tokens},
        loss=lambda output: output.loss,
        learning_rate=1e-4,
        prepare=_import_transformers,
    ),
    "mlp": Workload(
        make_model=lambda dropout: NextByte(length=64, dropout=dropout),
        batch=256,
        length=64,
        inputs=lambda tokens, targets: {"x": tokens / 255.0, "target": targets[:, -1]},
        loss=lambda output: output,
    ),
    # transformers' BERT for masked language modelling, in the size known as BERT-mini, random weights.
    "encoder": Workload(
        make_model=_encoder,
        batch=4,
        length=128,
        inputs=lambda tokens, targets: _mask_every_seventh(tokens),
        loss=lambda output: output.loss,
        prepare=_import_transformers,
    ),
}
