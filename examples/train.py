"""Trains the small GPT on the sources of Python's standard library.

    python examples/train.py                 # plain PyTorch
    python examples/train.py --rekindle      # the same script; the second start needs no export

The one line that differs is `model = rekindle.Module(model)`.
"""

import argparse
import time

import text
import torch
from gpt import GPT, GPTConfig


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rekindle", action="store_true", help="wrap the model with Rekindle")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16, help="sequences per step")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validate-every", type=int, default=50, metavar="STEPS")
    return parser.parse_args()


@torch.no_grad()
def validate(model: torch.nn.Module, batches: text.Batches, count: int = 8) -> float:
    """Mean loss over `count` batches in eval mode."""
    model.eval()
    loss = sum(model(*next(batches)).item() for _ in range(count)) / count
    model.train()
    return loss


def main() -> None:
    """Trains, and prints the losses."""
    arguments = parse_arguments()
    torch.manual_seed(arguments.seed)

    config = GPTConfig(dropout=arguments.dropout)
    train_text, validation_text = text.split(text.load())
    batches = text.Batches(train_text, arguments.batch, config.context, arguments.seed)

    start = time.perf_counter()
    model = GPT(config)
    if arguments.rekindle:
        import rekindle

        model = rekindle.Module(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.learning_rate)

    for step, (tokens, targets) in zip(range(1, arguments.steps + 1), batches, strict=False):
        loss = model(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 1:
            print(f"first step after {time.perf_counter() - start:.2f} s")
        if step % 10 == 0:
            print(f"step {step:4}  loss {loss.item():.4f}")
        if step % arguments.validate_every == 0:
            held_out = text.Batches(validation_text, arguments.batch, config.context)
            print(f"step {step:4}  validation loss {validate(model, held_out):.4f}")

    if arguments.rekindle:
        print(rekindle.status(model))


if __name__ == "__main__":
    main()
