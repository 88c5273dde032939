"""Describes the sizes an entry is for: each dimension of a tensor argument is one size, or a symbol for any size from 2 on.

Sizes of a call are lists of ints, one a tensor; the strides of one that is not contiguous are a list at the end of its own. How
such a tensor is arranged (results/layouts.py) is in the key. Its strides matter where all sizes are fixed.

An example: tokens and their mask, both of shape [4, 16], give the dims ((s0, s1), (s0, s1)). A call with sizes [[8, 32], [8, 32]]
binds s0 to 8 and s1 to 32; one with [[8, 32], [8, 31]] or [[1, 16], [1, 16]] is of other shapes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rekindle.results.layouts import arrangement
from rekindle.sizes import symbols

_SMALLEST = 2  # broadcasting, squeezing and contiguity treat sizes 0 and 1 otherwise: these are never a symbol

Dims = tuple[int | str, ...]
Place = tuple[int, int]  # argument, dimension
OpenDims = tuple[int | Place, ...]  # of a tensor: a size, or the place of a dimension that is open
_SHAPE = re.compile(r"\[([^\[\]]*)\](?: strides \[([^\[\]]*)\])?")  # of an observation


@dataclass(frozen=True)
class Shapes:
    """Holds the dimensions of each argument, in flattening order.

    Dimensions with one symbol have one size. Different symbols may have the same.
    """

    dims: tuple[Dims, ...]  # of each argument: a size, or the name of a symbol ("s0")
    strides: tuple[tuple[int, ...] | None, ...]  # those that an argument has to have; None for any

    @staticmethod
    def of(arguments: Sequence[torch.Tensor], dynamic: bool = False, earlier: Sequence[Sequence[Sequence[Any]]] = ()) -> Shapes:
        """Returns the shapes of a call.

        dynamic: whether sizes from 2 on are symbols, where the tensor has an arrangement. Dimensions that are equal, and in
            different arguments at corresponding places, are one symbol (sizes/symbols.py)
        earlier: the sizes of other calls; dimensions that differed there are not one symbol
        """
        opened = [dynamic and is_open(x) for x in arguments]
        places = [
            (i, axis) for i, x in enumerate(arguments) if opened[i] for axis, size in enumerate(x.shape) if size >= _SMALLEST
        ]
        names = symbols.named([tuple(x.shape) for x in arguments], places, earlier)
        dims = tuple(tuple(names.get((i, axis), size) for axis, size in enumerate(x.shape)) for i, x in enumerate(arguments))
        return Shapes(dims, tuple(None if names or is_contiguous(x) else x.stride() for x in arguments))

    @staticmethod
    def observed(recorded: Iterable[Sequence[Any]]) -> Shapes:
        """Reads the shapes among the observations of an entry. Raises ValueError for what is no shape."""
        texts = [text for kind, _, _, text in recorded if kind == "shape"]
        found = [_SHAPE.fullmatch(text) if isinstance(text, str) else None for text in texts]
        if not all(found):
            raise ValueError("an observation of kind 'shape' is no list of dimensions")
        dims = (tuple(part if part[0] == "s" else int(part) for part in _parts(match[1])) for match in found if match)
        strides = (None if match[2] is None else tuple(map(int, _parts(match[2]))) for match in found if match)
        return Shapes(tuple(dims), tuple(strides))

    def observations(self) -> list[list[str | None]]:
        """Returns the shapes as observations, which have to hold for an entry to be right."""
        return [["shape", f"argument {i}", "", self.text(i)] for i in range(len(self.dims))]

    @property
    def symbols(self) -> list[str]:
        """Returns the names of the symbols in order of first appearance."""
        return list(dict.fromkeys(dim for dims in self.dims for dim in dims if isinstance(dim, str)))

    def bind(self, sizes: Sequence[Sequence[Any]]) -> dict[str, int] | None:
        """Returns the symbols' sizes in a call whose arguments have `sizes`; None for a call of other shapes."""
        found: dict[str, int] = {}
        if len(sizes) != len(self.dims):
            return None
        for dims, wanted, arranged in zip(self.dims, self.strides, sizes, strict=True):
            given, strides = (arranged[:-1], arranged[-1]) if arranged and isinstance(arranged[-1], list) else (arranged, None)
            if len(dims) != len(given) or (wanted is not None and strides != list(wanted)):
                return None
            for dim, size in zip(dims, given, strict=True):
                if isinstance(dim, int):
                    if dim != size:
                        return None
                elif size < _SMALLEST or found.setdefault(dim, size) != size:
                    return None
        return found

    def differing(self, sizes: Sequence[Sequence[Any]]) -> list[str]:
        """Returns for each argument its text or, where these sizes are not for it, theirs."""
        bound: dict[str, int] = {}
        texts = []
        for i, (dims, strides, given) in enumerate(zip(self.dims, self.strides, sizes, strict=False)):
            alone = Shapes((dims,), (strides,)).bind([given])
            same = alone is not None and all(bound.setdefault(name, size) == size for name, size in alone.items())
            texts.append(self.text(i) if same else str(list(given)))
        return texts

    def fixed(self, sizes: Mapping[str, int]) -> Shapes:
        """Returns the shapes with sizes in the place of some symbols."""
        dims = tuple(tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in dims) for dims in self.dims)
        return Shapes(dims, self.strides)

    def places(self, symbol: str) -> list[Place]:
        """Returns the dimensions that a symbol stands for."""
        return [(i, axis) for i, dims in enumerate(self.dims) for axis, dim in enumerate(dims) if dim == symbol]

    def open_dims(self) -> list[OpenDims]:
        """Returns the dimensions of each argument: a size, or the place of one that has a symbol."""
        each = enumerate(self.dims)
        return [tuple((i, axis) if isinstance(dim, str) else dim for axis, dim in enumerate(dims)) for i, dims in each]

    def parted(self, places: Collection[Place]) -> tuple[str, Shapes]:
        """Gives some dimensions a symbol of their own; returns the symbol and the shapes with it."""
        name = f"s{max((int(symbol[1:]) for symbol in self.symbols), default=-1) + 1}"
        dims = (tuple(name if (i, axis) in places else dim for axis, dim in enumerate(dims)) for i, dims in enumerate(self.dims))
        return name, Shapes(tuple(dims), self.strides)

    def coinciding(self, sizes: Mapping[str, int]) -> list[list[str]]:
        """Returns the groups of several symbols that have the same among these sizes."""
        groups: dict[int, list[str]] = {}
        for name in self.symbols:
            groups.setdefault(sizes[name], []).append(name)
        return [names for names in groups.values() if len(names) > 1]

    def merged(self, names: Iterable[str]) -> Shapes:
        """Returns the shapes with the first of some symbols in the place of all of them."""
        first, *others = names
        dims = tuple(tuple(first if dim in others else dim for dim in dims) for dims in self.dims)
        return Shapes(dims, self.strides)

    def like(self, given: Sequence[torch.Tensor | None]) -> list[list[int] | None]:
        """Returns the sizes of all arguments of a call, as far as those that are given tell; None for any other argument."""
        known = {
            dim: size
            for dims, tensor in zip(self.dims, given, strict=True) if tensor is not None
            for dim, size in zip(dims, tensor.shape, strict=True)
        }  # fmt: skip
        sizes = ([known.get(dim, -1) if isinstance(dim, str) else dim for dim in dims] for dims in self.dims)
        return [each if -1 not in each else None for each in sizes]

    def text(self, position: int) -> str:
        """Returns the text of one argument: `[s0, 16]`, or `[4, 16] strides [17, 1]`."""
        dims, strides = self.dims[position], self.strides[position]
        return f"[{', '.join(map(str, dims))}]" + ("" if strides is None else f" strides {list(strides)}")


def is_open(tensor: torch.Tensor) -> bool:
    """Tells whether sizes and arrangement are all there is to the tensor's layout, so that sizes may be symbols."""
    return tensor.layout is torch.strided and arrangement(tensor) is not None


def is_contiguous(tensor: torch.Tensor) -> bool:
    """Tells whether sizes are all there is to the tensor's layout."""
    return tensor.layout is not torch.strided or tensor.is_contiguous()


def sizes_of(arguments: Sequence[torch.Tensor]) -> list[list[Any]]:
    """Returns the sizes of a call as JSON; see the module's text."""
    return [[*tensor.shape] if is_contiguous(tensor) else [*tensor.shape, [*tensor.stride()]] for tensor in arguments]


def _parts(text: str) -> list[str]:
    return [part for part in text.split(", ") if part]
