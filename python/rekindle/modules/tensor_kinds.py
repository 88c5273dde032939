"""Tells which tensors a graph may be given: those that PyTorch dispatches as it does plain ones.

A tensor's dispatch keys say all that may make an operator mean something else for it. Nested, quantized, sparse and named
tensors, tensors of zeros without memory, those of a transform and those of a class with a dispatch of its own each have a key
that a plain tensor has not.
"""

from __future__ import annotations

import torch

from rekindle.process.torch_internals import dispatch_keys, name_of_private_device


def keys_of(tensor: torch.Tensor) -> int:
    """Returns a number for the way in which a tensor is dispatched; conjugated, negated and inference tensors have others."""
    return dispatch_keys(tensor).raw_repr()


_plain_keys: dict[str, frozenset[int]] = {}  # the numbers of all plain tensors, by the type of their device


def _plain_keys_on(device: torch.device) -> frozenset[int]:
    """Returns the numbers of all plain tensors on a device; those of its type, but made there: another may not be touched."""
    known = _plain_keys.get(device.type)
    if known is not None:
        return known
    found = set()
    for inference in (False, True):
        with torch.inference_mode(inference):
            real, complex_ = torch.empty(0, device=device), torch.empty(0, dtype=torch.complex64, device=device)
            for tensor in (real, torch._neg_view(real), complex_, complex_.conj(), torch._neg_view(complex_.conj())):
                found.add(keys_of(tensor))
    return _plain_keys.setdefault(device.type, frozenset(found))


def is_plain_kind(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor is dispatched as plain ones on its device are; also for what is on a device without sessions."""
    return not has_sessions(tensor.device.type) or keys_of(tensor) in _plain_keys_on(tensor.device)


def has_sessions(device: str) -> bool:
    """Tells whether sessions run on devices of this type: the CPU, CUDA, and what a backend of its own registers with PyTorch."""
    return device in ("cpu", "cuda", name_of_private_device())


def unlike_plain(tensor: torch.Tensor) -> str | None:
    """Says how a tensor differs from a plain one, for a message; None if it does not, or is on a device without sessions."""
    if is_plain_kind(tensor):
        return None
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.is_quantized:
        return "a quantized tensor"
    if tensor.layout is not torch.strided:
        return f"a tensor with layout {tensor.layout}"
    return f"a tensor that is dispatched to {str(dispatch_keys(tensor)).removeprefix('DispatchKeySet')}"
