"""Takes single observations, [kind, module, name, text], and checks a list of them against the present.

text is None for what is absent. kind is one of:

    function, class    code that ran, under a name
    global             a name and the attributes taken from it
    from               a name imported inside a function
    module             all that a module of the user's defines
    import             whether a module can be imported
    env                an environment variable
    file               the source of a module first loaded by the forward
    code, library      code of torch or Python that ran, and names it read
    version            that of an installed package
    binary             the build of an extension module
    query              a question about the process
    order              that of the items of sets
    logger             what it lets through
    setting            torch's own state
    identity           which objects that others read, or the key has, are in several places (key/values/places.py); the last
    answers            those of a cached function; not a text to be equal to
    shape              that of an argument, with symbols; compared by the caller
    size               what the forward asked about sizes, and the answer; compared by the caller

For example, the module `app` held `RATE = 0.1`, which the forward read: the observation is ["global", "app", "RATE", "0.1"]. Once
RATE is 0.2, `verify` says "global app.RATE changed: 0.1 -> 0.2".
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

from rekindle.key.code.binaries import build_id
from rekindle.key.code.module_names import read_names
from rekindle.key.values.classes import class_digest, one_pass, registered_with
from rekindle.key.values.names import ABSENT, find, follow, locate
from rekindle.key.values.places import Places
from rekindle.key.values.walker import Walker, label, value_text, walks_kept
from rekindle.key.versions import distribution_version
from rekindle.process import world
from rekindle.process.digest import digest128
from rekindle.process.origin import Origin, is_covered_class, is_covered_function, origin_of
from rekindle.process.process_state import unpatched
from rekindle.reasons import Bypass
from rekindle.recording import cached_functions, library_code, library_state, logger_reads, queries

Observation = list["str | None"]
KINDS = frozenset(
    "function class global from module import env file code library version binary query order answers logger "
    "setting shape size identity".split()
)
_OF_MODULES = frozenset(("function", "class", "global", "from", "module", "code", "library"))  # of what modules hold
_IDENTITY = ("identity", "", "")
# Modules that a forward was the first to load in this process, or is about to be: a later export observes their files, too.
LOADED_BY_FORWARDS: set[str] = set()


def verify(recorded: Sequence[Sequence[str | None]], places: Places | None = None) -> str | None:
    """Returns the first observation that no longer holds, as a sentence with old and new, or None if all hold.

    Imports the modules of the user's that the forward was the first to import, as it is about to do again, once nothing else
    tells that it would not: what they hold is compared then.

    places: of the objects that the key of the call has
    """
    changed = _first_change(recorded, places)
    if changed is None and (modules := _to_import(recorded)):
        changed = _imported(modules) or _first_change(recorded, places)
    return changed


def _first_change(recorded: Sequence[Sequence[str | None]], places: Places | None) -> str | None:
    for kind, module, name, old, new in present(recorded, places):
        if new != old:
            return f"{title(kind, module, name)} changed: {old or 'absent'} -> {new or 'absent'}"
    return None


def _to_import(recorded: Sequence[Sequence[str | None]]) -> list[str]:
    """Lists modules of the user's that are not loaded and that the forward was the first to load, in its order."""
    missing = [str(module) for kind, module, *_ in recorded if kind == "file" and module not in sys.modules]
    return [module for module in missing if origin_of(locate(module) or "") is Origin.USER]


def _imported(modules: Sequence[str]) -> str | None:
    """Imports modules; says which one cannot be, as the forward will."""
    for module in modules:
        try:
            importlib.import_module(module)
            LOADED_BY_FORWARDS.add(module)
        except Exception as error:
            return f"module {module} can no longer be imported: {type(error).__name__}: {error}"
    return None


def present(
    recorded: Sequence[Sequence[str | None]], beneath: Places | None = None
) -> Iterator[tuple[str, str, str, str | None, str | None]]:
    """Yields (kind, module, name, recorded text, present text) of each observation, that of identity if it has either text.

    beneath: places of the objects that the key of the call has
    """
    identity: str | None = None
    places = Places(beneath)
    files = {module for kind, module, _, _ in recorded if kind == "file"}
    may_be_loaded = bool(_to_import(recorded))  # with others
    with one_pass():
        for kind, module, name, old in recorded:
            assert kind is not None and module is not None and name is not None
            if kind == "identity":
                identity = old
                continue
            new = old
            # A module that is not loaded yet in this process is stood for by its source file, or by that of what loads it.
            unloaded = module not in sys.modules and (module in files or (may_be_loaded and kind in _OF_MODULES))
            if kind == "file" or not unloaded:
                try:
                    new = _now(kind, module, name, old, places)
                except Exception as error:
                    new = f"can no longer be digested: {error}"
            yield kind, module, name, old, new
        if identity is not None or places.text() is not None:
            yield *_IDENTITY, identity, places.text()


