"""Changes of rarer kinds of values that a forward reads; see key/values/cells.py."""

from functools import partial

from case import Case

_KIND = partial(Case, "kind of value")
_READ = "return self.linear(x) * "
_POINT = "import dataclasses\n@dataclasses.dataclass\nclass Point:\n    x: float = 1.0\n"
_OWN = "from torch.distributions import Normal, kl_divergence, register_kl, kl\nclass Own(Normal):\n    pass\n"

CASES = (
    _KIND(
        "attribute that was its class's",
        top="class Cfg:\n    scale = 1.0",
        init="self.cfg = Cfg()",
        body=_READ + "self.cfg.scale",
        mutate="model.cfg.scale = 3.0",
    ),
    _KIND(
        "event",
        top="import threading",
        init="self.e = threading.Event()",
        body=_READ + "(3 if self.e.is_set() else 1)",
        mutate="model.e.set()",
    ),
    _KIND(
        "lock",
        top="import threading\nLOCK = threading.Lock()",
        body=_READ + "(3 if LOCK.locked() else 1)",
        mutate="subject.LOCK.acquire(blocking=False)",
    ),
    _KIND(
        "level of a logger",
        top="import logging\nLOG = logging.getLogger('subject.own')",
        body=_READ + "(3 if LOG.isEnabledFor(5) else 1)",
        mutate="subject.LOG.setLevel(5)",
    ),
    _KIND(
        "attribute of a logger",
        top="import logging\nLOG = logging.getLogger('subject.own')",
        body=_READ + "(1 + LOG.level)",
        mutate="subject.LOG.setLevel(5)",
    ),
    _KIND(
        "attribute of a named tuple's subclass",
        top="import collections\nclass P(collections.namedtuple('P', 'a')):\n    pass",
        init="self.p = P(1.0)",
        body=_READ + "getattr(self.p, 'k', 1.0)",
        mutate="model.p.k = 3.0",
    ),
    _KIND(
        "default_factory",
        top="import collections",
        init="self.d = collections.defaultdict(float)",
        body=_READ + "self.d.default_factory('1')",
        mutate="model.d.default_factory = ord",
    ),
    _KIND(
        "metadata of a type",
        top="from typing import Annotated\nclass Cfg:\n    scale = 1.0\nT = Annotated[int, Cfg()]",
        body=_READ + "T.__metadata__[0].scale",
        mutate="subject.T.__metadata__[0].scale = 3.0",
    ),
    _KIND(
        "__class_getitem__",
        top="class G:\n    def __class_getitem__(cls, key):\n        return 1.0",
        body=_READ + "G[0]",
        edit=("return 1.0", "return 3.0"),
    ),
    _KIND(
        "__init_subclass__",
        top="class G:\n    def __init_subclass__(cls):\n        cls.k = 1.0\nMADE = G",
        body=_READ + "type('H', (MADE,), {}).k",
        edit=("cls.k = 1.0", "cls.k = 3.0"),
    ),
    _KIND(
        "default of a dataclass's field",
        top=_POINT,
        body=_READ + "dataclasses.fields(Point)[0].default",
        edit=("= 1.0", "= 3.0"),
    ),
    _KIND(
        "type of a dataclass's field",
        top=_POINT,
        body=_READ + "(1.0 if dataclasses.fields(Point)[0].type in (float, 'float') else 3.0)",
        edit=("x: float", "x: int"),
    ),
    _KIND(
        "type hints",
        top="import typing\nclass P:\n    x: float",
        body=_READ + "(1.0 if typing.get_type_hints(P)['x'] is float else 3.0)",
        edit=("x: float", "x: int"),
        populates=False,
    ),
    _KIND(
        "annotation of a signature",
        top="import inspect\ndef act(x: float):\n    return x",
        body=_READ + "(1.0 if inspect.signature(act).parameters['x'].annotation is float else 3.0)",
        edit=("x: float", "x: int"),
        populates=False,
    ),
    _KIND(
        "default of a signature",
        top="import inspect\ndef act(x=1.0):\n    return x",
        body=_READ + "inspect.signature(act).parameters['x'].default",
        edit=("x=1.0", "x=3.0"),
    ),
    _KIND(
        "register_kl",
        top=_OWN,
        body=_READ + "kl_divergence(Own(x, 1.0), Own(0.0, 2.0))",
        mutate="subject.register_kl(subject.Own, subject.Own)(lambda p, q: 3.0 + 0 * p.loc)",
    ),
    _KIND(
        "register_kl, asked before",
        top=_OWN + "kl_divergence(Own(0.0, 1.0), Own(0.0, 2.0))",
        body=_READ + "kl_divergence(Own(x, 1.0), Own(0.0, 2.0))",
        mutate="subject.register_kl(subject.Own, subject.Own)(lambda p, q: 3.0 + 0 * p.loc)",
    ),
    _KIND(
        "set_default_validate_args",
        top="from torch.distributions import Normal",
        body=_READ + "(3.0 if Normal(0.0, 1.0)._validate_args else 1.0)",
        mutate="subject.Normal.set_default_validate_args(False)",
    ),
)
