"""Refuses code that reads what the key leaves out on purpose: such code cannot be served from the cache."""

from __future__ import annotations

from types import CodeType

from rekindle.key.values.classes import SKIPPED
from rekindle.key.values.objects import VOLATILE_FIELDS
from rekindle.modules.hooks import STATE_DICT_HOOKS
from rekindle.reasons import Bypass, Reason

# Texts and places of code, which may be edited without a miss; ways to values around every name; hooks that few forwards run.
_UNKEPT = frozenset(
    "co_firstlineno co_filename co_linetable co_lines co_positions f_lineno tb_lineno "
    "__globals__ __builtins__ __subclasses__ f_globals f_locals f_builtins f_back hooks_dict_ref extra_dict_ref".split()
).union(SKIPPED, STATE_DICT_HOOKS, *VOLATILE_FIELDS.values())

# Functions that read them for their callers, and what they give besides what the key has.
_ASKED = frozenset("get_annotations get_type_hints getdoc getcomments getsource getsourcelines getfullargspec".split())
_OF_SIGNATURES = frozenset("annotation return_annotation".split())

# Code that mentions one of these may read all that an object has, without the name of any attribute.
_OF_ALL = frozenset("__dict__ vars dir getmembers getmembers_static __getstate__ __reduce__ __reduce_ex__ __dir__".split())


def reads_all(code: CodeType) -> bool:
    """Tells whether code may read attributes without their names."""
    return not _OF_ALL.isdisjoint(code.co_names) or not _OF_ALL.isdisjoint(code.co_consts)


def refuse_unkept(code: CodeType, where: str) -> None:
    """Raises Bypass if the code reads an attribute that the key leaves out, by name or as getattr's text.

    where: module and qualified name of the code; code of transformers is let through
    """
    texts = {const for const in code.co_consts[1:] if type(const) is str}
    found = _UNKEPT.intersection(code.co_names) or _UNKEPT.intersection(texts) or _ASKED.intersection(code.co_names)
    if "signature" in code.co_names:
        found |= _OF_SIGNATURES.intersection(code.co_names)
    if found and not where.startswith("transformers."):
        raise Bypass(
            Reason.OPAQUE_VALUE,
            f"{where} reads {min(found)}, which the key leaves out; keep the value as an attribute of the module",
        )
