"""Answers what a forward learns of sizes that an export leaves open, and makes of them what torch is given.

An example: for x of sizes [s0, 16], `x.shape` is (a TracedSize of 4, 16). `torch.zeros(x.shape[0], 3)` is traced with the size's
tensor in its place. `x.unbind(0)` returns as many tensors as the size says: it fixes the dimension, and the graph is for 4 only.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from rekindle.export.trace.leaves import tensors_of
from rekindle.process.torch_internals import disabled_torch_function, untraced
from rekindle.sizes.lengths import lengths_followed
from rekindle.sizes.shapes import OpenDims, Place, is_contiguous
from rekindle.sizes.traced_sizes import CLOSED, SizeTrace, TracedShape, TracedSize, contains_traced, is_traced, swapped

_RANKS = {torch.Tensor.dim, torch.Tensor.ndimension, torch.Tensor.ndim.__get__}
_LENGTHS = {torch.Tensor.numel, torch.Tensor.nelement, torch.numel}
_SHAPES = {torch.Tensor.size, torch.Tensor.shape.__get__}
SIZE_QUERIES = {*_RANKS, *_LENGTHS, *_SHAPES, torch.Tensor.__len__, torch.Tensor.stride, torch.Tensor.is_contiguous}
# How many tensors they return depends on the size of a dimension: the position of the argument that names it, and its default.
_UNPACKING: dict[Any, tuple[int, int]] = {
    torch.Tensor.unbind: (1, 0), torch.unbind: (1, 0), torch.Tensor.__iter__: (9, 0), torch.Tensor.__reversed__: (9, 0),
    torch.Tensor.split: (2, 0), torch.split: (2, 0), torch.Tensor.chunk: (2, 0), torch.chunk: (2, 0),
    torch.Tensor.tensor_split: (2, 0), torch.tensor_split: (2, 0), torch.Tensor.split_with_sizes: (2, 0),
    torch.split_with_sizes: (2, 0), torch.unsafe_split: (2, 0), torch.unsafe_chunk: (2, 0), torch.Tensor.unsafe_split: (2, 0),
    torch.Tensor.unsafe_chunk: (2, 0), torch.functional.split: (2, 0),
}  # fmt: skip
_CHUNKS = {torch.Tensor.chunk, torch.chunk}
_SPLITS = {torch.Tensor.split, torch.split, torch.functional.split}
_NAMES_OF_PARTS = ("chunks", "split_size", "split_size_or_sections")
_CONSTANTS = (torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor)
_BY_STRIDES = {torch.as_strided, torch.Tensor.as_strided}
_SQUEEZES = {torch.squeeze, torch.Tensor.squeeze, torch.squeeze_copy}
_INDEXING = {torch.Tensor.__getitem__, torch.Tensor.__setitem__}
# Python values that say nothing of sizes.
_HARMLESS = {
    torch.Tensor.is_floating_point, torch.is_floating_point, torch.Tensor.is_complex, torch.is_complex, torch.Tensor.is_signed,
    torch.is_signed, torch.Tensor.is_conj, torch.is_conj, torch.Tensor.is_neg,
    torch.is_neg, torch.Tensor.get_device, torch.get_device, torch.Tensor.element_size, torch.Tensor.type, torch.Tensor.is_shared,
    torch.Tensor.itemsize.__get__, torch.Tensor._version.__get__, torch.Tensor.output_nr.__get__, torch.is_tensor,
}  # fmt: skip


class _Following(threading.local):
    """Tells whether the forward that this thread traces leaves sizes open."""

    active = False


_following = _Following()


@contextlib.contextmanager
def following(active: bool) -> Iterator[None]:
    """Lets sizes_to_follow give values of the trace, around a forward."""
    before, _following.active = _following.active, active
    try:
        with lengths_followed(active):
            yield
    finally:
        _following.active = before


def sizes_to_follow(tensor: torch.Tensor) -> list[Any]:
    """Returns a tensor's sizes to call torch with: values of the trace, or ints where all sizes are fixed."""
    if _following.active:
        return [*tensor.shape]
    with untraced():
        return [*tensor.shape]


def _any(items: list[Any]) -> torch.Tensor:
    return next(item for item in items if isinstance(item, torch.Tensor))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors among the arguments of one of torch's functions."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, slice):
        yield from _tensors((value.start, value.stop, value.step))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


