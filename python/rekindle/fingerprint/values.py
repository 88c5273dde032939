"""Canonical leaves of Python values.

A `Walker` turns any value into ordered (path, leaf) pairs. Leaves are None, bool, int, float or text; text
of a real string is quoted, so it never reads like the text of something else. What cannot be digested raises
`Bypass` with the path of the value.
"""

from __future__ import annotations

import collections
import contextvars
import enum
import functools
import logging
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from rekindle.fingerprint.code import code_digest
from rekindle.fingerprint.digest import Leaf, digest128, digest_leaves
from rekindle.reasons import Bypass, Reason

Handler = Callable[["Walker", str, Any], None]

_TEXT_LIMIT = 160
_PRIMITIVES = frozenset({type(None), bool, int, float, str})
_HEAP_TYPE = 1 << 9
LIBRARY_ROOTS = sys.stdlib_module_names | {
    "torch"
}  # packages whose classes are named as values: the key has their versions
SINGLE_DISPATCH = functools.singledispatch(len).__code__  # shared by all single-dispatch functions
_UNSET = object()  # stands for a context variable without a value
_POINTER = object.__basicsize__ // 2

handlers: dict[type, Handler] = {}
_found: dict[type, Handler] = {}
registered: dict[type, Callable[[Any], Any]] = {}


def register_digest(kind: type, function: Callable[[Any], Any]) -> None:
    """Make values of type `kind` digestible: `function(value)` returns plain data that stands for the
    value."""
    registered[kind] = function
    _found.clear()


def opaque(path: str, value: object, why: str = "") -> Bypass:
    """The bypass for a value that cannot be digested."""
    kind = type(value)
    return Bypass(
        Reason.OPAQUE_VALUE,
        f"{path} is a {kind.__module__}.{kind.__qualname__}{why or ', whose content cannot be digested'}; "
        "replace it by plain data, move it out of the forward's reach, "
        "or register its type with rekindle.register_digest",
    )


def label(value: Any) -> str:
    """Module and qualified name of a class or function."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", "?")
    return f"{getattr(value, '__module__', None) or '?'}.{name}"


class Walker:
    """One walk over values that may share parts. Not reentrant; one use per digest.

    containers: every mutable dict, list or set met, in order. tensors: (path, tensor) whose content was
    digested. functions, classes: what the walk covers by code. deep_classes: follow class values into their
    code; inside the digest of a class other classes are named only, so that no digest depends on where the
    walk began. known: objects by identity that have a path already.
    """

    def __init__(self, deep_classes: bool = True, known: dict[int, tuple[str, Any]] | None = None) -> None:
        self.leaves: list[Leaf] = []
        self.containers: list[Any] = []
        self.tensors: list[tuple[str, Any]] = []
        self.functions: list[types.FunctionType] = []
        self.classes: dict[int, type] = {}
        self.deep_classes = deep_classes
        self._memo: dict[int, tuple[str, Any]] = dict(known) if known else {}

    def emit(self, path: str, value: str | int | float | bool | None) -> None:
        """Add one leaf."""
        self.leaves.append((path, value))

    def seen(self, path: str, value: object) -> bool:
        """Whether the object was met before; then a reference leaf is added. Remembers it otherwise."""
        known = self._memo.get(id(value))
        if known is not None:
            self.leaves.append((path, f"ref {known[0]}"))
            return True
        self._memo[id(value)] = (path, value)
        return False

    def walk(self, path: str, value: Any) -> None:
        """Add the leaves of a value."""
        kind = type(value)
        handler = handlers.get(kind) or _found.get(kind)
        if handler is None:
            handler = _found[kind] = _find_handler(value)
        handler(self, path, value)

    def add_class(self, cls: type) -> str:
        """Label and digest of a class's code, MRO included; the class is noted as covered."""
        from rekindle.fingerprint.classes import class_digest

        self.classes[id(cls)] = cls
        return f"{cls.__module__}.{cls.__qualname__} {class_digest(cls)}"


def value_text(path: str, value: Any) -> str:
    """One line that stands for a value: the value itself when short, else its kind and digest."""
    walker = Walker()
    walker.walk(path, value)
    return leaves_text(walker.leaves)


def leaves_text(leaves: list[Leaf]) -> str:
    """One line that stands for a list of leaves with a common root."""
    first = leaves[0][1]
    head = first if type(first) is str else repr(first)
    return str(head) if len(leaves) == 1 else f"{head} {digest_leaves(leaves)}"


def _clip(kind: str, size: int, text: str) -> str:
    if len(text) <= _TEXT_LIMIT:
        return text
    return f"{kind}[{size}] {digest128(text.encode('utf-8', 'surrogatepass'))}"


def _plain(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, value))


