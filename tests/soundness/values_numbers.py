"""Makes what a call is given: numbers of a kind, ordinary or at the edges of a dtype, in a layout, and cotangents.

An example: `numbers("spike of inf", x, generator)` is x with one element that is inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

Fill = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def _some(x: torch.Tensor, generator: torch.Generator, values: list[float], share: float) -> torch.Tensor:
    """Returns x with a share of its elements replaced, each by one of the values."""
    chosen = torch.tensor(values, dtype=torch.float64)[torch.randint(len(values), x.shape, generator=generator)]
    return torch.where(torch.rand(x.shape, generator=generator) < share, chosen.to(x.dtype), x)


def _replaced(*values: float, share: float = 0.3) -> Fill:
    return lambda x, generator: _some(x, generator, [*values], share)


def _spike(value: float) -> Fill:
    def fill(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        found = x.clone()
        if x.numel():
            found.view(-1)[int(torch.randint(x.numel(), (), generator=generator))] = value
        return found

    return fill


def _row(value: float) -> Fill:
    def fill(x: torch.Tensor, _: torch.Generator) -> torch.Tensor:
        found = x.clone()
        (found[:1] if x.dim() > 1 else found).fill_(value)
        return found

    return fill


def _limits(*names: str, share: float = 0.3) -> Fill:
    """Returns a fill with numbers that depend on the dtype: "max", "min", "tiny", "subnormal", "root" of the largest."""

    def fill(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        info = torch.finfo(x.dtype)
        known = {"max": info.max, "min": info.min, "tiny": info.tiny, "subnormal": info.tiny * info.eps * 3}
        known |= {"root": math.sqrt(info.max) * 1.5, "inf": math.inf, "-inf": -math.inf, "nan": math.nan, "zero": 0.0, "-0": -0.0}
        return _some(x, generator, [known[name] for name in names], share)

    return fill


def _scaled(least: float, most: float) -> Fill:
    """Returns a fill that multiplies by a power of ten between two shares of the dtype's largest exponent."""

    def fill(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        share = least + (most - least) * float(torch.rand((), generator=generator))
        return torch.mul(x, 10.0 ** (share * math.log10(torch.finfo(x.dtype).max)))

    return fill


NUMBERS: dict[str, Fill] = {
    "ordinary": lambda x, _: x,
    "spike of inf": _spike(math.inf),
    "spike of -inf": _spike(-math.inf),
    "spike of nan": _spike(math.nan),
    "large spike": _spike(6e4),
    "infinities": _replaced(math.inf, -math.inf),
    "all inf": _replaced(math.inf, share=2.0),
    "all nan": _replaced(math.nan, share=2.0),
    "zeros": _replaced(0.0, -0.0, share=2.0),
    "some zeros": _replaced(0.0, -0.0),
    "limits": _limits("max", "min"),
    "all largest": _limits("max", share=2.0),
    "tiny": _limits("tiny"),
    "subnormal": _limits("subnormal"),
    "all subnormal": _limits("subnormal", share=2.0),
    "roots of the largest": _limits("root"),
    "all kinds": _limits("max", "min", "tiny", "subnormal", "root", "inf", "-inf", "nan", "zero", "-0", share=0.8),
    "huge": _scaled(0.5, 0.99),
    "large": _scaled(0.05, 0.5),
    "minute": _scaled(-0.99, -0.5),
    "small": _scaled(-0.5, -0.05),
    "hundredfold": lambda x, _: x * 100,
    "negative": lambda x, _: -x.abs(),
    "constant": lambda x, _: torch.full_like(x, float(x.flatten()[0])) if x.numel() else x,
    "ones": _replaced(1.0, share=2.0),
    "row of -inf": _row(-math.inf),
    "row of inf": _row(math.inf),
    "row of nan": _row(math.nan),
    "row of zeros": _row(0.0),
}


def _integers(*values: Callable[[torch.iinfo], int], share: float) -> Fill:
    def fill(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        known = torch.tensor([value(torch.iinfo(x.dtype)) for value in values], dtype=x.dtype)
        chosen = known[torch.randint(len(values), x.shape, generator=generator)]
        return torch.where(torch.rand(x.shape, generator=generator) < share, chosen, x)

    return fill


INTEGERS: dict[str, Fill] = {
    "ordinary": lambda x, _: x,
    "limits": _integers(lambda info: info.max, lambda info: info.min, share=0.5),
    "all largest": _integers(lambda info: info.max, share=2.0),
    "all smallest": _integers(lambda info: info.min, share=2.0),
    "zeros": _integers(lambda _: 0, share=2.0),
    "near the limits": _integers(lambda info: info.max - 1, lambda info: info.min + 1, lambda info: info.max // 2 + 1, share=0.7),
    "negative": lambda x, _: -x,
}
MASKS: dict[str, Fill] = {
    "ordinary": lambda x, _: x,
    "none": lambda x, _: torch.zeros_like(x),
    "all": lambda x, _: torch.ones_like(x),
    "one": lambda x, generator: _spike(True)(torch.zeros_like(x), generator),
    "all of a row": _row(True),
    "none of a row": _row(False),
}


def _gapped(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, x], -1)[..., 0]


def _behind(x: torch.Tensor) -> torch.Tensor:
    """Returns x in memory that begins one element later."""
    return torch.cat([x.reshape(-1)[:1], x.reshape(-1)])[1:].view(x.shape) if x.numel() else x


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dense": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() > 1 else x,
    "gapped": lambda x: _gapped(x) if x.dim() else x,
    "behind": _behind,
    "expanded": lambda x: x[:1].expand(x.shape) if x.dim() > 1 else x,
    "rows apart": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]] if x.dim() > 1 else x,
}
# Of what flows back: numbers of these kinds.
COTANGENTS = (
    "ordinary", "ones", "zeros", "huge", "large", "minute", "spike of inf", "spike of nan", "infinities", "limits",
    "row of zeros", "some zeros", "subnormal",
)  # fmt: skip


def numbers(kind: str, x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Returns floating-point numbers like x, which is dense, of a kind."""
    return NUMBERS[kind](x, generator).to(x.dtype)