def with_identity(recorded: list[Observation], beneath: Places | None) -> list[Observation]:
    """Returns observations with the one of identity, which is about all of them; `beneath`: as of `present`."""
    others = [one for one in recorded if one[0] != "identity"]
    return others + [[kind, module, name, new] for kind, module, name, _, new in present(others, beneath) if kind == "identity"]


def _now(kind: str, module: str, name: str, old: str | None, places: Places) -> str | None:
    """Returns the present text, which is the old one if that still holds; adds to `places` what it is made of."""
    if kind in ("shape", "size"):
        return old
    if kind == "answers":
        return old if cached_functions.hold(module, name, old or "") else "other answers"
    walks: list[Walker] = []
    with walks_kept(walks):
        text = present_text(kind, module, name)
    for walk in walks:
        places.add(walk)
    return text


def title(kind: str, module: str, name: str) -> str:
    """Says what an observation is about, for a sentence."""
    if kind == "env":
        return f"environment variable {name}"
    if kind in ("import", "file", "module"):
        return f"module {module}"
    if kind == "identity":
        return "which objects are in several places"
    if kind in ("code", "library", "setting"):
        return f"{module}.{name}"
    if kind in ("version", "binary", "query", "order", "logger"):
        return {
            "version": f"the version of {module}",
            "binary": f"the build of {module}",
            "query": f"{module}.{name}()",
            "order": f"the order of a set of {name.partition(' ')[2] or name}",
            "logger": f"logger {name}",
        }[kind]
    return f"{'global' if kind == 'from' else kind} {module}.{name}"


def present_text(kind: str, module: str, name: str) -> str | None:
    """Returns the text that stands for the observed thing as it is now; raises Bypass if it cannot be digested."""
    if kind == "env":
        return world.env_now(name)
    if kind == "import":
        return None if locate(module) is None else "present"
    if kind == "file":
        return _file_text(module)
    if kind == "binary":
        return build_id(getattr(sys.modules.get(module), "__file__", None) or "")
    if kind == "version":
        return distribution_version(module)
    if kind == "query":
        return queries.answer(module, name)
    if kind == "order":
        return world.order_text(name)
    if kind == "setting":
        return library_state.text_of(module, name)
    if kind == "logger":
        return logger_reads.state_of(name)
    if kind == "code":
        return library_code.code_text(unpatched(find(module, name)))
    return _loaded_text(kind, module, name)


def _loaded_text(kind: str, module: str, name: str) -> str | None:
    """Returns the text of what a loaded module holds; None if it is absent."""
    loaded = sys.modules.get(module)
    if loaded is None:
        return None
    if kind == "module":
        return value_text(module, loaded)
    value = find(module, name) if kind in ("function", "class") else follow(read_names(loaded), name.split("."))[0]
    if kind == "library":
        return library_code.read_text(value)
    return None if value is ABSENT else _value_text(f"{module}.{name}", value)


def absolute_name(name: str, level: int, namespace: dict[str, Any]) -> str:
    """Returns the absolute name of a module imported by code with these globals.

    level: of a relative import; 0 for an absolute one
    """
    if not level:
        return name
    package = namespace.get("__package__") or namespace.get("__name__", "")
    base = package.rsplit(".", level - 1)[0]
    return f"{base}.{name}" if name else base


def _value_text(path: str, value: Any) -> str:
    """Returns the text of an observed value. What a version stands for is named, other things are digested."""
    if isinstance(value, type):
        named = value_text(path, value) if is_covered_class(value) else f"class {label(value)}"
        return f"{named} {_class_version(value)}"
    if type(value) is types.FunctionType and is_covered_function(value):
        return str(library_code.read_text(value))
    return value_text(path, value)


def _class_version(cls: type) -> str | None:
    """Returns the digest of a class, or its package's version where it has none; None for what the key's versions stand for."""
    if is_covered_class(cls):
        registered = registered_with(cls) if "_abc_impl" in vars(cls) else []
        return repr(registered) if registered else None
    try:
        return class_digest(cls)
    except Bypass:
        version = distribution_version(cls.__module__.partition(".")[0])
        if version is None:
            raise
        return version


def _file_text(module: str) -> str | None:
    """Digests the file of a module; None if there is none."""
    path = locate(module)
    if path is None or not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        return digest128(file.read())


def lasting(recorded: list[Observation]) -> list[Observation]:
    """Returns the observations without the settings of torch's that are others only while an export runs."""
    return [one for one in recorded if one[0] != "setting" or present_text("setting", str(one[1]), str(one[2])) == one[3]]
