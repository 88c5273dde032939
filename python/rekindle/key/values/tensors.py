"""Describes tensors in texts: by metadata what the graph binds, by content what it would bake in."""

from __future__ import annotations

from typing import Any

import torch

from rekindle.modules.tensor_kinds import is_plain_kind
from rekindle.process.digest import digest128
from rekindle.process.torch_internals import NO_TORCH_DISPATCH
from rekindle.reasons import Bypass, Reason
from rekindle.results.layouts import arrangement, has_memory
from rekindle.sizes.shapes import is_open

_INFERENCE = " inference"  # in the text of a tensor that was made in inference mode
CONTENT_LIMIT = 1 << 20  # bytes

_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


class DeviceNames:
    """Names devices, that of a call without its index, so that ranks that differ only in it agree.

    of_call: the device of a call's tensors; None where there is no call
    """

    def __init__(self, of_call: torch.device | None = None) -> None:
        self.of_call = of_call

    @property
    def architecture(self) -> str | None:
        """Names what graphs are made for of the call's device, as `sm_90`; None for the CPU."""
        if self.of_call is None or self.of_call.type == "cpu":
            return None
        if self.of_call.type != "cuda":
            return self.of_call.type
        found = torch.cuda.get_device_properties(self.of_call)
        return getattr(found, "gcnArchName", "") if torch.version.hip else f"sm_{found.major}{found.minor}"

    def binds(self, tensor: torch.Tensor) -> bool:
        """Tells whether a graph takes a plain value as an input, as it does buffers: a large one, or one on an accelerator.

        The host does not look at its numbers: for those of an accelerator it would have to wait at each call.
        """
        is_costly = tensor.device.type != "cpu" or tensor.numel() * tensor.element_size() > CONTENT_LIMIT
        return is_costly and self.may_bind(tensor)

    def may_bind(self, tensor: torch.Tensor) -> bool:
        """Tells whether a graph can take a plain value as an input."""
        return (
            self.of_call is not None
            and tensor.device == self.of_call
            and is_plain(tensor)
            and is_plain_kind(tensor)
            and has_memory(tensor)
            and not tensor.requires_grad
        )

    def name(self, device: torch.device) -> str:
        """Returns `cuda#` for the device of the call, and `cpu` or `cuda:1` for another."""
        return f"{device.type}#" if device == self.of_call and device.type != "cpu" else str(device)


def is_plain(tensor: torch.Tensor) -> bool:
    """Tells whether the tensor's class is torch's own: subclasses change what an op means."""
    return type(tensor) in _PLAIN_TYPES


def is_traceable_parameter(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor is a parameter whose class changes torch's functions at most, which a trace sees, not operators."""
    kind = type(tensor)
    return torch.nn.Parameter in kind.__mro__ and kind.__torch_dispatch__ is NO_TORCH_DISPATCH


def besides_inference(leaf: Any) -> Any:
    """Returns a leaf as it would be for a tensor that was not made in inference mode."""
    return leaf.replace(_INFERENCE, "") if isinstance(leaf, str) else leaf


def describe(tensor: torch.Tensor, devices: DeviceNames, open_sizes: bool = False) -> str:
    """Returns a text of dtype, sizes, device, layout, strides, requires_grad and the bits that change how the bytes are read.

    devices: gives the device's name
    open_sizes: describe a tensor whose sizes may be symbols by its rank and its arrangement
    """
    kind = type(tensor).__name__
    is_described = open_sizes and is_open(tensor)
    sizes = ["?"] * tensor.dim() if is_described else list(tensor.shape)
    text = f"{kind} {tensor.dtype} [{', '.join(map(str, sizes))}] {devices.name(tensor.device)}"
    if tensor.layout is not torch.strided:
        text += f" {tensor.layout}"
    elif not tensor.is_contiguous():
        text += f" arranged {arrangement(tensor)}" if is_described else f" strides {list(tensor.stride())}"
    if tensor.requires_grad:
        text += " grad"
    if tensor.is_conj():
        text += " conj"
    if tensor.is_neg():
        text += " neg"
    if tensor.is_inference():
        text += _INFERENCE
    if tensor.has_names():
        text += f" names {tensor.names}"
    return text


def content_text(path: str, tensor: torch.Tensor, limit: int = CONTENT_LIMIT) -> str:
    """Returns the text of a tensor that an export would bake in as a constant: metadata and a digest of its bytes.

    Raises Bypass for a tensor subclass, for one that requires a gradient, is quantized, or is no dense tensor on the CPU, and
    above the limit.

    limit: largest size that is digested, in bytes
    """
    if not is_plain(tensor):
        raise _refused(path, f"a tensor subclass {type(tensor).__module__}.{type(tensor).__qualname__}")
    if tensor.requires_grad:
        raise _refused(path, "a tensor that requires a gradient but is not a parameter of the module tree")
    if tensor.layout is not torch.strided:
        what = f"{path} is a tensor with layout {tensor.layout}, which graphs do not take; keep the forward from reading it"
        raise Bypass(Reason.OPAQUE_VALUE, f"{what}, or make it dense")
    if tensor.device.type != "cpu" or tensor.is_quantized:
        raise _refused(path, f"a {'quantized ' if tensor.is_quantized else ''}tensor on {tensor.device}")
    if not has_memory(tensor):
        raise _refused(path, "a tensor whose memory was freed")
    size = tensor.numel() * tensor.element_size()
    if size > limit:
        raise _refused(path, f"a tensor of {size} bytes (at most {limit} are digested)")
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes() if size else b""
    return f"content {describe(tensor, DeviceNames())} {digest128(data)}"


def _refused(path: str, what: str) -> Bypass:
    return Bypass(
        Reason.OPAQUE_VALUE,
        f"{path} is {what}, held as a plain value; register it as a parameter or buffer of the module that uses it",
    )
