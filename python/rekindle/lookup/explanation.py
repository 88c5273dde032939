"""Says why a call hits or misses: compares its leaves with those of the nearest entry. Runs and exports nothing.

An example: an entry was exported while the global RATE of the module `app` was 0.1; now it is 0.2. The key is equal, and one of
its 12 observations is not. The outcome is "miss" and the reason "observations"; the explanation is printed as

    miss app.Net: observations, nearest 2ea16ce5d288 (2 h ago, 11 of 12 leaves equal)
                       OLD  NEW
      global app:RATE  0.1  0.2
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekindle import _native
from rekindle.key.fingerprint import Fields, Fingerprint
from rekindle.key.values.ingredients import Parts, leaf_text, noting, reachable_parts
from rekindle.key.values.places import Places
from rekindle.lookup.refusal import SECTION, Refusal
from rekindle.recording.observations import KINDS, present
from rekindle.sizes.shapes import Shapes

_ABSENT = "absent"  # kAbsent
_SHOWN = 20  # differences that a table shows
_ALWAYS_NAMED = frozenset(
    {"import", "file", "module", "version", "binary", "shape"}
)  # kinds of observations that are about a module as a whole


@dataclass(frozen=True)
class Difference:
    """Holds one thing that differs."""

    path: str  # of the leaf
    old: str  # its text in the entry
    new: str  # its text now
    places: int = 1  # how many leaves differ in the same way; `path` is the first of them

    def __str__(self) -> str:
        more = f" (in {self.places} places)" if self.places > 1 else ""
        return f"{self.path}  {self.old} -> {self.new}{more}"


@dataclass(frozen=True)
class Nearest:
    """Holds the entry that a call was compared with."""

    id: str
    created: int  # in seconds since 1970
    equal: int  # leaves that are equal, of `total`
    total: int  # leaves of the key, or of what was observed under an equal key

    @property
    def age_seconds(self) -> float:
        """Returns the seconds since it was stored."""
        return max(0.0, time.time() - self.created)


@dataclass(frozen=True)
class Explanation:
    """Says why a call hits or misses.

    The reason of a bypass is its code, that of a hit "". That of a miss is one of:

        cold            the cache has no entry of this model
        key             the key differs
        version         so do the versions
        sizes           the call's branches on sizes may be others
        observations    what an export read has changed

    or what became of the entry: "evicted", "corrupt", "removed" or "cleared".
    """

    model: str  # qualified class of the module
    outcome: str  # "hit", "miss" or "bypass"
    reason: str = ""
    message: str = ""  # of a bypass
    nearest: Nearest | None = None  # the entry that hits, or that the differences are against
    differences: Sequence[Difference] = field(default_factory=tuple)  # those of versions first

    def headline(self) -> str:
        """Returns the first line of the table."""
        text = f"{self.outcome} {self.model}" + (f": {self.reason}" if self.reason else "")
        if self.message:
            text += f": {self.message}"
        if self.nearest is not None:
            near = self.nearest
            age = age_text(near.age_seconds)
            text += f", nearest {near.id[:12]} ({age} ago, {near.equal} of {near.total} leaves equal)"
        return text

    def line(self) -> str:
        """Returns the headline and the first difference, in one line."""
        return f"{self.headline()}" + (f": {self.differences[0]}" if self.differences else "")

    def row(self, prekey: str) -> dict[str, Any]:
        """Returns it as the cache keeps it: see export_cache/misses/miss_log.h."""
        near = self.nearest or Nearest("", 0, 0, 0)
        return {
            "time": int(time.time()), "model": self.model, "reason": self.reason, "prekey": prekey,
            "nearest": near.id, "nearest_created": near.created, "equal": near.equal, "total": near.total,
            "differences": [(found.path, found.old, found.new, found.places) for found in self.differences],
        }  # fmt: skip

    def __str__(self) -> str:
        rows = [
            ("", "OLD", "NEW"),
            *((_title(found), found.old, found.new) for found in self.differences[:_SHOWN]),
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        lines = [self.headline()]
        for path, old, new in rows if self.differences else ():
            lines.append(f"  {path:<{widths[0]}}  {old:<{widths[1]}}  {new}".rstrip())
        if len(self.differences) > _SHOWN:
            lines.append(f"  and {len(self.differences) - _SHOWN} more")
        return "\n".join(lines)


def _title(found: Difference) -> str:
    return found.path if found.places == 1 else f"{found.path} (and {found.places - 1} more)"


def age_text(seconds: float) -> str:
    """Writes a duration in the largest unit that leaves two digits or so."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def leaf_tree(model: str, fields: Fields, observations: Sequence[Sequence[str | None]], noted: dict[str, Parts]) -> Any:
    """Makes the LeafTree of a call and of what its export observed; `noted`: what digests in these were made of."""
    leaves = _leaves(fields, observations)
    return _native.LeafTree(model, leaves, reachable_parts(leaves, noted))


def key_leaves(fields: Fields) -> Parts:
    """Returns the leaves of a key: (path, text)."""
    return _leaves(fields, [])


def differences_of(model: str, before: Parts, after: Parts) -> list[Difference]:
    """Lists what differs between the leaves of two keys of one model, those of versions first."""
    rows = _native.differences(_native.LeafTree(model, before, {}), _native.LeafTree(model, after, {}))
    return [Difference(*row) for row in rows]


