"""The sizes an entry is for: each dimension of each tensor argument is one size, or a symbol that stands for any from 2 on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_SMALLEST = 2  # broadcasting, squeezing and contiguity treat sizes 0 and 1 otherwise: these are never a symbol

Dims = tuple[int | str, ...]


@dataclass(frozen=True)
class Shapes:
    """For each argument, in flattening order, its dimensions: a size, or the name of a symbol ("s0").

    Dimensions with one symbol have one size. Different symbols may have the same.
    """

    dims: tuple[Dims, ...]

    @staticmethod
    def of(arguments: Sequence[torch.Tensor], dynamic: bool = False) -> Shapes:
        """Those of a call. If `dynamic`, sizes from 2 on of contiguous tensors are symbols, one for each size."""
        names: dict[int, str] = {}

        def dim(size: int) -> int | str:
            return names.setdefault(size, f"s{len(names)}") if size >= _SMALLEST else size

        return Shapes(tuple(tuple(map(dim, x.shape)) if dynamic and is_open(x) else tuple(x.shape) for x in arguments))

    @staticmethod
    def read(stored: Any) -> Shapes:
        """From JSON; see stored()."""
        return Shapes(tuple(map(tuple, stored)))

    @staticmethod
    def observed(recorded: Iterable[Sequence[Any]]) -> Shapes:
        """Those among the observations of an entry. Raises ValueError for what is no shape."""
        texts = [text for kind, _, _, text in recorded if kind == "shape"]
        if not all(isinstance(text, str) and text[:1] == "[" and text[-1:] == "]" for text in texts):
            raise ValueError("an observation of kind 'shape' is no list of dimensions")
        parts = [[part for part in text[1:-1].split(", ") if part] for text in texts]
        return Shapes(tuple(tuple(part if part[0] == "s" else int(part) for part in dims) for dims in parts))

    def observations(self) -> list[list[str | None]]:
        """As what has to hold for an entry to be right."""
        return [["shape", f"argument {i}", "", self.text(i)] for i in range(len(self.dims))]

    def stored(self) -> list[list[int | str]]:
        """As JSON."""
        return [list(dims) for dims in self.dims]

    @property
    def symbols(self) -> list[str]:
        """In order of first appearance."""
        return list(dict.fromkeys(dim for dims in self.dims for dim in dims if isinstance(dim, str)))

    def bind(self, sizes: Sequence[Sequence[int]]) -> dict[str, int] | None:
        """The symbols' sizes in a call whose arguments have `sizes`; None for a call of other shapes."""
        found: dict[str, int] = {}
        if len(sizes) != len(self.dims):
            return None
        for dims, given in zip(self.dims, sizes, strict=True):
            if len(dims) != len(given):
                return None
            for dim, size in zip(dims, given, strict=True):
                if isinstance(dim, int):
                    if dim != size:
                        return None
                elif size < _SMALLEST or found.setdefault(dim, size) != size:
                    return None
        return found

    def differing(self, sizes: Sequence[Sequence[int]]) -> list[str]:
        """For each argument its text or, where these sizes are not for it, theirs."""
        bound: dict[str, int] = {}
        texts = []
        for i, (dims, given) in enumerate(zip(self.dims, sizes, strict=False)):
            alone = Shapes((dims,)).bind([given])
            same = alone is not None and all(bound.setdefault(name, size) == size for name, size in alone.items())
            texts.append(self.text(i) if same else str(list(given)))
        return texts

    def fixed(self, sizes: Mapping[str, int]) -> Shapes:
        """The same with sizes in the place of some symbols."""
        return Shapes(tuple(tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in dims) for dims in self.dims))

    def like(self, given: Sequence[torch.Tensor | None]) -> list[list[int] | None]:
        """The sizes of all arguments of a call, as far as those that are given tell."""
        known = {
            dim: size
            for dims, tensor in zip(self.dims, given, strict=True) if tensor is not None
            for dim, size in zip(dims, tensor.shape, strict=True)
        }  # fmt: skip
        sizes = ([known.get(dim, -1) if isinstance(dim, str) else dim for dim in dims] for dims in self.dims)
        return [each if -1 not in each else None for each in sizes]

    def text(self, position: int) -> str:
        """Of one argument: `[s0, 16]`."""
        return f"[{', '.join(map(str, self.dims[position]))}]"


def is_open(tensor: torch.Tensor) -> bool:
    """Whether the tensor's sizes are all there is to its layout, so that they may be symbols."""
    return tensor.layout is torch.strided and tensor.is_contiguous()


def sizes_of(arguments: Sequence[torch.Tensor]) -> list[list[int]]:
    """As JSON."""
    return [list(tensor.shape) for tensor in arguments]
