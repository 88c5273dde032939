"""Describes the sizes an entry is for, and the calls at other sizes that its graph is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from rekindle.export.traced import SizeGuard, Traced
from rekindle.functions.calls import Call as FunctionCall
from rekindle.miss.perturbation import SecondCall
from rekindle.sizes.shapes import Shapes, sizes_of

# Elements of a graph's inputs from which on gradients are compared for the smallest of the calls; for the others, results are.
# What a trace has frozen shows in these; the gradients follow from the graph by rules that do not know the sizes.
_LARGE = 1 << 20


def is_differentiated_once(traced: Traced, alone: str | None) -> bool:
    """Tells whether gradients are compared for the smallest of the calls only, as eager may run again and the model is large.

    alone: why eager must not run again, if it must not
    """
    return alone is None and elements(traced.inputs) >= _LARGE


def smallest(calls: Iterable[SecondCall]) -> SecondCall | None:
    """Returns that of the calls which is given least, of those that have their autograd graph; None if none has it."""
    return min((call for call in calls if not call.is_light), key=lambda call: elements(call.tensors), default=None)


def elements(tensors: Iterable[torch.Tensor]) -> int:
    """Counts the elements of tensors."""
    return sum(tensor.numel() for tensor in tensors)


@dataclass(frozen=True)
class LeftOpen:
    """Holds the sizes that an entry leaves open, and why not the others."""

    shapes: Shapes  # those that the entry is for
    asked: Shapes  # those that were asked for, with the symbols that have become one since
    exact: Shapes  # those of the call
    sizes: Mapping[str, int]  # of the symbols in the call
    closed: Mapping[str, str] = field(default_factory=dict)  # symbol -> why it is left no more; "*": why there was none
    tied: tuple[str, ...] = ()  # the symbols that were closed for what was found about each of them

    @staticmethod
    def all_of(shapes: Shapes, arguments: Sequence[torch.Tensor]) -> LeftOpen:
        """Returns all that these shapes leave open in a call."""
        return LeftOpen(shapes, shapes, Shapes.of(arguments), shapes.bind(sizes_of(arguments)) or {})

    def close(self, why: str, symbols: Iterable[str] | None = None) -> LeftOpen:
        """Returns less, with symbols, or all, fixed at their present sizes."""
        names = tuple(self.shapes.symbols if symbols is None else symbols)
        shapes = self.shapes.fixed({name: self.sizes[name] for name in names})
        return replace(
            self,
            shapes=shapes if shapes.symbols else self.exact,
            closed={**self.closed, **dict.fromkeys(names, why)},
            tied=self.tied if symbols is None else self.tied + names,
        )

    def merge(self, names: Sequence[str]) -> LeftOpen:
        """Returns the same with one symbol for several."""
        return replace(self, shapes=self.shapes.merged(names), asked=self.asked.merged(names))

    def coinciding(self) -> list[list[str]]:
        """Lists the symbols that have one size in the call, in groups."""
        return self.shapes.coinciding(self.sizes)

    def contract(self, arguments: Sequence[torch.Tensor], traced: Traced) -> dict[str, Any]:
        """Returns what a hit needs to know, as JSON.

        sizes: of the arguments at the export, at which no question needs to be asked
        guards: the questions about sizes
        numbers: in the result, at these sizes
        fixed: [text of the dimension's places, why] for what is no symbol any more
        """
        return {
            "sizes": sizes_of(arguments),
            "guards": listed(traced.sizes.guards),
            "numbers": traced.result.numbers,
            "fixed": [[self._places(name), why] for name, why in self.closed.items()],
        }

    def observations(self, traced: Traced) -> list[list[str | None]]:
        """Lists what has to hold of the sizes of a call."""
        asked = dict.fromkeys((guard.where, guard.what) for guard in traced.sizes.guards) if self.shapes.symbols else {}
        return [*self.shapes.observations(), *(["size", where, what, "so"] for where, what in asked)]

    def _places(self, name: str) -> str:
        if name == "*":
            return "all"
        return ", ".join(f"argument {i} dim {axis}" for i, axis in self.asked.places(name))


@dataclass(frozen=True)
class Sized:
    """Holds what was found about the sizes of a traced call."""

    left: LeftOpen  # the sizes that stay open
    calls: tuple[SecondCall, ...]  # of eager, at other sizes where symbols are left: the graph is compared with them
    answers: bytes | None  # the graph of TracedGraph.answers, optimized; None where no question was put to it
    functions: list[FunctionCall]  # those of TracedGraph, with what is known of the sizes of their results


def listed(guards: Iterable[SizeGuard]) -> list[list[Any]]:
    """Returns guards as a contract has them: [where, what, value] each."""
    return [[guard.where, guard.what, guard.value] for guard in guards]