def _leaves(fields: Fields, observations: Sequence[Sequence[str | None]]) -> Parts:
    leaves = [(path, leaf_text(path, value)) for path, value in fields]
    return leaves + [(path, _text(path, text)) for path, text in map(_observed, observations)]


def _observed(observation: Sequence[str | None]) -> tuple[str, str | None]:
    """Returns path and text of an observation; paths are `env NAME`, `import module`, `global module:name`."""
    kind, module, name, text = observation
    if kind == "env":
        return f"env {name}", text
    return (f"{kind} {module}" if kind in _ALWAYS_NAMED else f"{kind} {module}:{name}"), text


def _text(path: str, text: str | None) -> str:
    return _ABSENT if text is None else leaf_text(path, text)


def _observation(path: str, text: str) -> list[str | None] | None:
    """Returns the observation that a leaf stands for; None for a field of the key."""
    kind, space, rest = path.partition(" ")
    if not space or kind not in KINDS:
        return None
    module, _, name = ("", "", rest) if kind == "env" else rest.partition(":")
    return [kind, module, name, None if text == _ABSENT else text]


def explain_lookup(
    cache: Any, model: str, prekey: str, fingerprint: Fingerprint, describe: Callable[[], Fingerprint], sizes: list[list[int]]
) -> Explanation:
    """Says why a call hits or misses; changes nothing if the cache is open read-only.

    cache: an ExportCache
    model: qualified class of the module
    prekey, fingerprint: of the call
    describe: computes the fingerprint anew
    sizes: of the call's arguments, as sizes_of gives them
    """
    known = cache.facts(prekey, model)
    if known.candidates:
        return _explain_candidates(cache, model, known.candidates, fingerprint.places, sizes)
    gone = None if known.gone == "replaced" else known.gone  # another took its place
    if not known.knows_model:
        return Explanation(model, "miss", gone or "cold")
    with noting() as noted:
        fields = describe().fields
        found = known.nearest(_native.LeafTree(model, _leaves(fields, []), {}))
        if found is None:
            return Explanation(model, "miss", gone or "cold")
        entry, created, equal, total, stored = found
        observed = [seen for path, text in stored.leaves if (seen := _observation(path, text)) is not None]
        now = [[kind, module, name, new] for kind, module, name, _, new in present(observed, fingerprint.places)]
    differences = _differences(stored, _leaves(fields, now), noted)
    reason = "version" if differences and differences[0].path.startswith("version.") else "key"
    return Explanation(model, "miss", gone or reason, "", Nearest(entry, created, equal, total), differences)


def _with_sizes(checked: Iterable[Any], sizes: list[list[int]]) -> list[Any]:
    """Compares observations with the present, those of shapes with the sizes of a call: rows as `present` gives them."""
    rows = list(checked)
    shapes = Shapes.observed([(kind, module, name, old) for kind, module, name, old, _ in rows])
    if shapes.bind(sizes) is not None:
        return rows
    now = iter(shapes.differing(sizes))
    return [[*row[:4], next(now, row[4])] if row[0] == "shape" else row for row in rows]


def _explain_candidates(cache: Any, model: str, candidates: list[Any], places: Places, sizes: list[list[int]]) -> Explanation:
    """Explains with the newest candidate under one key of which everything holds, or with the one of which least does not."""
    best: Explanation | None = None
    for entry, recorded, created in candidates:
        with noting() as noted:
            checked = _with_sizes(present(json.loads(recorded), places), sizes)
        stored = cache.leaves(entry)
        total = len(checked)
        equal = sum(old == new for *_, old, new in checked)
        nearest = Nearest(entry, created, equal, total)
        if equal == total:
            loaded = cache.load(entry)
            if loaded is None:
                return Explanation(model, "miss", "corrupt", "", nearest)
            if (section := loaded["sections"].get(SECTION)) is not None:
                refusal = Refusal.parse(section)
                known = Explanation(model, "bypass", str(refusal.reason), refusal.message, nearest)
                best = known if refusal.holds else best or Explanation(model, "miss", "cold", "", nearest)
                continue
            asked = _native.Contract.parse(loaded["sections"]["contract"]).shapes
            if "guards" not in loaded["sections"] or sizes == asked.sizes:
                return Explanation(model, "hit", "", "", nearest)
            questions = [Difference(f"size {where}", what, "another answer") for where, what, _ in asked.guards]
            best = best or Explanation(model, "miss", "sizes", "", nearest, questions)
            continue
        if best is None or best.nearest is None or total - equal < best.nearest.total - best.nearest.equal:
            before = _leaves([], [[*names, old] for *names, old, _ in checked])
            after = _leaves([], [[*names, new] for *names, _, new in checked])
            old_tree = _native.LeafTree(model, before, stored.parts if stored else {})
            best = Explanation(model, "miss", "observations", "", nearest, _differences(old_tree, after, noted))
    assert best is not None
    return best


def _differences(old: Any, leaves: Parts, noted: dict[str, Parts]) -> list[Difference]:
    """Lists everything that differs; only what does is taken apart."""
    before = dict(old.leaves)
    changed = [(path, text) for path, text in leaves if before.get(path) != text]
    new = _native.LeafTree(old.model, leaves, reachable_parts(changed, noted))
    return [Difference(*row) for row in _native.differences(old, new)]
