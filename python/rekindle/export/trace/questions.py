"""Lists what a forward may learn of a tensor without a graph's being wrong for other calls; all else is refused.

A call of torch that gives no tensor is a question. The key of a call answers those below, as they are about what its tensors are:
type, sizes, whether they require a gradient. Any other answer may be another one at each call, be it about numbers (`item`,
`equal`, `tolist`), about memory (`data_ptr`, `_version`, `_base`) or about autograd (`is_leaf`, `retains_grad`).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

from rekindle.export.trace.leaves import leaves_of
from rekindle.export.trace.user_place import user_place
from rekindle.process.torch_internals import TORCH_FUNCTIONS
from rekindle.reasons import Bypass, Reason

_OF_TENSORS = """
    dtype device layout shape ndim is_cuda is_cpu is_xla is_xpu is_mps is_mtia is_ipu is_hpu is_vulkan is_maia is_meta
    is_mkldnn is_sparse is_sparse_csr is_quantized is_nested requires_grad itemsize nbytes names is_floating_point is_complex
    is_signed get_device T mT H mH real imag data element_size type has_names is_same_size is_contiguous
    stride size dim ndimension numel nelement dense_dim sparse_dim is_coalesced qscheme __len__ __hash__ is_distributed
    _is_zerotensor
""".split()
_OF_TORCH = """
    is_tensor is_floating_point is_complex is_signed get_device numel result_type can_cast
    promote_types is_same_size _has_compatible_shallow_copy_type is_distributed _use_cudnn_ctc_loss _cudnn_rnn_flatten_weight
    _is_zerotensor broadcast_shapes _nested_tensor_size
""".split()
_OF_OPERATORS = {"sym_size", "sym_numel", "sym_stride", "size", "stride", "numel", "dim", "is_contiguous"}
# What these tell besides tensors follows from the sizes of what they are given.
_SIZED = ("_scaled_dot_product", "_flash_attention", "_efficient_attention", "_fused_sdp_choice")
_PROPERTIES = (torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))


def _of(owner: Any, names: list[str]) -> set[Any]:
    found = (getattr(owner, name, None) for name in names)
    return {getattr(one, "__get__", one) if not callable(one) else one for one in found if one is not None}


_OF_MADE = _of(torch.Tensor, ["is_leaf", "is_conj", "is_neg"]) | {torch.is_conj, torch.is_neg}
# A gradient's function is refused before, but to checkpoints (refusals.py).
_ANSWERED = (
    {torch.Tensor.grad_fn.__get__} | _of(torch.Tensor, _OF_TENSORS) | _of(torch, _OF_TORCH) | _of(TORCH_FUNCTIONS, _OF_TORCH)
)


def refuse_answer(function: Any, args: tuple[Any, ...], result: Any, given: Container[int]) -> None:
    """Raises Bypass for the result of a call of torch that a graph made now could not answer at each later call.

    given: the identities of the tensors that the forward has not made
    """
    if function in _ANSWERED or _is_answered(function, args, given):
        return
    is_attribute = getattr(function, "__name__", None) == "__get__"
    if is_attribute or any(not isinstance(leaf, (torch.Tensor, _PROPERTIES)) for leaf in leaves_of(result)):
        raise Bypass(
            Reason.VALUE_SPECIALIZED,
            f"{user_place()} turns a tensor into a Python value ({name_of(function)}), which may be another one at each call; "
            "use torch.where and the like, or pass it as an argument",
        )


def _is_answered(function: Any, args: tuple[Any, ...], given: Container[int]) -> bool:
    if function in _OF_MADE:  # not an argument's: a trace is given copies
        return id(args[0]) not in given or isinstance(args[0], torch.nn.Parameter)
    if isinstance(function, (OpOverload, OpOverloadPacket)):
        packet = function.overloadpacket if isinstance(function, OpOverload) else function
        namespace, _, name = packet._qualified_op_name.partition("::")
        return namespace == "profiler" or (namespace == "aten" and (name in _OF_OPERATORS or name.startswith(_SIZED)))
    return str(getattr(function, "__name__", "")).startswith(_SIZED)


def name_of(function: Any) -> str:
    """Returns a function of torch as its user knows it; the getter of an attribute is told by the attribute."""
    name = getattr(function, "__name__", None) or str(function)
    owner = getattr(function, "__self__", None)
    return str(getattr(owner, "__name__", name)) if name in ("__get__", "__set__") else str(name)
