"""Writes assignments to parts of tensors, `x[index] = value`, so that the exporter gets them right.

An example: for `x[mask, :2] = 0`, with a mask of two dimensions, PyTorch's exporter makes an index of one dimension. Here all of
x is computed: `where(chosen, filled, x)`, with `filled[:, :, :2] = 0` and `chosen[:, :, :2] = mask[..., None]`.
"""

from __future__ import annotations

from typing import Any

import torch

from rekindle.export.trace.aliases import numbered, take_value_of
from rekindle.process.torch_internals import untraced

_MASKS = (torch.bool, torch.uint8)


def set_item(target: Any, index: Any, value: Any) -> None:
    """Runs torch.Tensor.__setitem__; the exporter knows few of the ways to choose places by tensors, and real numbers only."""
    with untraced():
        is_complex = target.is_complex()
        index = _plain(index, target.dim())
        by_number, by_mask = _is_for_numbers(index), _is_for_mask(index, value, target.dim())
    if is_complex:
        written = _complex_with(target, index, value)
    elif by_number:
        written = _with_numbers(target, index, value)
    elif by_mask:
        written = _with_mask(target, index, value)
    else:
        target[index] = value
        return
    with untraced():
        target[index] = value
    take_value_of(target, written)


def _plain(index: Any, rank: int) -> Any:
    """Returns the index with full slices for an ellipsis, and none at its end, if it has tensors too."""
    if type(index) is not tuple or not any(isinstance(place, torch.Tensor) for place in index):
        return index
    ellipses = [i for i, place in enumerate(index) if place is Ellipsis]
    if len(ellipses) == 1:
        masks = [place.dim() for place in index if _is_mask(place)]
        others = [place for place in index if not (place is None or place is Ellipsis or isinstance(place, bool))]
        full = rank - sum(masks) - (len(others) - len(masks))
        index = (*index[: ellipses[0]], *[slice(None)] * full, *index[ellipses[0] + 1 :])
    while len(index) > 1 and type(index[-1]) is slice and index[-1] == slice(None):
        index = index[:-1]
    return index


def _is_mask(place: Any) -> bool:
    return isinstance(place, torch.Tensor) and place.dtype in _MASKS


def _choosing(index: Any) -> list[torch.Tensor]:
    """Lists the tensors of an index that choose several places."""
    return [place for place in index if isinstance(place, torch.Tensor) and place.dim() > 0] if type(index) is tuple else []


def _is_for_numbers(index: Any) -> bool:
    """Tells whether integers choose places, beside slices or the like, otherwise than one vector would."""
    choosing = _choosing(index)
    is_vector = len(choosing) == 1 and choosing[0].dim() == 1
    return 0 < len(choosing) < len(index) and not is_vector and not any(map(_is_mask, choosing))


def _is_for_mask(index: Any, value: Any, rank: int) -> bool:
    """Tells whether one mask chooses places, beside slices and numbers, and what is written does not depend on how many."""
    choosing = _choosing(index)
    if len(choosing) != 1 or len(index) == 1 or not _is_mask(choosing[0]):
        return False
    others = {type(place) for place in index if place is not choosing[0]}
    dims = value.dim() if isinstance(value, torch.Tensor) else 0
    return (others <= {slice} and dims <= _behind(index, rank)) or (others <= {slice, int} and dims == 0)


def _behind(index: tuple[Any, ...], rank: int) -> int:
    """Counts the dimensions after an index's mask that what it chooses of a tensor of `rank` dimensions has."""
    at = _place_of_mask(index)
    return rank - at - index[at].dim() - sum(type(place) is int for place in index[at + 1 :])


def _place_of_mask(index: tuple[Any, ...]) -> int:
    return next(i for i, place in enumerate(index) if _is_mask(place) and place.dim() > 0)


def _with_numbers(target: Any, index: Any, value: Any) -> Any:
    """Returns the target with `value` at the places that an index chooses, found as numbers of elements."""
    places = numbered(target)[index]
    written = target.reshape(-1).index_put((places,), _of_dtype(target, value))
    return written.reshape(tuple(target.shape))


def _with_mask(target: Any, index: tuple[Any, ...], value: Any) -> Any:
    """Returns the target with `value` at the places that an index with one mask chooses."""
    with untraced():
        at, behind = _place_of_mask(index), _behind(index, target.dim())
        mask = index[at]
        region = (*index[:at], *[slice(None)] * mask.dim(), *index[at + 1 :])
    filled, chosen = target.clone(), torch.zeros_like(target, dtype=torch.bool)
    filled[region] = value
    chosen[region] = mask.bool()[(..., *[None] * behind)]
    return torch.where(chosen, filled, target)


def _complex_with(target: Any, index: Any, value: Any) -> Any:
    """Returns a target of complex numbers with `value` at the places that an index chooses."""
    parts = torch.view_as_real(target).clone()
    places = index if type(index) is tuple else (index,)
    has_ellipsis = any(place is Ellipsis for place in places)
    parts[(*places, slice(None)) if has_ellipsis else places] = torch.view_as_real(_of_dtype(target, value).resolve_conj())
    return torch.view_as_complex(parts)


def _of_dtype(target: Any, value: Any) -> Any:
    """Returns what is to be written, a tensor or a number, as a tensor of the target's dtype."""
    with untraced():
        given = value if isinstance(value, torch.Tensor) else torch.tensor(value, device=target.device)
    return given.to(target.dtype)
