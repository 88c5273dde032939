"""What a forward asks of tensors: the answer of each call is its own, as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rekindle
import torch
from module_support import rows
from reader_support import compare_reads

KEPT: dict[str, Any] = {"x": rows(), "list": [rows()[0, 0]]}


def _leaf() -> torch.Tensor:
    return rows().requires_grad_()


def _computed() -> torch.Tensor:
    return rows().requires_grad_() * 1


def _view() -> torch.Tensor:
    return rows(count=10)[:5]


def _view_elsewhere() -> torch.Tensor:
    return torch.cat([rows(), rows()])[5:]


def _retaining() -> torch.Tensor:
    x = rows().requires_grad_() * 1
    x.retain_grad()
    return x


def _with_gradient() -> torch.Tensor:
    x = rows().requires_grad_()
    x.grad = torch.ones_like(x)
    return x


def _shared() -> torch.Tensor:
    return rows().share_memory_()


def _written() -> torch.Tensor:
    return rows().mul_(1).mul_(1)


def _hooked() -> torch.Tensor:
    x = rows().requires_grad_()
    x.register_hook(lambda gradient: gradient)
    return x


def _negative() -> torch.Tensor:
    return -rows()


def _without_torch_function(x: torch.Tensor) -> float:
    with torch._C.DisableTorchFunction():
        return float(x.sum() > 0)


def _array(x: torch.Tensor) -> float:
    return float(np.sign(np.asarray(x.detach()).sum()))


# name: (question, the inputs that are asked about)
OF_TENSORS: dict[str, tuple[Callable[[Any, torch.Tensor], Any], list[Callable[[], torch.Tensor]]]] = {
    "is_leaf": (lambda m, x: x.is_leaf, [_leaf, _computed]),
    "_is_view": (lambda m, x: x._is_view(), [rows, _view]),
    "_base": (lambda m, x: x._base is not None, [rows, _view]),
    "is_shared": (lambda m, x: x.is_shared(), [rows, _shared]),
    "retains_grad": (lambda m, x: x.retains_grad, [_computed, _retaining]),
    "grad": (lambda m, x: x.grad is not None, [_leaf, _with_gradient]),
    "grad_fn": (lambda m, x: x.grad_fn is not None, [_leaf, _computed]),
    "_version": (lambda m, x: x._version, [rows, _written]),
    "storage_offset": (lambda m, x: x.storage_offset(), [_view, _view_elsewhere]),
    "untyped_storage": (lambda m, x: x.untyped_storage().nbytes(), [rows, _view]),
    "_typed_storage": (lambda m, x: x._typed_storage().nbytes(), [rows, _view]),
    "data_ptr": (lambda m, x: x.data_ptr() == KEPT["x"].data_ptr(), [lambda: KEPT["x"], rows]),
    "_backward_hooks": (lambda m, x: bool(x._backward_hooks), [_leaf, _hooked]),
    "output_nr": (lambda m, x: x.output_nr, [_leaf, lambda: _leaf().unbind()[0].expand(5, 4), lambda: _leaf().split([0, 5])[1]]),
    "aten.equal": (lambda m, x: torch.ops.aten.equal(x, KEPT["x"]), [lambda: KEPT["x"], _negative]),
    "aten.equal.default": (lambda m, x: torch.ops.aten.equal.default(x, KEPT["x"]), [lambda: KEPT["x"], _negative]),
    "aten.item": (lambda m, x: torch.ops.aten.item(x[0, 0]), [rows, _negative]),
    "aten.is_nonzero": (lambda m, x: torch.ops.aten.is_nonzero(x[0, 0] > 0), [rows, _negative]),
    "aten.allclose": (lambda m, x: torch.ops.aten.allclose(x, KEPT["x"]), [lambda: KEPT["x"], _negative]),
    "aten._local_scalar_dense": (lambda m, x: torch.ops.aten._local_scalar_dense(x[0, 0]), [rows, _negative]),
    "tolist": (lambda m, x: x.tolist()[0][0], [rows, _negative]),
    "from_dlpack": (lambda m, x: np.from_dlpack(x)[0, 0], [rows, _negative]),
    "to_dlpack": (lambda m, x: torch.from_dlpack(torch.to_dlpack(x))[0, 0] * 0 + np.from_dlpack(x).sum(), [rows, _negative]),
    "to_dlpack of C": (lambda m, x: np.from_dlpack(torch.from_dlpack(torch._C._to_dlpack(x)))[0, 0], [rows, _negative]),
    "asarray": (lambda m, x: _array(x), [rows, _negative]),
    "numpy function": (lambda m, x: np.sign(np.sum(x.detach().numpy())), [rows, _negative]),
    "text": (lambda m, x: float(f"{x[0, 0]:.3f}"), [rows, _negative]),
    "repr": (lambda m, x: len(repr(x)) + float("-" in repr(x[0, 0])), [rows, _negative]),
    "no torch function": (lambda m, x: _without_torch_function(x), [rows, _negative]),
    "result of a comparison in C": (lambda m, x: [x[0, 0] > 0] == [1.0], [rows, _negative]),
    "is_inference": (lambda m, x: x.is_inference(), [rows]),
    "is_pinned": (lambda m, x: x.is_pinned(), [rows]),
    "is_neg": (lambda m, x: x.is_conj() + x.is_neg(), [rows, lambda: torch._neg_view(rows())]),
    "count_nonzero": (lambda m, x: len(torch.nonzero(x > 0)), [rows, _negative]),
    "in": (lambda m, x: x[0, 0] in KEPT["list"], [rows, _negative]),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_TENSORS)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_question_about_a_tensor_is_answered_by_that_of_the_call(name: str, backwards: bool) -> None:
    question, inputs = OF_TENSORS[name]
    compare_reads(question, [lambda: None], inputs[::-1] if backwards else inputs)


def _caught(x: torch.Tensor) -> float:
    try:
        return float(torch.sign(x[0, 0]).item())
    except Exception:
        return 5.0


def test_a_question_that_was_refused_is_refused_although_the_forward_goes_on() -> None:
    wrapped = compare_reads(lambda m, x: _caught(x), [lambda: None], [rows, _negative])
    assert {code for code, _ in rekindle.status(wrapped).bypass} == {"value_specialized"}


def _kind(m: Any, x: torch.Tensor) -> float:
    y = x * 2
    facts = [y.is_leaf, m.linear.weight.is_leaf, y.requires_grad, x.is_floating_point(), x.is_contiguous(), len(x) > 2]
    return sum(map(float, [*facts, x.dim(), x.element_size(), x.shape[1], y.is_cuda, str(x.dtype) == "torch.float32", x.nbytes]))


def test_questions_that_the_key_answers_stay_in_the_graph() -> None:
    wrapped = compare_reads(_kind, [lambda: None], [rows, _leaf, lambda: rows(count=7)])
    assert rekindle.status(wrapped).bypass == []
