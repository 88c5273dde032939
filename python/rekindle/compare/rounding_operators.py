"""Tells how an operator of PyTorch rounds: whether it does, whether numbers of one tensor meet, in which parts it computes.

An example: `makes_new_numbers` holds for `aten::mm` and not for `aten::cat`; `sums` holds for `mm` and not for `aten::mul`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map

from rekindle.compare.rounding_parts import IN_PARTS
from rekindle.results.layouts import is_dense


def _named(names: str) -> set[str]:
    return {f"aten::{name}{end}" for name in names.split() for end in ("", "_")}


STEPS = _named("floor ceil round trunc sign sgn floor_divide remainder fmod heaviside")
# What makes no new numbers: it moves or chooses those that it is given.
_EXACT = STEPS | _named(
    "clone copy cat stack index index_select gather embedding constant_pad_nd slice_backward select_backward "
    "index_put scatter roll flip repeat where masked_fill masked_select fill zero zeros_like ones_like full_like new_zeros "
    "zeros ones full arange empty empty_like scalar_tensor lift_fresh relu threshold_backward hardtanh_backward abs neg clamp "
    "clamp_min clamp_max maximum minimum max min amax amin sort topk kthvalue median max_pool2d_with_indices "
    "max_pool2d_with_indices_backward max_pool3d_with_indices adaptive_max_pool2d contiguous detach alias tril triu "
    "cummax cummin nonzero unique2 one_hot argmax argmin _local_scalar_dense _reshape_alias _unsafe_view "
    "split_with_sizes_copy unbind_copy"
)
_CAST = "aten::_to_copy"
_MATRIX_PRODUCTS = frozenset("mm addmm bmm baddbmm addbmm mv addmv linear linear_backward _addmm_activation".split())
# By the name of a precision of torch.backends: TF32 has as many bits in its fraction as float16.
_ROUNDED_LIKE = {"tf32": torch.float16, "bf16": torch.bfloat16}


def is_view(function: Any) -> bool:
    """Tells whether the result of an operator lies in the memory of its arguments."""
    returns = [value.alias_info for value in function._schema.returns]
    return any(alias is not None and not alias.is_write for alias in returns)


def makes_new_numbers(function: Any, args: Any) -> bool:
    """Tells whether an operator computes numbers, which it rounds, and not only moves or chooses those that it is given."""
    if torch.Tag.nondeterministic_seeded in function.tags:
        return False
    name = function._schema.name
    if name == _CAST:
        return args[0].is_floating_point()
    return name.startswith("aten::") and name not in _EXACT


def in_parts(function: Any, args: Any) -> Callable[..., torch.Tensor] | None:
    """Returns how an operator computes, where its parts have to round by themselves. In half precision they are float32."""
    parts = IN_PARTS.get(function._schema.name)
    return None if parts is None or args[0].dtype in (torch.bfloat16, torch.float16) else parts


def sums(function: Any) -> bool:
    """Tells whether numbers of one tensor meet each other, and rounding is that of the terms."""
    name = function._schema.name
    writes = any(argument.alias_info is not None and argument.alias_info.is_write for argument in function._schema.arguments)
    return torch.Tag.pointwise not in function.tags and name != _CAST and not writes


def rounds_like(function: Any, given: torch.Tensor) -> torch.dtype:
    """Returns the dtype to which an operator rounds what it is given: of float32, products may read fewer digits.

    An example: the float32 inputs of a convolution on a GPU, which PyTorch lets cuDNN read as TF32, are rounded like float16.
    """
    if given.dtype is not torch.float32:
        return given.dtype
    name, on_cpu = function._schema.name.removeprefix("aten::"), given.device.type == "cpu"
    of_products = torch.backends.mkldnn if on_cpu else torch.backends.cudnn
    if "convolution" in name:
        precision = of_products.conv.fp32_precision
    elif "_rnn" in name:
        precision = of_products.rnn.fp32_precision
    elif name in _MATRIX_PRODUCTS:
        precision = (torch.backends.mkldnn if on_cpu else torch.backends.cuda).matmul.fp32_precision
    else:
        precision = "ieee"
    return _ROUNDED_LIKE.get(precision, given.dtype)


def each_read(function: Any, args: Any, change: Callable[[Any], Any]) -> Iterator[Any]:
    """Applies `change` to each value in the arguments, but those that a normalization writes without saying so."""
    for argument, value in zip(function._schema.arguments, args, strict=False):
        yield value if argument.name.startswith("running_") else tree_map(change, value)


def written_copied(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments with a copy of each discrete or complex tensor that the operator writes, for a second call of it."""

    def copied(value: Any) -> Any:
        is_kept = not isinstance(value, torch.Tensor) or value.is_floating_point()
        return value if is_kept else value.clone(memory_format=torch.preserve_format)

    arguments = function._schema.arguments
    written = {i for i, argument in enumerate(arguments) if argument.alias_info is not None and argument.alias_info.is_write}
    if not written:
        return args, kwargs
    names = {arguments[i].name for i in written}
    own = tuple(tree_map(copied, value) if i in written else value for i, value in enumerate(args))
    return own, {name: tree_map(copied, value) if name in names else value for name, value in kwargs.items()}


def is_writable(tensor: torch.Tensor) -> bool:
    """Tells whether the numbers of a tensor lie densely in memory as they read, so that they can be rounded in place."""
    return (
        tensor.layout is torch.strided
        and tensor.numel() > 0
        and is_dense(tensor)
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor._is_zerotensor()
    )
