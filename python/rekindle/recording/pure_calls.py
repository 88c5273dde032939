"""Lists the functions of C that a forward may call in a graph that is served again; all else is opaque.

Pure is what computes from its arguments, or changes these only: objects that the forward can reach are noted and put back
otherwise. What a function of torch says of tensors is seen by export/trace/questions.py. What is not on the list may ask the
process, the machine or a clock, or do something that a graph would leave out: the forward is refused before it is called.
"""

from __future__ import annotations

import types
from typing import Any

from rekindle.process.torch_internals import OPERATOR_MODULES, TORCH_FUNCTIONS, TRANSFORMS_MODULE, TensorBase

# Modules of C of which every function and method is pure, of the standard library.
_MODULES = frozenset(
    """
    math cmath _operator itertools _functools _collections _bisect _heapq _struct _sre _json binascii zlib _statistics
    unicodedata _abc _md5 _sha1 _sha256 _sha512 _sha2 _sha3 _blake2 _hashlib _csv _string _typing _stat _bz2 _lzma _opcode
    _contextvars _pickle marshal _ast _codecs errno _types _suggestions
    """.split()
)
_OF_MODULE: dict[str, frozenset[str]] = {
    module: frozenset(names.split())
    for module, names in {
        "builtins": """
            abs all any ascii bin callable chr delattr dir divmod eval exec compile format getattr globals hasattr hash hex
            isinstance issubclass iter len locals max min next oct ord pow repr round setattr sorted sum vars
            __build_class__ aiter anext
            """,
        "sys": "exc_info exception intern is_finalizing displayhook audit _clear_type_cache",
        "posix": "fspath _path_normpath _path_splitroot",
        "gc": "collect",
        "_thread": "allocate_lock allocate locked acquire acquire_lock release release_lock __enter__ __exit__ _is_owned "
        "_release_save _acquire_restore",
        "_weakref": "proxy _remove_dead_weakref",
        "_warnings": "_filters_mutated",  # what warns is seen where it would be shown, see warnings_shown.py
        "_datetime": """
            combine date time timetz replace weekday isoweekday isocalendar isoformat fromisoformat fromordinal toordinal
            total_seconds utcoffset dst fromisocalendar
            """,
        "_io": "text_encoding",
        "array": "append extend insert pop remove reverse count index tolist tobytes frombytes fromlist byteswap buffer_info",
    }.items()
}
# Classes whose instances are the forward's own, or are noted.
_IN_MEMORY = frozenset({"StringIO", "BytesIO"})
_NOT_OF_BUILTINS = frozenset({"__subclasses__", "clear_frames"})  # the classes that there are
_OF_PYTHON = (types.FunctionType, classmethod, staticmethod)
_OPAQUE_BUILTINS = (types.FrameType, types.TracebackType)

_OF_TORCH = frozenset(
    """
    is_grad_enabled is_autocast_enabled is_autocast_cpu_enabled is_autocast_cache_enabled
    get_autocast_dtype get_autocast_gpu_dtype get_autocast_cpu_dtype get_default_dtype is_anomaly_enabled
    is_anomaly_check_nan_enabled _get_tracing_state _is_tracing _log_api_usage_once _has_torch_function
    _has_torch_function_unary _has_torch_function_variadic _is_torch_function_enabled _is_torch_function_mode_enabled
    _get_cudnn_enabled _get_mkldnn_enabled _get_cudnn_deterministic _get_deterministic_algorithms _parse_to
    _set_grad_enabled _len_torch_function_stack _are_functorch_transforms_active _cuda_getDeviceCount _autocast_supported_devices
    _disabled_torch_function_impl _is_alias_of _jit_try_infer_type parse_schema parse_ir _get_default_device
    """.split()
)
_NOT_OPERATORS = frozenset({"from_file"})  # of what torch has as such
_NOT_OF_NUMPY = frozenset("fromfile tofile dump geterrobj seterrobj _seterrobj _get_extobj _make_extobj get_handler_name".split())
# Modules of the standard library whose Python code keeps to its arguments and to what it calls, which is seen.
_STDLIB = frozenset(
    """
    __future__ abc argparse ast base64 bisect calendar cmath codecs collections colorsys contextlib contextvars copy copyreg csv
    dataclasses datetime decimal difflib dis encodings enum fnmatch fractions functools genericpath graphlib hashlib heapq hmac
    html importlib inspect io itertools json keyword logging math ntpath numbers opcode operator os pathlib pickle posixpath
    pprint queue random re reprlib sched shlex sre_compile sre_constants sre_parse statistics string struct textwrap threading
    time token tokenize types typing unittest uuid warnings weakref zlib _collections_abc _weakrefset _py_abc _pydecimal
    _strptime _sitebuiltins _pydatetime _compat_pickle _bootlocale timeit
    """.split()
)
_PARTS_OF_STDLIB = frozenset({"urllib.parse", "importlib.util", "importlib._bootstrap", "importlib._bootstrap_external"})
_NOT_OF_STDLIB = frozenset({"importlib.metadata", "importlib.resources", "unittest.mock"})


def is_pure(function: Any) -> bool:
    """Tells whether a function of C, or a bound method, is on the list."""
    owner = getattr(function, "__self__", None)
    name = str(getattr(function, "__name__", ""))
    if owner is None or isinstance(owner, types.ModuleType):
        module = getattr(function, "__module__", None) or getattr(owner, "__name__", None)
        return _is_pure_of(str(module), name)
    return _is_pure_method(owner, name)


def _is_pure_of(module: str, name: str) -> bool:
    module = "_io" if module == "io" else module
    if module in _OF_MODULE:
        return name in _OF_MODULE[module]
    if module in _MODULES or module.startswith(OPERATOR_MODULES):
        return True
    root = module.partition(".")[0]
    if root == "torch":
        if hasattr(TORCH_FUNCTIONS, name):
            return name not in _NOT_OPERATORS
        return name in _OF_TORCH or (module == TRANSFORMS_MODULE and name.startswith(("peek", "is_", "maybe_")))
    return root == "numpy" and ".random" not in module and name not in _NOT_OF_NUMPY


def _is_pure_method(owner: Any, name: str) -> bool:
    """Tells whether a method is pure, by the class that defines it in C.

    What is inherited from a builtin type is that type's, also where Python overrides it.
    """
    for cls in (*(owner.__mro__ if isinstance(owner, type) else ()), *type(owner).__mro__):
        if name not in vars(cls) or isinstance(vars(cls)[name], _OF_PYTHON):
            continue
        if cls is TensorBase:
            return True  # export/trace/questions.py sees what it tells
        module = cls.__module__
        if module == "builtins":
            return name not in _NOT_OF_BUILTINS and not issubclass(cls, _OPAQUE_BUILTINS)
        if module == "_io":
            return cls.__name__ in _IN_MEMORY
        if module in ("collections", "re", "functools", "contextvars", "types", "operator", "weakref", "hashlib", "string"):
            return not name.startswith(("cache_info", "cache_clear"))
        return _is_pure_of({"datetime": "_datetime"}.get(module, module), name)
    return False


def is_pure_module(name: str) -> bool:
    """Tells whether Python code of a module of the standard library may be called: its calls into C are seen."""
    if name.startswith(tuple(_NOT_OF_STDLIB)):
        return False
    root = name.partition(".")[0]
    return root in _STDLIB or name in _PARTS_OF_STDLIB
