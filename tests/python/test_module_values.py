"""What goes into a wrapped module and comes out of it: structures, plain values, views and repeated tensors."""

from __future__ import annotations

import collections
import pathlib
from typing import Any, NamedTuple

import numpy
import pytest
import rekindle
import torch
from module_support import Twins, assert_same, mlp, rows
from torch import nn

Pair = collections.namedtuple("Pair", "low high")


class Named(NamedTuple):
    value: torch.Tensor
    label: str


class Returns(nn.Module):
    """Returns whatever `make` makes of a computed tensor, the input and plain values."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.make = make

    def forward(self, x: torch.Tensor) -> Any:
        return self.make(self.linear(x), x)


STRUCTURES = {
    "tuple": lambda y, x: (y, y + 1),
    "list": lambda y, x: [y, [y + 1, (y * 2,)]],
    "dict": lambda y, x: {"b": y, "a": {"nested": y + 1, 3: y.sum()}},
    "ordered dict": lambda y, x: collections.OrderedDict(z=y, a=y.mean()),
    "namedtuple": lambda y, x: Pair(y, high=y * 2),
    "typed namedtuple": lambda y, x: Named(y.tanh(), "label"),
    "of torch.max": lambda y, x: y.max(1),
    "of torch.topk in a list": lambda y, x: [y.topk(2), y.sort(0)],
    "plain values": lambda y, x: (None, True, 3, 2.5, "text", y, {"none": None}),
    "one tensor twice": lambda y, x: (y, y, {"again": y}),
    "the input itself": lambda y, x: (y, x),
    "of several dtypes": lambda y, x: (y, y.argmax(-1), y > 0, y.double()),
    "a detached part": lambda y, x: (y, (y * 2).detach()),
    "a scalar": lambda y, x: y.square().mean(),
    "nothing computed from parameters": lambda y, x: (y, x * 2),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_results_have_the_structure_of_eager(name: str) -> None:
    twins = Twins(Returns(STRUCTURES[name]), fallback="error")
    for step in range(2):
        twins.call(rows(step))
    if name == "one tensor twice":
        first, second, rest = twins.wrapped(rows())
        assert first is second is rest["again"]
    if name == "the input itself":
        given = rows()
        assert twins.wrapped(given)[1] is given
    assert twins.status.exports == 1


class Custom:
    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


REFUSED = {
    "set": lambda y, x: (y, {1, 2}),
    "no tensor at all": lambda y, x: 3,
}


@pytest.mark.parametrize("name", REFUSED)
def test_results_that_a_graph_cannot_return_run_in_eager(name: str) -> None:
    twins = Twins(Returns(REFUSED[name]))
    theirs, ours = twins.both(lambda model: model(rows()))
    assert type(ours) is type(theirs)
    assert twins.reasons() == ["unsupported_output"]


class ReturnsParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.linear(x), self.linear.weight.t(), self.linear.bias


def test_a_view_of_a_parameter_in_the_result_is_one() -> None:
    twins = Twins(ReturnsParameter(), fallback="error")
    twins.call(rows())
    assert twins.wrapped(rows())[1]._base is twins.module.linear.weight
    assert twins.wrapped(rows())[2] is twins.module.linear.bias


def test_a_view_of_a_parameter_without_gradients_is_eagers() -> None:
    twins = Twins(ReturnsParameter(), fallback="error")
    with torch.no_grad():
        twins.call(rows())
        theirs, ours = twins.both(lambda model: model(rows()))
    assert ours[1]._base is twins.module.linear.weight
    for view in (theirs[1], ours[1]):
        assert view.requires_grad and view.grad_fn is None


class Takes(nn.Module):
    """Takes arguments of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(
        self, x: Any, y: Any = None, *, scale: float = 1.0, mode: str = "plain", flags: tuple[bool, ...] = ()
    ) -> torch.Tensor:
        first = x["a"] if isinstance(x, dict) else x[0] if isinstance(x, (list, tuple)) else x
        rest = list(x.values())[1:] if isinstance(x, dict) else x[1:] if isinstance(x, (list, tuple)) else []
        result = self.linear(first) * scale
        for other in [*rest, *([] if y is None else [y])]:
            result = result - other
        return result.tanh() if mode == "tanh" else result + sum(flags)


def test_a_result_of_an_operator_is_an_argument() -> None:
    twins = Twins(Takes(), fallback="error")
    for step in range(2):
        twins.call(rows(step).sort(1))
    assert twins.status.exports == 1


