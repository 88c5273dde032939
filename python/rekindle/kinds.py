"""What is known about calls of one signature: graphs that serve them, or why they run in eager."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from rekindle import _native
from rekindle.call_key import tables_of
from rekindle.hooks import global_hooks
from rekindle.reasons import Bypass, Reason, SizedByData
from rekindle.shapes import Dims, Shapes
from rekindle.variant import Variant

# After so many exports or refusals under one call signature, the module is not tried again under it: something in it
# changes at every call.
MAX_ATTEMPTS = 8
_MOST_KINDS_OF_A_PART = 16
_MAX_KINDS = 4096


@dataclass
class Kind:
    """What is known about calls of one signature: variants, most recently used first, or why they run in eager."""

    variants: list[Variant] = field(default_factory=list)
    refusal: Bypass | None = None
    refused_while: Any = None  # guard under which the refusal stands; None: for good
    attempts: int = 0
    ran_in_eager: bool = False  # without an error, since it was refused

    @property
    def is_refused(self) -> bool:
        """Whether the reason to run in eager still stands."""
        return self.refusal is not None and (self.refused_while is None or self.refused_while.check())

    def ready(self) -> Variant | None:
        """A variant that is right now."""
        for i, variant in enumerate(self.variants):
            if variant.ready():
                if i > 0:
                    self.variants.insert(0, self.variants.pop(i))
                return variant
        return None

    def refuse(self, bypass: Bypass, module: nn.Module) -> None:
        """Run calls in eager from now on, as long as trying again is of no use."""
        self.attempts += 1
        self.refusal = bypass
        self.ran_in_eager = False
        self.refused_while = None if self.attempts >= MAX_ATTEMPTS else _guard(bypass, module, self.attempts <= 2)


@dataclass
class Family:
    """What is known about calls that differ in the sizes of their tensors only.

    closed: why none is left open where an export has tried in vain; by the dimensions of its shapes, of which equal ones
    are one symbol.
    """

    variants: list[Variant] = field(default_factory=list)
    closed: dict[tuple[Dims, ...], str] = field(default_factory=dict)

    def add(self, variant: Variant, wanted: Shapes) -> None:
        """wanted: the shapes that the variant's export was to leave open."""
        self.variants.insert(0, variant)
        if wanted.symbols and not variant.shapes.symbols:
            for _, why in variant.contract["shapes"]["fixed"][:1]:
                self.closed[wanted.dims] = why


class Kinds:
    """The kinds of calls of one module, by key. What changes them is called under the runtime's lock."""

    def __init__(self, is_part: bool) -> None:
        self._is_part = is_part
        self._kinds: dict[Any, Kind] = {}
        self._families: dict[Any, Family] = {}
        self._values_of: dict[Any, int] = {}  # per layout of a call: how many sets of plain values it had

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())

    def __len__(self) -> int:
        return len(self._kinds)

    def get(self, key: tuple[Any, ...]) -> Kind | None:
        """The kind of a call seen before."""
        return self._kinds.get(key)

    def new(self, key: tuple[Any, ...]) -> tuple[Kind, Bypass | None]:
        """The kind of a call not seen before, one and the same for calls with ever new plain values; why to refuse it, if so."""
        if self._is_part and self._tried() >= _MOST_KINDS_OF_A_PART:
            # What data decides about may have new sizes at every call.
            message = f"it was called with {_MOST_KINDS_OF_A_PART} layouts of inputs so far, and is not exported for more"
            return self._of_all_further_calls((), message)
        layout = key[:2]
        known = self._values_of.setdefault(layout, 0)
        if known < MAX_ATTEMPTS:
            self._values_of[layout] += 1
            while len(self._kinds) >= _MAX_KINDS:  # the oldest; its family knows its variants
                self._kinds.pop(next(iter(self._kinds)))
            return self._kinds.setdefault(key, Kind()), None
        message = f"its plain arguments had {known} different values so far; pass what changes as a tensor"
        return self._of_all_further_calls(layout, message)

    def _of_all_further_calls(self, key: tuple[Any, ...], message: str) -> tuple[Kind, Bypass | None]:
        if key in self._kinds:
            return self._kinds[key], None
        kind = self._kinds[key] = Kind(attempts=MAX_ATTEMPTS)
        return kind, Bypass(Reason.VALUE_SPECIALIZED, message)

    def _tried(self) -> int:
        """Variants, of which one may serve many kinds, and kinds that were refused or not served yet."""
        return len(self.variants()) + sum(not kind.variants for kind in self)

    def variants(self) -> list[Variant]:
        """All that serve a kind, each once."""
        return [*{id(variant): variant for kind in self for variant in kind.variants}.values()]

    def family(self, key: tuple[Any, ...]) -> Family:
        """What calls have in common that differ in sizes only."""
        return self._families.setdefault(key, Family())

    def drop(self, variant: Variant) -> None:
        """Let no call run from a variant any more."""
        for one in (*self, *self._families.values()):
            one.variants = [other for other in one.variants if other is not variant]


class _TryAgain:
    """A guard that never passes: the refusal holds for one call only."""

    def check(self) -> bool:
        """As of _native.Guard."""
        return False


def _guard(bypass: Bypass, module: nn.Module, first: bool) -> Any:
    """Passes as long as trying again is of no use."""
    modules = list(module.modules())
    state = [*module.parameters(), *module.buffers()]
    if isinstance(bypass, SizedByData):  # the next export knows it
        return _TryAgain()
    if bypass.reason in (Reason.STATE_MUTATED, Reason.CHANGED_DURING_EXPORT, Reason.SIDE_EFFECT):
        if first:  # a forward may complete its configuration, fill a cache or warn once; the second time it has nothing to do
            return _TryAgain()
        return _native.Guard([], state, [(module.__dict__, "training") for module in modules])
    tables = [table for module in modules for table in tables_of(module)]
    return _native.Guard([*tables, *global_hooks()], state)