def _int(walker: Walker, path: str, value: int) -> None:
    walker.leaves.append((path, value if -(1 << 63) <= value < 1 << 63 else f"int {value:x}"))


def _str(walker: Walker, path: str, value: str) -> None:
    walker.leaves.append((path, _clip("str", len(value), repr(value))))


def _bytes(walker: Walker, path: str, value: bytes | bytearray) -> None:
    text = f"{type(value).__name__}[{len(value)}] "
    walker.leaves.append((path, text + (value.hex() if len(value) <= 32 else digest128(bytes(value)))))


def _repr(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"{type(value).__name__} {value!r}"))


def _label(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"{type(value).__name__} {label(value)}"))


def _code(walker: Walker, path: str, value: types.CodeType) -> None:
    walker.leaves.append((path, f"code {code_digest(value)}"))


def _sentinel(walker: Walker, path: str, value: object) -> None:
    if not walker.seen(path, value):
        walker.leaves.append((path, "object()"))


def _context_variable(walker: Walker, path: str, value: contextvars.ContextVar) -> None:
    walker.leaves.append((path, f"context variable {value.name}"))
    content = value.get(_UNSET)
    walker.walk(f"{path}.get()", content)


def _noise(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"noise {type(value).__name__}"))


def _sequence(walker: Walker, path: str, value: Any) -> None:
    kind = type(value).__name__
    if type(value) is list:
        walker.containers.append(value)
    # Which equal tuples are one object is up to the interpreter, so only mutable sequences are known by
    # identity.
    if type(value) is not tuple and walker.seen(path, value):
        return
    if set(map(type, value)) <= _PRIMITIVES:
        text = repr(value) if type(value) in (list, tuple) else f"{kind} {list(value)!r}"
        walker.leaves.append((path, _clip(kind, len(value), text)))
        return
    walker.leaves.append((path, f"{kind}[{len(value)}]"))
    for index, item in enumerate(value):
        walker.walk(f"{path}[{index}]", item)


def _mapping(walker: Walker, path: str, value: Any) -> None:
    if isinstance(value, dict):
        walker.containers.append(value)
    if walker.seen(path, value):
        return
    items(walker, path, type(value).__name__, value.items())
    factory = getattr(value, "default_factory", None)
    if factory is not None:
        walker.walk(f"{path}.default_factory", factory)


def items(walker: Walker, path: str, kind: str, pairs: Iterable[tuple[Any, Any]]) -> None:
    """Leaves of mapping items in their order; keys that are not plain get leaves of their own."""
    pairs = list(pairs)
    walker.leaves.append((path, f"{kind}[{len(pairs)}]"))
    for index, (key, item) in enumerate(pairs):
        if type(key) in _PRIMITIVES:
            walker.walk(f"{path}[{key!r}]", item)
        else:
            walker.walk(f"{path}.keys[{index}]", key)
            walker.walk(f"{path}.values[{index}]", item)


def _set(walker: Walker, path: str, value: Any) -> None:
    if type(value) is set:
        walker.containers.append(value)
        if walker.seen(path, value):
            return
    kind = type(value).__name__
    if set(map(type, value)) <= _PRIMITIVES:
        walker.leaves.append((path, _clip(kind, len(value), f"{kind} {sorted(map(repr, value))}")))
        return
    texts = []
    for item in value:
        inner = Walker(walker.deep_classes)
        inner.walk(f"{path}{{}}", item)
        texts.append(leaves_text(inner.leaves))
        walker.functions += inner.functions
        walker.classes |= inner.classes
        walker.tensors += inner.tensors
        walker.containers += inner.containers
    walker.leaves.append(
        (path, f"{kind}[{len(value)}] {digest_leaves(('', text) for text in sorted(texts))}")
    )


def _enum(walker: Walker, path: str, value: enum.Enum) -> None:
    walker.leaves.append((path, f"enum {label(type(value))}.{value.name}"))
    walker.walk(f"{path}.value", value.value)


def _namedtuple(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"tuple {label(type(value))}[{len(value)}]"))
    names = getattr(value, "_fields", range(len(value)))
    for name, item in zip(names, value, strict=True):
        walker.walk(f"{path}.{name}", item)


