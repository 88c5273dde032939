"""Observes what a forward imports and takes from modules that it imported itself."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from rekindle.key.code.module_names import own_names
from rekindle.key.code.reads import Reads
from rekindle.process.process_state import changed
from rekindle.reasons import Bypass, Reason


class Probe:
    """Calls `on_search(name)`, while it is entered, for every module that this thread looks for and that is not loaded yet."""

    def __init__(self, on_search: Callable[[str], None]) -> None:
        self._on_search = on_search
        self._thread = threading.get_ident()
        self._changed = changed(lambda: sys.meta_path.remove(self))  # type: ignore[arg-type]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Tells of a search, as the import system asks; finds nothing."""
        if threading.get_ident() == self._thread:
            self._on_search(name)

    def __enter__(self) -> Probe:
        self._changed.__enter__()
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]
        return self

    def __exit__(self, *_: object) -> None:
        self._changed.__exit__(None, None, None)


def reads_from(reads: Reads, targets: list[str], names: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Yields observations, as (kind, module, name), of what code with these reads may take from its imports.

    A module that is used in another way than for its attributes counts as a whole. Modules that are not loaded are left out.

    targets: absolute names of `reads.imports`, in order
    names: all attribute names in the code
    """
    seen: set[int] = set()
    for index, (target, (_, _, parts)) in enumerate(zip(targets, reads.imports, strict=True)):
        for part in parts or (None,):
            found = _imported(target, part)
            if (index, part) in reads.escaping:
                yield from (("module", module.__name__, "") for module in found)
            for module in found:
                yield from _attributes(module, names, seen)


def _imported(target: str, part: str | None) -> list[types.ModuleType]:
    """Returns the modules that an import statement names: a.b and, for `import a.b`, a.

    Raises Bypass for what is loaded as a module and is none.
    """
    names = [target, target.partition(".")[0]] if part is None else [f"{target}.{part}"]
    loaded = [sys.modules.get(name) for name in dict.fromkeys([*names, target])]
    if any(module is not None and not isinstance(module, types.ModuleType) for module in loaded):
        raise Bypass(Reason.OPAQUE_VALUE, f"what the forward imports as {target} is no module; import one, or pass it in")
    parent = loaded[-1]
    value = None if part is None or parent is None else own_names(parent, part).get(part)
    if part is not None and target not in names:
        loaded.pop()
    return [module for module in (*loaded, value) if isinstance(module, types.ModuleType)]


def _attributes(module: types.ModuleType, names: tuple[str, ...], seen: set[int]) -> Iterator[tuple[str, str, str]]:
    if id(module) in seen:
        return
    seen.add(id(module))
    for name in names:
        own = own_names(module, name)
        value = own.get(name)
        if isinstance(value, types.ModuleType):
            yield from _attributes(value, names, seen)
        elif name in own:
            yield "global", module.__name__, name


def searched(frame: types.FrameType) -> tuple[str, str | None, bool] | None:
    """Returns what a starting function of importlib that takes the name of a module looks for, or None for any other code.

    This is the name, the package it is relative to, and whether the module itself is returned.
    """
    code = frame.f_code
    if code.co_name not in ("import_module", "find_spec") or "importlib" not in code.co_filename:
        return None
    if "_bootstrap" in code.co_filename or "name" not in frame.f_locals or "package" not in frame.f_locals:
        return None  # a finder of the import system
    return frame.f_locals["name"], frame.f_locals["package"], code.co_name == "import_module"
