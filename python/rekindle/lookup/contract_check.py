"""Whether what an entry says about its graph can be true: every field, its type and its range.

An entry's content is not trusted. What passes here can be used without further care; what does not is no entry: a miss.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch

from rekindle.lookup.entry import StoredEntry
from rekindle.results.view_steps import NAMES
from rekindle.sizes.shapes import Shapes

_LARGEST = 1 << 62
_DEEPEST = 200  # containers in one another
_LAYOUTS = ("any", "as computed", "order", "strides")

Check = Callable[[Any], bool]


class InvalidContract(ValueError):
    """A contract that no export makes."""


def is_position(value: Any, count: int = _LARGEST) -> bool:
    """Whether it is one of `count` places."""
    return type(value) is int and 0 <= value < count


def is_list(item: Check, unique: bool = False) -> Check:
    """Checks a list by its items; unique: no item is there twice."""

    def check(value: Any) -> bool:
        return type(value) is list and all(map(item, value)) and not (unique and len(set(value)) < len(value))

    return check


def is_record(*items: Check) -> Check:
    """Checks a list of so many items of these kinds."""
    return lambda value: (
        type(value) is list and len(value) == len(items) and all(check(item) for check, item in zip(items, value, strict=True))
    )


def is_table(fields: dict[str, Check]) -> Check:
    """Checks a dict with just these keys."""
    return lambda value: (
        type(value) is dict and value.keys() == fields.keys() and all(check(value[name]) for name, check in fields.items())
    )


def _is(kind: type) -> Check:
    return lambda value: type(value) is kind


def _is_optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


_positions = is_list(is_position)
_distinct = is_list(is_position, unique=True)
_layouts = is_list(is_record(lambda value: value in _LAYOUTS, _positions))
_question = is_record(_is(str), _is(str), lambda answer: type(answer) in (int, bool))
_anything: Check = lambda value: True  # noqa: E731  (functions/calls.py and structures look for themselves)

_observation = is_record(_is(str), _is(str), _is(str), _is_optional(_is(str)))
_step = is_record(lambda name: type(name) is str and name in NAMES, _is(list), _is(dict), _is_optional(_is(int)))
_CALL = is_table({
    "function": _anything, "arguments": _is(list), "tensors": is_list(_is_optional(is_position)), "results": _distinct,
    "others": _is(list), "dirty": _positions, "sizes": _is_optional(_is(list)),
})  # fmt: skip
_SHAPES = is_table({
    "sizes": is_list(is_list(lambda size: is_position(size) or _positions(size))), "guards": is_list(_question),
    "numbers": is_list(_is(int)), "fixed": is_list(is_record(_is(str), _is(str))),
})  # fmt: skip
_FIELDS: dict[str, Check] = {
    "structure": _is(dict), "used": _distinct, "state": is_list(_is(str), unique=True), "grad": _is(bool), "writes": _distinct,
    "functions": is_list(_CALL), "expected_cotangents": is_list(_is(bool)), "shapes": _SHAPES, "output_layouts": _layouts,
    "gradient_layouts": _layouts, "gradient_order": _distinct, "data_guards": is_list(_question), "sized_by_data": _is(bool),
    "saved_groups": _is_optional(is_list(is_record(_distinct, _distinct))), "inner_results": is_list(_distinct),
    "saved_writes": _distinct, "saved_results": _distinct, "draws": _is(bool),
}  # fmt: skip


def check_fields(contract: Any) -> None:
    """Raise InvalidContract where a field is missing, or is not of its type."""
    if type(contract) is not dict:
        raise InvalidContract("the contract is no table")
    for name, check in _FIELDS.items():
        if name not in contract or not check(contract[name]):
            raise InvalidContract(f"the contract's {name} is {str(contract.get(name, 'missing'))[:80]}")
    if unknown := contract.keys() - _FIELDS.keys():
        raise InvalidContract(f"the contract has a field {min(unknown)}")
    for call in contract["functions"]:
        places = [place for place in call["tensors"] if place is not None]
        if not all(place < len(call["arguments"]) for place in places) or any(i >= len(call["tensors"]) for i in call["dirty"]):
            raise InvalidContract("a call of the contract's functions has no such argument")


def check_observations(observations: Any) -> None:
    """Raise InvalidContract for what are no observations."""
    if not is_list(_observation)(observations):
        raise InvalidContract("they are no list of [kind, module, name, text]")
    try:
        Shapes.observed(observations)
    except IndexError as error:
        raise InvalidContract("an observation of kind 'shape' is no list of dimensions") from error


def check_entry(entry: StoredEntry) -> None:
    """Raise InvalidContract for an entry that was read and is none."""
    if missing := {"exported", "joint", "contract"} - entry.sections.keys():
        raise InvalidContract(f"it has no section {min(missing)}")
    check_observations(entry.observations)
    meta = entry.meta
    if type(meta) is not dict or type(meta.get("mode")) is not str or type(meta.get("cost_seconds")) not in (int, float):
        raise InvalidContract("its description has no mode or no cost")
    try:
        contract = entry.contract
    except (ValueError, RecursionError) as error:
        raise InvalidContract(f"its contract cannot be read: {type(error).__name__}") from error
    check_fields(contract)


def check_against(contract: dict[str, Any], session: Any, arguments: int, state: Collection[str]) -> None:
    """Raise InvalidContract where a contract, whose fields are as they should be, is not about this graph and this call."""
    inputs = arguments + len(contract["state"])
    results = session.outputs - len(contract["writes"]) - bool(contract["data_guards"])
    cotangents = len(session.cotangent_of)
    wrong = (
        ("state", not set(contract["state"]) <= set(state)),
        ("used", len(contract["used"]) != session.inputs or not _below(contract["used"], inputs)),
        ("writes", results < 0 or not _below(contract["writes"], inputs)),
        ("output_layouts", len(contract["output_layouts"]) > results),
        ("gradient_layouts", len(contract["gradient_layouts"]) > session.inputs),
        ("gradient_order", not _below(contract["gradient_order"], session.inputs)),
        ("inner_results", not _inner_fits(contract["inner_results"], cotangents)),
        ("saved_writes", max(contract["saved_writes"], default=-1) >= len(contract["writes"])),
        ("saved_results", max(contract["saved_results"], default=-1) >= results),
        ("saved_groups", not _groups_fit(contract["saved_groups"], cotangents, session.inputs)),
        ("shapes", len(contract["shapes"]["sizes"]) != arguments),
        ("structure", not _Structure(results, inputs, len(contract["shapes"]["numbers"])).fits(contract["structure"])),
    )
    for name, is_wrong in wrong:
        if is_wrong:
            raise InvalidContract(f"the contract's {name} does not fit its graph")


def _below(positions: list[int], count: int) -> bool:
    return all(position < count for position in positions)


def _groups_fit(groups: list[list[list[int]]] | None, cotangents: int, inputs: int) -> bool:
    return all(_below(given, cotangents) and _below(reached, inputs) for given, reached in groups or ())


def _inner_fits(inner: list[list[int]], cotangents: int) -> bool:
    """Tells whether the results that each gradient runs through are named without a cycle."""
    if len(inner) not in (0, cotangents) or not all(_below(others, cotangents) for others in inner):
        return False
    return all(set(inner[other]) < set(others) for others in inner for other in others)


class _Structure:
    """Checks how a result is rebuilt; see contract.flatten_outputs and views.separate."""

    def __init__(self, outputs: int, inputs: int, numbers: int) -> None:
        self._counts = {"output": outputs, "input": inputs, "number": numbers, "view": 0, "same": _LARGEST}

    def fits(self, structure: dict[str, Any]) -> bool:
        """Whether a structure refers to what there is only."""
        if "with_views" not in structure:
            return self._is_part(structure, 0)
        views = structure["with_views"]
        if structure.keys() != {"with_views", "result"} or type(views) is not list or not all(map(self._is_view, views)):
            return False
        self._counts["view"] = len(views)
        return self._is_part(structure["result"], 0)

    def _is_view(self, view: Any) -> bool:
        flags = {name: _is(bool) for name in ("detached", "is_view", "one_of_many")}
        place = {"size": _positions, "stride": _positions, "offset": _is(int), "base_stride": _positions}
        return any(is_table({"of": self._is_base, **flags, **rest})(view) for rest in ({"steps": is_list(_step)}, place))

    def _is_base(self, of: Any) -> bool:
        return type(of) is dict and len(of) == 1 and of.keys() <= {"input", "output"} and self._is_reference(*of.items())

    def _is_reference(self, item: tuple[str, Any]) -> bool:
        kind, position = item
        return is_position(position, self._counts[kind])

    def _is_part(self, part: Any, depth: int) -> bool:
        if type(part) is not dict or not 1 <= len(part) <= 2 or depth > _DEEPEST:
            return False
        (kind, content), *rest = part.items()
        if rest:
            return kind in _CLASSES and rest[0][0] == "items" and _is_name(content) and self._are_items(kind, rest[0][1], depth)
        if kind in self._counts:
            return self._is_reference((kind, content))
        if kind == "value":
            return content is None or type(content) in (bool, int, float, str)
        if kind in ("dtype", "device"):
            return _is_torchs(kind, content)
        if kind == "class":
            return _is_name(content)
        return kind in ("list", "tuple", "size", "dict", "OrderedDict") and self._are_items(kind, content, depth)

    def _are_items(self, kind: str, items: Any, depth: int) -> bool:
        if type(items) is not list:
            return False
        if kind in ("list", "tuple", "size", "namedtuple", "return_type"):
            return all(self._is_part(item, depth + 1) for item in items)
        is_key = _is_key if kind in ("dict", "OrderedDict") else _is(str)
        return all(is_record(is_key, lambda item: self._is_part(item, depth + 1))(pair) for pair in items)


_CLASSES = ("namedtuple", "return_type", "model_output", "dataclass", "object")
_is_name = is_record(_is(str), _is(str))


def _is_key(key: Any) -> bool:
    return key is None or type(key) in (bool, int, float, str)


def _is_torchs(kind: str, name: Any) -> bool:
    if type(name) is not str:
        return False
    if kind == "dtype":
        return isinstance(getattr(torch, name, None), torch.dtype)
    try:
        torch.device(name)
    except RuntimeError:
        return False
    return True