def _function(walker: Walker, path: str, value: types.FunctionType) -> None:
    if walker.seen(path, value):
        return
    walker.functions.append(value)
    walker.leaves.append((path, f"function {value.__qualname__} {code_digest(value.__code__)}"))
    if value.__code__ is SINGLE_DISPATCH:  # its closure holds a cache that fills as it runs
        walker.walk(f"{path}.registry", value.registry)  # type: ignore[attr-defined]
        return
    if value.__defaults__ is not None:
        walker.walk(f"{path}.__defaults__", value.__defaults__)
    if value.__kwdefaults__ is not None:
        walker.walk(f"{path}.__kwdefaults__", value.__kwdefaults__)
    if value.__closure__ is not None:
        for name, cell in zip(value.__code__.co_freevars, value.__closure__, strict=True):
            try:
                content = cell.cell_contents
            except ValueError:
                walker.leaves.append((f"{path}.{name}", "empty cell"))
                continue
            walker.walk(f"{path}.{name}", content)
    for name, item in vars(value).items():
        walker.walk(f"{path}.{name}", item)


def _builtin(walker: Walker, path: str, value: Any) -> None:
    owner = value.__self__
    walker.leaves.append((path, f"builtin {label(value)}"))
    if owner is not None and not isinstance(owner, (types.ModuleType, type)):
        walker.walk(f"{path}.__self__", owner)


def _method(walker: Walker, path: str, value: types.MethodType) -> None:
    walker.leaves.append((path, f"method {value.__func__.__qualname__}"))
    walker.walk(f"{path}.__func__", value.__func__)
    walker.walk(f"{path}.__self__", value.__self__)


def _partial(walker: Walker, path: str, value: functools.partial) -> None:
    walker.leaves.append((path, "partial"))
    walker.walk(f"{path}.func", value.func)
    walker.walk(f"{path}.args", value.args)
    walker.walk(f"{path}.keywords", value.keywords)


def _wrapped(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, type(value).__name__))
    walker.walk(f"{path}.__wrapped__", value.__wrapped__)


def _class(walker: Walker, path: str, value: type) -> None:
    root = value.__module__.partition(".")[0]
    deep = walker.deep_classes and value.__flags__ & _HEAP_TYPE and root not in LIBRARY_ROOTS
    walker.leaves.append((path, f"class {walker.add_class(value) if deep else label(value)}"))


def _module(walker: Walker, path: str, value: types.ModuleType) -> None:
    walker.leaves.append((path, f"module {value.__name__} {getattr(value, '__version__', None)}"))


def _weakref(walker: Walker, path: str, value: weakref.ref) -> None:
    walker.leaves.append((path, "weakref"))
    walker.walk(f"{path}()", value())


def _property(walker: Walker, path: str, value: property) -> None:
    walker.leaves.append((path, "property"))
    for name in ("fget", "fset", "fdel"):
        walker.walk(f"{path}.{name}", getattr(value, name))


def _wrapper(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, type(value).__name__))
    walker.walk(f"{path}.__func__", value.__func__)


def _cached_property(walker: Walker, path: str, value: functools.cached_property) -> None:
    walker.leaves.append((path, "cached_property"))
    walker.walk(f"{path}.func", value.func)


def _unexplained_size(cls: type, builtin: type) -> int:
    """Bytes of an instance that its builtin base, slots and instance dict do not account for: state held in
    C."""
    size = cls.__basicsize__ - builtin.__basicsize__
    for base in cls.__mro__:
        size -= _POINTER * sum(type(member) is types.MemberDescriptorType for member in vars(base).values())
    return size - _POINTER * (bool(cls.__dictoffset__) + bool(cls.__weakrefoffset__))


# Classes whose state lies in these attributes only; the check of an instance's class is done once.
_object_classes: dict[type, bool] = {}
# Fields of library objects that name where a thing came from and never change what a forward computes.
VOLATILE_FIELDS = {
    "PreTrainedConfig": frozenset({"_name_or_path", "_commit_hash", "transformers_version"}),
    "PretrainedConfig": frozenset({"_name_or_path", "_commit_hash", "transformers_version"}),
    "PreTrainedModel": frozenset({"name_or_path"}),
}


def volatile_fields(cls: type) -> frozenset[str]:
    """Names of attributes that are left out for instances of a class."""
    for base in cls.__mro__:
        if base.__name__ in VOLATILE_FIELDS and base.__module__.startswith("transformers."):
            return VOLATILE_FIELDS[base.__name__]
    return frozenset()


def _object(walker: Walker, path: str, value: Any) -> None:
    """Any object of a Python class: its class's code, its attributes, and its items if it is a container
    too."""
    if walker.seen(path, value):
        return
    cls = type(value)
    walker.leaves.append((path, f"object {walker.add_class(cls) if walker.deep_classes else label(cls)}"))
    for base in (dict, list, tuple, set, frozenset, str, int, float, bytes):
        if isinstance(value, base):
            _base_content(walker, path, base, value)
            break
    attributes = getattr(value, "__dict__", None)
    if attributes:
        walker.containers.append(attributes)
        skipped = volatile_fields(cls)
        for name, item in attributes.items():
            if name not in skipped:
                walker.walk(f"{path}.{name}", item)
    for base in cls.__mro__:
        for name, member in vars(base).items():
            if type(member) is types.MemberDescriptorType:
                try:
                    item = member.__get__(value, cls)
                except AttributeError:
                    walker.leaves.append((f"{path}.{name}", "unset slot"))
                    continue
                walker.walk(f"{path}.{name}", item)


