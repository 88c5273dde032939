"""Real text that every machine has: the sources of Python's standard library, read as bytes."""

import sysconfig
from pathlib import Path

import torch
from torch import Tensor

_LIMIT = 4 << 20  # bytes: enough never to repeat in a demo, read in some ten milliseconds


def load(limit: int = _LIMIT) -> Tensor:
    """The first `limit` bytes of the library's top-level modules in name order, as uint8[n]."""
    library = Path(sysconfig.get_path("stdlib"))
    text = bytearray()
    for source in sorted(library.glob("*.py")):
        text += source.read_bytes()
        if len(text) >= limit:
            break
    if len(text) < 1 << 20:
        raise FileNotFoundError(f"only {len(text)} bytes of Python sources in {library}: install the full standard library")
    return torch.frombuffer(text[:limit], dtype=torch.uint8)


def split(text: Tensor, validation: float = 0.1) -> tuple[Tensor, Tensor]:
    """Cuts the text into a training part and, from its end, a validation part."""
    cut = int(len(text) * (1 - validation))
    return text[:cut], text[cut:]


class Batches:
    """An endless, seeded iterator over (tokens, targets), each int64[batch, length].

    It draws from its own generator, so the model's dropout never shifts the data.
    """

    def __init__(self, text: Tensor, batch: int, length: int, seed: int = 0) -> None:
        self._windows = text.unfold(0, length + 1, 1)  # a view: every window of length + 1 bytes
        self._batch = batch
        self._generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(self._windows), (self._batch,), generator=self._generator)
        window = self._windows[starts].long()
        return window[:, :-1].contiguous(), window[:, 1:].contiguous()
