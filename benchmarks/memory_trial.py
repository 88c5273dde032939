#!/usr/bin/env python3
"""Makes one measurement of `scripts/bench memory`, in a process of its own; prints one line of JSON.

memory_trial.py MODEL VARIANT DIR [--budget SHARE] [--density SHARE] [--leave-padding-out] [--checkpoint]
    VARIANT: eager, compile, or rekindle with the cache directory DIR
"""

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
import transformers
from trial import memory_mib

warnings.filterwarnings("ignore")
_SHAPE = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4}
_TEXT = _SHAPE | {"vocab_size": 2000}
TOKENS, BASE_TOKENS = (16, 256), (8, 128)
_STEPS = 6
_WARM_UP = 3  # steps of these that no time is taken of


def _vit() -> torch.nn.Module:
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(**_SHAPE, intermediate_size=1024, num_labels=100, problem_type="single_label_classification")
    )


def _resnet50() -> torch.nn.Module:
    from torchvision.models import resnet50

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = resnet50()

        def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.model(images), labels)

    return Classifier()


_MADE: dict[str, Callable[[], torch.nn.Module]] = {
    "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**_TEXT, intermediate_size=1024)),
    "bert-base": lambda: transformers.BertForMaskedLM(transformers.BertConfig()),
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=256, n_layer=6, n_head=4, vocab_size=2000, use_cache=False)
    ),
    "llama": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**_TEXT, intermediate_size=1024, num_key_value_heads=2, use_cache=False)
    ),
    "t5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            d_model=256, d_kv=64, d_ff=1024, num_layers=3, num_heads=4, vocab_size=2000, use_cache=False, decoder_start_token_id=0
        )
    ),
    "vit": _vit,
    "resnet50": _resnet50,
}
MODELS = tuple(_MADE)


def batch(model: str, density: float) -> dict[str, torch.Tensor]:
    """Returns random arguments of a call; `density`: the share of the tokens that are no padding."""
    if model == "vit":
        return {"pixel_values": torch.randn(16, 3, 224, 224), "labels": torch.randint(0, 100, (16,))}
    if model == "resnet50":
        return {"images": torch.randn(16, 3, 160, 160), "labels": torch.randint(0, 1000, (16,))}
    batch, length = BASE_TOKENS if model == "bert-base" else TOKENS
    tokens = torch.randint(0, 2000, (batch, length))
    if density == 1:
        return {"input_ids": tokens, "labels": tokens}
    spread = min(density, 1 - density)  # lengths of sequences differ as much as they can
    lengths = torch.linspace(density - spread, density + spread, batch).mul(length).round().clamp(min=1)
    mask = (torch.arange(length)[None] < lengths[:, None]).long()
    labels = tokens.masked_fill(mask == 0, -100)
    if model.startswith("bert"):  # as masked language models have it, some tokens are to be guessed
        labels = labels.masked_fill(torch.rand(tokens.shape) > 0.15, -100)
    return {"input_ids": tokens, "attention_mask": mask, "labels": labels}


def train(name: str, model: Any, density: float) -> float:
    """Takes a few steps of AdamW on random data; returns the seconds of one."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    seconds = []
    for _ in range(_STEPS):
        arguments = batch(name, density)
        start = time.perf_counter()
        result = model(**arguments)
        (result if isinstance(result, torch.Tensor) else result.loss).backward()
        del result
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[_WARM_UP:])


def _compiled(model: Any, budget: float | None) -> Any:
    import torch._functorch.config

    if budget is not None:
        torch._functorch.config.activation_memory_budget = budget
    return torch.compile(model)


def main() -> None:
    """Trains, and prints by how much the process grew from before the first step to its peak, and a step's time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("variant", choices=("eager", "rekindle", "compile"))
    parser.add_argument("directory")
    parser.add_argument("--budget", type=float, help="share of the activations without one")
    parser.add_argument("--density", type=float, default=1.0, help="share of the tokens that are no padding")
    parser.add_argument("--leave-padding-out", action="store_true", help="train with padding_elimination")
    parser.add_argument("--checkpoint", action="store_true", help="wrap each layer into torch.utils.checkpoint")
    options = parser.parse_args()
    torch.manual_seed(0)
    plain = model = _MADE[options.model]().train()
    if options.checkpoint:
        plain.gradient_checkpointing_enable()
        with torch.no_grad():  # a first call changes classes of transformers
            plain(**{name: tensor[:1] for name, tensor in batch(options.model, options.density).items()})
    found: dict[str, Any] = {"source": options.variant}
    if options.variant == "compile":
        model = _compiled(plain, options.budget)
    elif options.variant == "rekindle":
        import rekindle

        chosen = rekindle.Options(
            cache_dir=options.directory,
            fallback="error",
            log="error",
            memory_budget=options.budget,
            padding_elimination=options.leave_padding_out,
        )
        model = rekindle.Module(plain, chosen)
    before = memory_mib("VmRSS")
    found["step"] = train(options.model, model, options.density)
    found["peak_mib"] = memory_mib("VmHWM") - before
    if options.variant == "rekindle":
        found["source"] = rekindle.status(model).source
        account = rekindle.memory(model, **batch(options.model, options.density))
        found["activations"] = account.activations
        if account.budget is not None:
            found |= {"budget": account.budget.bytes, "without": account.budget.without, "again": account.budget.share}
    print(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