def _base_content(walker: Walker, path: str, base: type, value: Any) -> None:
    if base in (dict, list, set):
        walker.containers.append(value)
    if base is dict:
        items(walker, f"{path}.items", "dict", dict.items(value))
        if isinstance(value, collections.defaultdict):
            walker.walk(f"{path}.default_factory", value.default_factory)
    elif base in (list, tuple):
        _sequence(walker, f"{path}.items", tuple(base.__iter__(value)))
    elif base in (set, frozenset):
        _set(walker, f"{path}.items", frozenset(base.__iter__(value)))
    else:
        convert = {str: str.__str__, int: int.__int__, float: float.__float__, bytes: bytes.__bytes__}[base]
        handlers[base](walker, f"{path}.value", convert(value))


def _refuse(walker: Walker, path: str, value: Any) -> None:
    raise opaque(path, value)


_PLAIN_BASES = (object, dict, list, tuple, set, frozenset, str, int, float, bytes)
_PLAIN_BASES += (collections.OrderedDict, collections.defaultdict)


def _is_plain_class(cls: type) -> bool:
    """Whether all state of an instance is visible: attributes, slots, and the items of a builtin base."""
    known = _object_classes.get(cls)
    if known is None:
        builtin_bases = [base for base in cls.__mro__ if not base.__flags__ & _HEAP_TYPE]
        plain = all(base in _PLAIN_BASES for base in builtin_bases)
        if plain:
            plain = _unexplained_size(cls, builtin_bases[0]) <= 0
        known = _object_classes[cls] = plain and bool(cls.__flags__ & _HEAP_TYPE)
    return known


def _registered_handler(function: Callable[[Any], Any]) -> Handler:
    def handle(walker: Walker, path: str, value: Any) -> None:
        walker.leaves.append((path, f"registered {label(type(value))}"))
        walker.walk(f"{path}.digest", function(value))

    return handle


def _find_handler(value: Any) -> Handler:
    """The handler of a type met for the first time; exact types are in `handlers`."""
    from rekindle.fingerprint import library_values

    cls = type(value)
    for base in cls.__mro__:
        if base in registered:
            return _registered_handler(registered[base])
    if isinstance(value, type):
        return _class
    if isinstance(value, enum.Enum):
        return _enum
    handler = library_values.find(value)
    if handler is not None:
        return handler
    if isinstance(value, logging.Logger | logging.LoggerAdapter | logging.Handler):
        return _noise
    if isinstance(value, types.ModuleType):
        return _module
    if isinstance(value, weakref.ref):
        return _weakref
    if isinstance(value, functools.partial):
        return _partial
    if isinstance(value, property):
        return _property
    if isinstance(value, functools.cached_property):
        return _cached_property
    if isinstance(value, tuple) and (hasattr(cls, "_fields") or hasattr(cls, "n_fields")):
        return _namedtuple
    return _object if _is_plain_class(cls) else _refuse


def _register() -> None:
    for kinds, handler in (
        ((type(None), bool, float), _plain),
        ((int,), _int),
        ((str,), _str),
        ((bytes, bytearray), _bytes),
        (
            (
                complex,
                range,
                slice,
                type(Ellipsis),
                type(NotImplemented),
                types.GenericAlias,
                types.UnionType,
            ),
            _repr,
        ),
        ((list, tuple, collections.deque), _sequence),
        (
            (
                dict,
                collections.OrderedDict,
                collections.defaultdict,
                collections.Counter,
                types.MappingProxyType,
            ),
            _mapping,
        ),
        ((set, frozenset), _set),
        ((types.FunctionType,), _function),
        ((types.CodeType,), _code),
        ((object,), _sentinel),
        ((contextvars.ContextVar,), _context_variable),
        ((types.BuiltinFunctionType, types.MethodWrapperType), _builtin),
        ((types.MethodType,), _method),
        ((staticmethod, classmethod), _wrapper),
        ((functools._lru_cache_wrapper,), _wrapped),
        ((types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType), _label),
        ((types.GetSetDescriptorType, types.MemberDescriptorType), _label),
        ((type,), _class),
        ((types.ModuleType,), _module),
        ((weakref.ref,), _weakref),
        ((type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event), _noise),
        ((threading.Semaphore, threading.BoundedSemaphore), _noise),
    ):
        for kind in kinds:
            handlers[kind] = handler


_register()
