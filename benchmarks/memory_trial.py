#!/usr/bin/env python3
"""Makes one measurement of `scripts/bench memory`, in a process of its own; prints one line of JSON.

memory_trial.py MODEL VARIANT DIR      variant: eager, or rekindle with the cache directory DIR
"""

import argparse
import json
import os
import sys
import warnings
from typing import Any

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
import transformers
from trial import memory_mib

warnings.filterwarnings("ignore")
_SHAPE = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4, "vocab_size": 2000}
MODELS = {
    "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**_SHAPE, intermediate_size=1024)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=256, n_layer=6, n_head=4, vocab_size=2000, use_cache=False)
    ),
    "llama": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**_SHAPE, intermediate_size=1024, num_key_value_heads=2, use_cache=False)
    ),
    "t5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            d_model=256, d_kv=64, d_ff=1024, num_layers=3, num_heads=4, vocab_size=2000, use_cache=False, decoder_start_token_id=0
        )
    ),
}
TOKENS = (16, 256)
_STEPS = 3


def train(model: Any) -> None:
    """Takes a few steps of AdamW on random tokens."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(_STEPS):
        tokens = torch.randint(0, 2000, TOKENS)
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main() -> None:
    """Trains, and prints by how much the process grew from before the first step to its peak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("variant", choices=("eager", "rekindle"))
    parser.add_argument("directory")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = MODELS[options.model]().train()
    source = "eager"
    if options.variant == "rekindle":
        import rekindle

        model = rekindle.Module(model, rekindle.Options(cache_dir=options.directory, fallback="error", log="error"))
    before = memory_mib("VmRSS")
    train(model)
    if options.variant == "rekindle":
        source = rekindle.status(model).source
    print(json.dumps({"peak_mib": memory_mib("VmHWM") - before, "source": source}))


if __name__ == "__main__":
    sys.exit(main())
