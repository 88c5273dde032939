"""Says what a training step of the small GPT takes of memory, and draws its arena.

python examples/memory.py               # a table and a picture in characters
python examples/memory.py --png FILE    # a picture in colours, too
python examples/memory.py --plan FILE   # what is computed again, as a memory plan to edit, too
"""

import argparse

import rekindle
import torch
from gpt import GPT, GPTConfig


def main() -> None:
    """Takes one step, so that the optimizer has its state, and prints the account of the next one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--png", metavar="FILE", help="write the picture here (needs matplotlib)")
    parser.add_argument("--plan", metavar="FILE", help="write a memory plan here")
    parser.add_argument("--batch", type=int, default=16, help="sequences per step")
    options = parser.parse_args()
    config = GPTConfig()
    model = rekindle.Module(GPT(config))
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(config.vocab, (2, options.batch, config.context))
    model(*tokens).backward()
    optimizer.step()
    optimizer.zero_grad()
    account = rekindle.memory(model, *tokens, optimizer=optimizer)
    print(account, account.text_picture(), sep="\n\n")
    if options.png:
        account.save(options.png)
    if options.plan:
        account.save_plan(options.plan)


if __name__ == "__main__":
    main()