def test_changed_plain_arguments_give_changed_results() -> None:
    twins = Twins(Takes(), fallback="error")
    results = [
        twins.call(rows(), **kwargs)
        for kwargs in ({}, {"scale": 2.0}, {"scale": 3.0}, {"mode": "tanh"}, {"flags": (True, True)}, {"scale": 2.0})
    ]
    assert twins.status.exports == 5
    torch.testing.assert_close(results[1], results[5])
    twins.call(rows(), scale=2)  # an int is not a float
    twins.call(rows(), None, scale=2.0)


def test_a_plain_argument_that_always_changes_is_not_exported_for_ever() -> None:
    twins = Twins(Takes())
    for step in range(20):
        twins.call(rows(), scale=1.0 + step)
    assert twins.status.exports <= 8
    assert twins.reasons() == ["value_specialized"]
    twins.call(rows(), scale=1.0)  # of the first calls, still from its graph
    assert twins.status.eager_calls == 20 - twins.status.exports


@pytest.mark.parametrize("container", [list, tuple, lambda items: dict(zip("abc", items, strict=True))])
def test_containers_of_tensors(container: Any) -> None:
    twins = Twins(Takes(), fallback="error")
    for step in range(2):
        twins.call(container([rows(step), rows(step + 1), rows(step + 2)]))
    assert twins.status.exports == 1


def test_named_arguments_in_any_order() -> None:
    twins = Twins(Takes(), fallback="error")
    twins.call(x=rows(0), y=rows(1))
    twins.call(y=rows(1), x=rows(0))
    twins.call(rows(0), y=rows(1))


def test_one_tensor_given_twice() -> None:
    twins = Twins(Takes(), fallback="error")
    given = rows()
    twins.call(given, given)
    twins.call(rows(0), rows(1))
    twins.call(given, given)
    assert twins.status.exports == 2


def test_other_shapes_strides_and_dtypes_of_inputs() -> None:
    twins = Twins(Takes(), fallback="error")
    for given in (
        rows(count=3),
        rows(count=7),
        rows(count=8)[::2],
        rows().new_zeros(2, 3, 4),
        rows(count=4).t().contiguous().t(),
    ):
        twins.call(given)
    twins.call(rows(count=0))
    twins.call(rows(count=1).expand(3, 4))


def test_arguments_that_are_neither_tensors_nor_plain_run_in_eager() -> None:
    class Box(list):
        pass

    twins = Twins(Takes())
    for step in range(3):
        twins.call(Box([rows(step), rows(step + 1)]))
    assert twins.reasons() == ["unsupported_input"]
    assert len(twins.wrapped._runtime._kinds) == 1


def test_errors_of_the_forward_are_those_of_eager() -> None:
    twins = Twins(Takes())
    for model in (twins.eager, twins.wrapped):
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            model(torch.zeros(2, 3))
        with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
            model(rows(), nonsense=1)
    twins.call(rows())
    assert twins.status.source == "export"


def test_model_outputs_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=32,
        n_positions=16,
        n_embd=16,
        n_layer=2,
        n_head=2,
        use_cache=False,
        attn_implementation="sdpa",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    torch.manual_seed(0)
    twins = Twins(transformers.GPT2LMHeadModel(config), fallback="error")
    inputs = torch.randint(0, 32, (2, 8))
    for _ in range(2):
        theirs, ours = twins.both(lambda model: model(input_ids=inputs, labels=inputs))
        assert type(ours) is type(theirs)
        assert list(ours) == list(theirs)
        assert_same(tuple(ours.to_tuple()), tuple(theirs.to_tuple()))
        theirs.loss.backward()
        ours.loss.backward()
        twins.compare()
    assert twins.status.exports == 1
    assert rekindle.cache.stats()["stores"] == 1


def test_numbers_of_numpy_and_formats_are_plain_values(tmp_path: pathlib.Path) -> None:
    class Formatted(nn.Module):
        def forward(self, x: torch.Tensor, scale: Any, memory_format: torch.memory_format) -> torch.Tensor:
            return (x * scale).to(memory_format=memory_format)

    twins = Twins(Formatted(), cache_dir=str(tmp_path), fallback="error")
    for scale in (numpy.float64(0.5), numpy.float32(2.5), numpy.int64(3), 0.5):
        for memory_format in (torch.contiguous_format, torch.channels_last):
            twins.call(torch.randn(2, 3, 4, 5), scale, memory_format)


def test_a_tensor_of_inference_mode_is_told_from_one_that_is_not() -> None:
    twins = Twins(mlp())
    twins.call(rows())
    with torch.inference_mode():
        given = rows()
    for model in (twins.eager, twins.wrapped):
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
            model(given)
