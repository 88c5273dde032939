"""Checks the values of options, and brings them into one form: text of an environment variable, or what a program gives."""

from __future__ import annotations

import os
import re
from typing import Any

from rekindle import _native
from rekindle.errors import OptionError
from rekindle.memory_plan import MemoryPlan, read_plan

# The share that goes into computing anything again, at each memory level; a forward is a third of a step.
TIMES_OF_LEVELS = (0.0, 0.1, 0.34)
_CHOICES: dict[str, tuple[str, ...]] = {
    "cache": ("on", "off", "readonly", "refresh", "strict", "verify", "verify:1/N"),
    "fallback": ("eager", "error"),
    "numerics": ("fast", "eager"),
    "dynamic": ("auto", "static"),
    "start": ("wait", "background"),
    "log": ("debug", "info", "warning", "error", "off"),
}


def checked(name: str, value: Any, origin: str) -> Any:
    """Returns the value of the option `name`, given by `origin`. Raises OptionError for one that it cannot have."""
    if name == "cache" and isinstance(value, str) and re.fullmatch("verify:1/[1-9][0-9]{0,8}", value):
        return value
    if name in _CHOICES and (value not in _CHOICES[name] or value == "verify:1/N"):
        raise OptionError(f"{origin} is {value!r}; it must be one of {', '.join(_CHOICES[name])}")
    if name == "memory_budget" and value is not None:
        return _budget(value, origin)
    if name == "memory_level" and value is not None:
        return _level(value, origin)
    if name == "memory_plan" and value is not None:
        return value if isinstance(value, MemoryPlan) else read_plan(value, origin)
    if name in ("inline_functions", "padding_elimination", "cuda_graphs", "fused_kernels"):
        if str(value).lower() not in ("true", "false", "0", "1"):
            raise OptionError(f"{origin} is {value!r}; it must be true or false")
        return str(value).lower() in ("true", "1")
    if name == "key_salt" and not isinstance(value, str):
        raise OptionError(f"{origin} is {value!r}; it must be text")
    if name == "exclude_attributes":
        return _names(value, origin)
    if name == "print_memory":
        return _calls(value, origin)
    if name == "cache_size" and value is not None:
        return _bytes(value, origin)
    if name == "wait_seconds":
        return _seconds(value, origin)
    if name == "cache_dir" and value is not None:
        return _directory(value, origin)
    if name == "remote" and value is not None:
        return _remote(value, origin)
    return value


def _directory(value: Any, origin: str) -> str:
    """Returns a path that stays the same when the process goes to another directory; "" stands for the default."""
    try:
        path = os.fsdecode(value)
    except TypeError:
        path = "\0"
    if "\0" in path:
        raise OptionError(f"{origin} is {value!r}; it must be the path of a directory")
    path = os.path.abspath(os.path.expanduser(path)) if path else path
    try:
        path.encode()
    except UnicodeEncodeError:
        raise OptionError(f"{origin} is {path!r}, which is not UTF-8; choose a directory whose path is") from None
    return path


def _remote(value: Any, origin: str) -> str:
    if not isinstance(value, str):
        raise OptionError(f"{origin} is {value!r}; it must be text, such as 'file:///shared/rekindle ro'")
    try:
        _native.check_remote(value)
    except (_native.RekindleError, UnicodeEncodeError) as error:
        shown = re.sub(r"//[^/;]*@", "//...@", value)  # a name and a password
        raise OptionError(f"{origin} is {shown!r}: {error}") from None
    return value


def _names(value: Any, origin: str) -> tuple[str, ...]:
    names = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    try:
        names = sorted({name for name in names if name != ""})
    except TypeError:
        names = [None]
    for name in names:
        if not isinstance(name, str) or not name.rpartition(".")[2].isidentifier() or "." not in name:
            raise OptionError(
                f"{origin} is {value!r}; it must be names such as 'package.Class.attribute' or 'model.layers[0].attribute'"
            )
    return tuple(names)


def _calls(value: Any, origin: str) -> tuple[int, ...]:
    numbers = [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    try:
        calls = tuple(sorted({int(str(number)) for number in numbers}))
    except (TypeError, ValueError):
        calls = (0,)
    if calls and calls[0] < 1:
        raise OptionError(f"{origin} is {value!r}; it must be numbers of calls, 1 or more, as '1,100' or (1, 100)")
    return calls


def _bytes(value: Any, origin: str) -> int:
    try:
        return _native.parse_size(str(value))
    except _native.RekindleError as error:
        raise OptionError(f"{origin}: {error}") from None


def _budget(value: Any, origin: str) -> int | float:
    """Returns bytes as an int, and a share as a float."""
    text = str(value).strip()
    wrong = f"{origin} is {value!r}; it must be bytes, as 2000000000 or '2GiB', or a share above 0, up to 1, as 0.5 or '50%'"
    if isinstance(value, bool):
        raise OptionError(wrong)
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = None
    is_share = text.endswith("%") or (share is not None and not re.fullmatch("[0-9]+", text) and share <= 1)
    if is_share and share is not None:
        if not 0 < share <= 1:
            raise OptionError(wrong)
        return share
    if share is not None and (isinstance(value, float) or not share.is_integer()):  # 2.0 is no share, and hardly bytes
        raise OptionError(wrong)
    try:
        size = _native.parse_size(text if share is None else str(int(share)))
    except _native.RekindleError:
        raise OptionError(wrong) from None
    if size < 1:
        raise OptionError(wrong)
    return size


def _level(value: Any, origin: str) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or text not in map(str, range(len(TIMES_OF_LEVELS))):
        raise OptionError(f"{origin} is {value!r}; it must be 0, 1 or 2")
    return int(text)


def _seconds(value: Any, origin: str) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise OptionError(f"{origin} is {value!r}; it must be a number of seconds, 0 or more")
    return seconds
