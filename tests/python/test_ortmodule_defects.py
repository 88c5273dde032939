"""The 31 everyday behaviours that ORTModule 1.19 was measured to break, each as eager has it.

Every row does the same in eager, with a cold and with a warm cache; all but those of EAGER run from graphs alone while they do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import semantics_autograd  # noqa: F401
import semantics_calls  # noqa: F401
import semantics_containers  # noqa: F401
import semantics_forwards  # noqa: F401
import semantics_parameters  # noqa: F401
import semantics_state  # noqa: F401
import torch
from semantics_support import CASES, Perceptron, backward, compared, made_of, rows
from torch import nn

Case = tuple[Callable[[], nn.Module], Callable[[nn.Module], Any]]


def _twice(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(2)]


def _in_place_of_each_result(model: nn.Module) -> Any:
    """Whether writing to the first, and to the last, of two saved results is an error in the backward."""
    errors = []
    for written in (0, 1):
        results = model(rows())
        results[written].add_(1)
        try:
            sum(result.sum() for result in results).backward()
            errors.append(None)
        except RuntimeError as error:
            errors.append("inplace" in str(error))
        model.zero_grad()
    return errors


def _autocast_from_the_start(model: nn.Module) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        first = model(rows())
    backward(first)
    model.zero_grad()
    return [first.dtype, backward(model(rows(1)))]


def _trained_and_evaluated(model: nn.Module) -> Any:
    """Running statistics decide what an evaluation gives."""
    for i in range(3):
        backward(model(rows(i)))
    model.eval()
    return [model(rows(7)).detach(), model[1].num_batches_tracked.clone()]


def _scattered(self: Any, x: torch.Tensor) -> Any:
    y = self.a(x)
    index = torch.tensor([0, 0, 3])
    return (
        torch.zeros(5, 4).scatter_add(0, torch.tensor([[0, 1, 2, 0]] * 5), y),
        y.index_add(0, index, self.b(x)[:3]),
        y.index_put((index,), self.b(x)[:3], accumulate=True),
    )


def _without_gradient_builders(self: Any, x: torch.Tensor) -> Any:
    y, z = self.a(x), self.b(x)
    return [
        torch.atan(y), torch.tan(y), nn.functional.elu(y), nn.functional.mish(z), y.cumsum(0), y.prod(0), z.amax(1),
        z.round() * y, torch.einsum("ij,kj->ik", y, z), y.norm(p=1, dim=1), torch.remainder(y, 2.0), y.flip(0),
        nn.functional.smooth_l1_loss(y, z),
    ]  # fmt: skip


def _own(make: Callable[[], nn.Module], run: Callable[[nn.Module], Any] = _twice) -> Case:
    return make, run


# Row of the list: what runs.
ROWS: dict[str, Case] = {
    "1 bool flag flipped": CASES["flag"],
    "2 None to tensor": CASES["none"],
    "3 tensor to None": CASES["tensor_none"],
    "4 the same call by keywords": CASES["kw"],
    "5 int argument changed": CASES["int"],
    "6 branch on a shape": CASES["shape_branch"],
    "7 attribute changed": CASES["attr"],
    "8 Parameter object replaced": CASES["param_replaced"],
    "9 train mode under no_grad": CASES["train_nograd"],
    "10 eval mode with gradients": CASES["eval_grad"],
    "11 an input requires a gradient later": CASES["input_grad_later"],
    "12 autocast toggled after a step": CASES["autocast"],
    "12 autocast at the first step": _own(Perceptron, _autocast_from_the_start),
    "13 in-place edits of results": _own(
        made_of(lambda self, x: (torch.exp(self.a(x)), torch.exp(self.b(x)))), _in_place_of_each_result
    ),
    "14 backward twice of a retained graph": CASES["retain"],
    "15 create_graph": CASES["create_graph"],
    "16 detach inside a forward": CASES["ste"],
    "16 no_grad inside a forward": CASES["nograd"],
    "17 a branch without a part in the loss": CASES["unused_branch"],
    "18 statistics of a batch norm": _own(lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), _trained_and_evaluated),
    "19 a buffer written in the forward": CASES["buffer"],
    "20 an input written in the forward": CASES["input_mut"],
    "21 hooks on a submodule": CASES["sub_hooks"],
    "22 gradients delivered in backward order": CASES["hook_order"],
    "23 dropout from the generator of torch": CASES["rng"],
    "24 an empty batch": CASES["zero"],
    "25 another rank, and double": CASES["rank"],
    "26 one result of a split": CASES["split"],
    "26 one result of an unbind": CASES["unbind"],
    "27 MultiheadAttention": CASES["mha"],
    "27 TransformerEncoderLayer": CASES["tel"],
    "27 tile, index_copy": CASES["tile"],
    "28 sums after matrix products": _own(
        made_of(lambda self, x: (x @ self.a.weight + self.b.bias) + self.b(x) @ self.b.weight.t() + x)
    ),
    "29 max_pool1d": CASES["pool"],
    "29 embedding_bag": CASES["bag"],
    "30 scatter_add, index_add, index_put that accumulates": _own(made_of(_scattered)),
    "31 operators without a gradient builder": _own(made_of(_without_gradient_builders)),
}
EAGER = {"21 hooks on a submodule"}


def test_every_row_has_a_test() -> None:
    assert sorted({int(name.split()[0]) for name in ROWS}) == list(range(1, 32))


@pytest.mark.parametrize("row", ROWS)
def test_row(row: str) -> None:
    status = compared(*ROWS[row])
    assert bool(status.bypass) == (row in EAGER), status.bypass
    assert status.hits > 0
