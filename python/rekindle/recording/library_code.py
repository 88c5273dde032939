"""Observes code of Python, torch and NumPy that ran for the user's, to tell that nobody has patched it since.

The versions in the key stand for it, so nothing here refuses anything: what cannot be told is left to the version.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from rekindle.key.code.code_objects import code_digest
from rekindle.key.code.reads import reads_of
from rekindle.key.patches import NAMESPACES
from rekindle.key.values.names import ABSENT, codes_of, find, follow
from rekindle.key.values.walker import Walker, label
from rekindle.process.digest import digest_leaves
from rekindle.process.origin import Origin, is_covered_class, is_heap_class, origin_of, origin_of_frame
from rekindle.process.torch_internals import EXPORTER_PACKAGE
from rekindle.reasons import Bypass, Reason
from rekindle.recording.frames import beyond, first_type, is_user, place_of
from rekindle.recording.library_state import LibraryState

_STATE_DICT = torch.nn.Module.state_dict.__code__

_C_FUNCTIONS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)

# What runs besides the forward's own: the compiler that is kept out of operators defined in Python, and the exporter. Neither
# is loaded in a process that finds a graph.
_BESIDES = ("torch._dynamo", EXPORTER_PACKAGE)

_OF_LIBRARIES = (Origin.STDLIB, Origin.TORCH, Origin.LIBRARY)
_IN_THE_KEY = frozenset(owner for _, owner in NAMESPACES if isinstance(owner, type)) | {object, torch.nn.Module}


class LibraryCode:
    """Collects the code that ran; `keys` are the observations it takes, as (kind, module, name)."""

    def __init__(self) -> None:
        self._ran: dict[int, tuple[types.CodeType, dict[str, Any], bool]] = {}  # (code, globals, is torch's), by identity
        self._not_for_user: set[int] = set()  # of torch's, by identity
        self._state = LibraryState()
        self._replaced: dict[tuple[str, str, str], None] = {}  # as of replaced_by

    def is_known(self, frame: types.FrameType) -> bool:
        """Tells whether `add` may be skipped for a frame that starts: its code ran for Rekindle before, and does so again."""
        return id(frame.f_code) in self._not_for_user and not _is_for_user(frame)

    def add(self, frame: types.FrameType, origin: Origin) -> bool:
        """Notes a frame that starts; what torch's code reads counts too.

        Returns whether the code need not be seen again: not as long as it ran for Rekindle only. Raises Bypass as of
        LibraryState.add, and where a state dict is asked for.
        """
        if str(frame.f_globals.get("__name__")).startswith(_BESIDES):
            return True
        self._ran[id(frame.f_code)] = (frame.f_code, frame.f_globals, origin is Origin.TORCH)
        self._replaced.update(dict.fromkeys(replaced_by(frame)))
        if origin is Origin.TORCH:
            if not _is_for_user(frame):
                self._not_for_user.add(id(frame.f_code))
                return False
            _refuse_state_dict(frame)
            self._state.add(frame.f_code, frame.f_globals)
        return True

    def settings(self) -> list[list[str | None]]:
        """Returns the observations of torch's own state; see library_state.py."""
        return self._state.observations()

    def keys(self, covered: set[int]) -> list[tuple[str, str, str]]:
        """Returns the observations to take, without those of code that is covered otherwise, and without what has no name.

        covered: identities of code
        """
        found = dict(self._replaced)
        for code, namespace, with_reads in list(self._ran.values()):
            module = namespace.get("__name__")
            if not isinstance(module, str):
                continue
            value = find(module, code.co_qualname)
            if id(code) not in covered and any(held is code for held in codes_of(value)):
                found["code", module, code.co_qualname] = None
            for chain in reads_of(code).chains if with_reads else ():
                value, used = follow(namespace, chain)
                if _tells(value):
                    found["library", module, ".".join(chain[:used])] = None
        return list(found)


def replaced_by(frame: types.FrameType) -> Iterator[tuple[str, str, str]]:
    """Yields observations of what is not a library's own under its names: a starting function that is there all the same.

    An example: of `Categorical.entropy = mine`, ("code", "torch.distributions.categorical", "Categorical.entropy").
    """
    code, caller = frame.f_code, frame.f_back
    bases = getattr(first_type(frame, code), "__mro__", ())
    if all(cls.__qualname__ != code.co_qualname.rpartition(".")[0] for cls in bases):
        for cls in bases:
            if is_heap_class(cls) and cls not in _IN_THE_KEY and is_covered_class(cls):
                for name in _holding(vars(cls), vars(cls), code):
                    yield "code", cls.__module__, f"{cls.__qualname__}.{name}"
    if caller is not None and origin_of_frame(caller) in _OF_LIBRARIES:
        module = str(caller.f_globals.get("__name__"))
        for name in _holding(caller.f_globals, caller.f_code.co_names, code):
            if (module, name) != (frame.f_globals.get("__name__"), code.co_qualname):
                yield "code", module, name


def _holding(namespace: Mapping[str, Any], names: Iterable[str], code: types.CodeType) -> list[str]:
    """Returns those of the names under which a namespace has what runs this code."""
    found = []
    for name in names:
        value = namespace.get(name)
        codes = (value.__code__,) if type(value) is types.FunctionType else codes_of(value)
        if any(held is code for held in codes):
            found.append(name)
    return found


def _refuse_state_dict(frame: types.FrameType) -> None:
    """Raises Bypass where code asks for a state dict, for the key leaves out the hooks that make it."""
    if frame.f_code is _STATE_DICT:
        caller = beyond(frame, _OF_LIBRARIES)
        where = "the forward" if caller is None else place_of(caller)
        message = f"{where} asks for a state dict, whose hooks the key leaves out; ask for named_parameters and named_buffers"
        raise Bypass(Reason.OPAQUE_VALUE, message)


def _is_for_user(frame: types.FrameType) -> bool:
    caller = beyond(frame, _OF_LIBRARIES)
    return caller is not None and is_user(caller)


def code_text(value: Any) -> str | None:
    """Returns the text of library code by what it runs: digests of code and defaults; None if it is absent."""
    if value is ABSENT:
        return None
    leaves = [("code", code_digest(code)) for code in codes_of(value)]
    return f"{type(value).__name__} {digest_leaves([*leaves, *_defaults(value)])}"


def read_text(value: Any) -> str | None:
    """Returns the text of what library code reads by name; None if it is absent.

    Functions, classes and modules are told by their names, other things by their type.
    """
    if value is ABSENT:
        return None
    if type(value) is types.FunctionType:
        return f"function {label(value)} {code_text(value)}"
    if isinstance(value, _C_FUNCTIONS):
        return f"{type(value).__name__} {label(value)}"
    if isinstance(value, type):
        return f"class {label(value)}"
    return f"module {vars(value).get('__name__')}" if isinstance(value, types.ModuleType) else f"a {label(type(value))}"


def _tells(value: Any) -> bool:
    """Tells whether the text of a value says which one it is. What an export puts in the place of torch's own does not count."""
    if type(value) is types.FunctionType:
        return origin_of(value.__code__.co_filename) is not Origin.REKINDLE
    return isinstance(value, (*_C_FUNCTIONS, type, types.ModuleType))


def _defaults(value: Any) -> list[tuple[str, Any]]:
    if type(value) is not types.FunctionType:
        return []
    walker = Walker()
    try:
        walker.walk("defaults", value.__defaults__)
        walker.walk("keyword defaults", value.__kwdefaults__)
    except Bypass:
        return []
    return walker.leaves