class OpenSizes:
    """Answers the questions of one export.

    Tensors have open sizes unless they are known not to: parameters, buffers and what comes from them.

    arguments: the tensors of the forward's inputs, with the dimensions of each
    state: parameters and buffers
    """

    def __init__(
        self, trace: SizeTrace, arguments: Sequence[tuple[torch.Tensor, OpenDims]], state: Iterable[torch.Tensor]
    ) -> None:
        self._trace = trace
        self._places = [dim for _, dims in arguments for dim in dims if isinstance(dim, tuple)]
        self._dims: dict[int, tuple[int | Place | None, ...]] = {id(tensor): dims for tensor, dims in arguments}
        self._closed = {id(tensor) for tensor in state}
        self._held: list[torch.Tensor] = []
        self._closed.update(id(tensor) for tensor, dims in arguments if all(isinstance(dim, int) for dim in dims))
        self._has_strides = not all(is_contiguous(tensor) for tensor, _ in arguments)

    def fix_all(self) -> None:
        """Makes the graph depend from now on on all sizes of the arguments."""
        self._trace.fix_places(self._places)

    def answer(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Answers a question about a tensor's sizes."""
        tensor = args[0] if args else kwargs["input"]
        if function in _RANKS or self.is_closed(tensor):
            with untraced():
                return function(*args, **kwargs)
        if function in _SHAPES:
            dim = args[1] if len(args) > 1 else kwargs.get("dim")
            shape = self._shape(tensor)
            return shape if dim is None else shape[int(dim)]
        if function in _LENGTHS:
            return self._shape(tensor).numel()
        if function is torch.Tensor.__len__:
            return int(self._shape(tensor)[0]) if tensor.dim() > 0 else len(tensor)
        return self._fixed(function, args, kwargs)

    def given(self, function: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Returns the arguments with which the trace sees a call."""
        if args and id(args[0]) in self._dims and getattr(function, "__name__", "").endswith("_"):
            self._dims[id(args[0])] = (None,) * args[0].dim()  # it may be turned in place
        if function in _BY_STRIDES and self._has_strides:
            self._trace.ask_for_strides()
        if function in _UNPACKING:
            self._fix_count(function, args, kwargs)
        elif function in _SQUEEZES:
            self._fix_squeezed(args)
        elif function is torch.nn.functional.scaled_dot_product_attention:
            self._ask_of_attention(args, kwargs)
        if not (contains_traced(args) or contains_traced(kwargs)):
            return args, kwargs
        swap = int if function in _UNPACKING else lambda size: size.traced
        if function in _INDEXING:  # in a list, it is one of many places
            args = tuple(swapped(arg, int) if type(arg) is list else arg for arg in args)
            if len(args) > 1 and type(args[1]) is tuple:
                place = tuple(swapped(part, int) if type(part) is list else part for part in args[1])
                args = (args[0], place, *args[2:])
        return swapped(args, swap), swapped(kwargs, swap)

    def _ask_of_attention(self, args: Any, kwargs: Any) -> None:
        """Asks for what attention takes for granted.

        That is its default scale; whether PyTorch has one kernel for all of it; and that there is a value for each key, which the
        kernel's backward takes for granted and writes by.
        """
        query, key, value = (
            self._shape(x) for x in (*args[:3], *(kwargs[name] for name in ("query", "key", "value")[len(args) :]))
        )
        if kwargs.get("scale") is None:
            int(query[-1])
        _ = key[-2] == value[-2], query[-1] == value[-1]

    def cuts(self, function: Any, args: Any, kwargs: Any) -> tuple[torch.Tensor, list[Any]] | None:
        """Returns a call that cuts an open dimension into parts as a tensor and the places of the parts; None for any other.

        A dimension that is not the first, nor an input's, is taken for a fixed one, which a graph cuts at once.
        """
        if function not in _CHUNKS and function not in _SPLITS:
            return None
        tensor = args[0] if args else kwargs.get("tensor", kwargs.get("input"))
        given = args[1] if len(args) > 1 else next((kwargs[name] for name in _NAMES_OF_PARTS if name in kwargs), None)
        if self.is_closed(tensor) or not isinstance(given, int) or tensor.dim() == 0:
            return None
        shape = self._shape(tensor)
        dim = int(args[2] if len(args) > 2 else kwargs.get("dim", 0)) % len(shape)
        size = shape[dim]
        if not (is_traced(given) or (is_traced(size) and (dim == 0 or size.place is not None))) or not given > 0 < size:
            return None
        length = -(-size // given) if function in _CHUNKS else given
        before = (slice(None),) * dim
        return tensor, [(*before, slice(i * length, (i + 1) * length)) for i in range(int(-(-size // length)))]

    def check(self, function: Any, args: Any, kwargs: Any, result: Any, sized_by_data: bool) -> None:
        """Sees what a call gave: Python values may tell of sizes, and what comes from closed tensors is closed."""
        tensors = list(_tensors((args, kwargs)))
        if sized_by_data:
            return
        if all(map(self.is_closed, tensors)):
            self.close(tensors_of(result))
        elif not isinstance(result, (torch.Tensor, list, tuple)) and not self._is_harmless(function, result):
            if self._has_strides:
                self._trace.ask_for_strides()
            for tensor in tensors:
                if not self.is_closed(tensor):
                    tuple(map(int, self._shape(tensor)))

    def close(self, tensors: Iterable[torch.Tensor]) -> None:
        """Declares that the sizes of these are what they are."""
        for tensor in tensors:
            if not self.is_closed(tensor) and id(tensor) not in self._dims:
                tensor.__dict__[CLOSED] = True

    def settle(self, arguments: Iterable[torch.Tensor], results: list[torch.Tensor]) -> None:
        """Settles the results of a Function, whose sizes follow from its arguments'.

        No mark is left: they may be the module's own.
        """
        if all(map(self.is_closed, arguments)):
            self._held += results  # so that no other tensor gets their identity
            self._closed.update(map(id, results))

    @staticmethod
    def _is_harmless(function: Any, result: Any) -> bool:
        if result is None or isinstance(result, (torch.dtype, torch.device, torch.layout)) or function in _HARMLESS:
            return True
        return isinstance(result, bool) and getattr(function, "__name__", "") == "__get__"

    def size_of_data(self, value: int, traced: torch.Tensor) -> TracedSize:
        """Returns a size that is computed from data, by the 0-dim tensor `traced`."""
        return TracedSize(value, traced, self._trace)

    def shape(self, tensor: torch.Tensor) -> Any:
        """Returns the tensor's sizes, as the forward sees them."""
        return self._shape(tensor)

    def is_closed(self, tensor: torch.Tensor) -> bool:
        """Tells whether no size of a tensor is open."""
        return id(tensor) in self._closed or (id(tensor) not in self._dims and CLOSED in tensor.__dict__)

    def _shape(self, tensor: torch.Tensor) -> Any:
        with untraced():
            sizes = tuple(tensor.shape)
        if self.is_closed(tensor):
            return torch.Size(sizes)
        dims = self._dims.get(id(tensor), (None,) * len(sizes))
        with disabled_torch_function():
            traced = tuple(tensor.shape)
        return TracedShape(
            size if isinstance(dim, int) else TracedSize(size, value, self._trace, dim)
            for size, value, dim in zip(sizes, traced, dims, strict=True)
        )

    def _fixed(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Answers what depends on all sizes, in ways that nobody follows."""
        if self._has_strides:
            self._trace.ask_for_strides()
        tuple(map(int, self._shape(args[0])))
        with untraced():
            return function(*swapped(args, int), **swapped(kwargs, int))

    def _fix_count(self, function: Any, args: Any, kwargs: Any) -> None:
        tensor = args[0] if args else kwargs.get("input", kwargs.get("tensor"))
        position, default = _UNPACKING[function]
        dim = args[position] if len(args) > position else kwargs.get("dim", default)
        if not self.is_closed(tensor):
            int(self._shape(tensor)[int(dim)])

    def _fix_squeezed(self, args: Any) -> None:
        """Asks which dimensions have size 1: these go, the others stay."""
        if self.is_closed(args[0]):
            return
        shape = self._shape(args[0])
        dims = range(len(shape)) if len(args) < 2 else args[1] if isinstance(args[1], tuple) else args[1:2]
        for dim in dims:
            _ = len(shape) > 0 and shape[int(dim)] == 1

    def constant(self, function: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
        """Returns the result of a function that makes a tensor of numbers, if sizes are among them; else None."""
        if function not in _CONSTANTS or not contains_traced(args):
            return None
        made = self._constant(args[0])
        if not isinstance(made, torch.Tensor):
            return None
        dtype = kwargs.get("dtype") or (torch.get_default_dtype() if function is torch.scalar_tensor else None)
        return made.clone() if dtype is None else made.to(dtype)

    def _constant(self, data: Any) -> Any:
        if is_traced(data):
            return data.traced
        if type(data) in (list, tuple, TracedShape):
            items = [self._constant(item) for item in tuple(data)]
            if all(isinstance(item, (int, torch.Tensor)) and not isinstance(item, bool) for item in items):
                with disabled_torch_function():
                    return torch.stack([item if isinstance(item, torch.Tensor) else 0 * _any(items) + item for item in items])
        return swapped(data, int)
