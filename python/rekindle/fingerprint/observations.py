"""Single observations: [kind, module, name, text], and the check of a list of them against the present.

kinds: "function" and "class" (code that ran, under a name), "global" (a name and the attributes taken from
it), "from" (a name imported inside a function), "import" (whether a module can be imported), "env" (an
environment variable), "file" (the source of a module first loaded by the forward). text is None for what is
absent.
"""

from __future__ import annotations

import builtins
import os
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

from rekindle.fingerprint import world
from rekindle.fingerprint.callables import LIBRARY_ROOTS
from rekindle.fingerprint.classes import class_digest, one_pass
from rekindle.fingerprint.code import code_digest
from rekindle.fingerprint.digest import digest128
from rekindle.fingerprint.resolve import ABSENT, find, locate
from rekindle.fingerprint.values import label, value_text
from rekindle.fingerprint.versions import distribution_version

Observation = list["str | None"]


def verify(recorded: Sequence[Sequence[str | None]]) -> str | None:
    """The first observation that no longer holds, as a sentence with old and new, or None if all hold."""
    for kind, module, name, old, new in present(recorded):
        if new != old:
            return f"{title(kind, module, name)} changed: {old or 'absent'} -> {new or 'absent'}"
    return None


def present(
    recorded: Sequence[Sequence[str | None]],
) -> Iterator[tuple[str, str, str, str | None, str | None]]:
    """(kind, module, name, recorded text, present text) of each observation."""
    files = {module for kind, module, _, _ in recorded if kind == "file"}
    with one_pass():
        for kind, module, name, old in recorded:
            assert kind is not None and module is not None and name is not None
            new = old
            # A module that is not loaded yet in this process is stood for by its source file.
            if kind == "file" or module not in files or module in sys.modules:
                try:
                    new = present_text(kind, module, name)
                except Exception as error:
                    new = f"can no longer be digested: {error}"
            yield kind, module, name, old, new


def title(kind: str, module: str, name: str) -> str:
    """What an observation is about, for a sentence."""
    if kind == "env":
        return f"environment variable {name}"
    if kind in ("import", "file"):
        return f"module {module}"
    return f"{'global' if kind == 'from' else kind} {module}.{name}"


def present_text(kind: str, module: str, name: str) -> str | None:
    """The text that stands for the observed thing as it is now; raises Bypass if it cannot be digested."""
    if kind == "env":
        return world.env_text(name, os.environ.get(name))
    if kind == "import":
        return None if locate(module) is None else "present"
    if kind == "file":
        return _file_text(module)
    if kind in ("function", "class"):
        value = find(module, name)
        return None if value is ABSENT else _value_text(f"{module}.{name}", value, deep=True)
    loaded = sys.modules.get(module)
    if loaded is None:
        return None
    value = _follow(vars(loaded), name.split("."))[0]
    return None if value is ABSENT else _value_text(f"{module}.{name}", value)


def used_chain(namespace: dict[str, Any], chain: tuple[str, ...]) -> tuple[str, ...]:
    """The part of a chain that reads modules and classes; what is read from a value is covered by the
    value."""
    return chain[: _follow(namespace, chain)[1]]


def absolute_name(name: str, level: int, namespace: dict[str, Any]) -> str:
    """Absolute name of a module imported by code with these globals."""
    if not level:
        return name
    package = namespace.get("__package__") or namespace.get("__name__", "")
    base = package.rsplit(".", level - 1)[0]
    return f"{base}.{name}" if name else base


def _follow(namespace: dict[str, Any], chain: Sequence[str]) -> tuple[Any, int]:
    """The value at the end of a chain and how many names it took; ABSENT if a name is not there."""
    value = namespace.get(chain[0], ABSENT)
    if value is ABSENT:
        value = vars(builtins).get(chain[0], ABSENT)
    used = 1
    for name in chain[1:]:
        # Modules of other classes make their attributes when asked, which no check may do.
        if type(value) is types.ModuleType:
            value = vars(value).get(name, ABSENT)
        elif isinstance(value, type):
            value = _class_attribute(value, name)
        else:
            break
        used += 1
    return value, used


def _class_attribute(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return ABSENT


def _value_text(path: str, value: Any, deep: bool = False) -> str:
    """Text of an observed value. Classes and functions of versioned libraries are named, others digested."""
    if isinstance(value, type):
        root = value.__module__.partition(".")[0]
        if not deep and (root in LIBRARY_ROOTS or distribution_version(root) is not None):
            return f"class {label(value)} {distribution_version(root)}"
        return f"class {label(value)} {class_digest(value)}"
    if type(value) is types.FunctionType and _root(value) in LIBRARY_ROOTS:
        return f"function {label(value)} {code_digest(value.__code__)}"
    return value_text(path, value)


def _root(function: types.FunctionType) -> str:
    return (function.__module__ or "").partition(".")[0]


def _file_text(module: str) -> str | None:
    path = locate(module)
    if path is None or not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        return digest128(file.read())
