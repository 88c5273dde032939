"""Values that are attributes: of the module, of plain objects, computed ones, and those that are not there."""

from random_programs.construct import Construct

_DESCRIPTOR = """
class Descriptor$:
    scale = 1.5
    def __get__(self, instance, owner):
        return self.scale if instance is None else instance.__dict__.get('d$', self.scale)
"""
_DATA_DESCRIPTOR = _DESCRIPTOR + "    def __set__(self, instance, value):\n        instance.__dict__['d$'] = value * 2\n"
_CONFIG = "class Config$:\n    scale = 1.5\nclass Other$(Config$):\n    scale = -0.5\n"
_SLOTS = "class Slots$:\n    __slots__ = ('scale', 'bias')\n    def __init__(self):\n        self.scale = 1.5\n"
_PROPERTY = (
    "class Config$:\n    base = 1.5\n    @property\n    def scale(self):\n"
    "        return self.base + self.__dict__.get('more', 0)\n"
)
_GETATTR = (
    "class Config$:\n    def __init__(self):\n        self.table = {'scale': 1.5}\n    def __getattr__(self, name):\n"
    "        if name in ('table', '__setstate__') or name not in self.table:\n            raise AttributeError(name)\n"
    "        return self.table[name]\n"
)
_GETATTRIBUTE = (
    "class Config$:\n    scale = 1.5\n    factor = 1\n    def __getattribute__(self, name):\n"
    "        found = object.__getattribute__(self, name)\n        return found * object.__getattribute__(self, 'factor') "
    "if name == 'scale' else found\n"
)

ATTRIBUTES = (
    Construct(
        "instance attribute",
        "y = y * self.a$",
        init="self.a$ = 1.5",
        changes=("net.a$ = <n>", "del net.a$", "mod.Net.a$ = <n>", "mod.Base.a$ = <n>", "attributes(net).pop('a$', None)"),
    ),
    Construct(
        "class attribute",
        "y = y * self.a$",
        members="a$ = 1.5",
        changes=("net.a$ = <n>", "mod.Net.a$ = <n>", "del net.a$", "mod.Base.a$ = <n>", "del mod.Net.a$"),
    ),
    Construct(
        "base class attribute",
        "y = y * self.a$",
        base="a$ = 1.5",
        changes=("net.a$ = <n>", "mod.Net.a$ = <n>", "mod.Base.a$ = <n>", "del mod.Net.a$", "nn.Module.a$ = <n>"),
    ),
    Construct(
        "property of the module",
        "y = y * self.p$",
        init="self._p$ = 1.5",
        members="@property\ndef p$(self):\n    return self._p$",
        changes=("net._p$ = <n>", "mod.Net.p$ = property(lambda self: <n>)", "mod.Net.p$ = <n>", "net._p$ *= 2"),
    ),
    Construct(
        "cached property",
        "y = y * self.p$",
        init="self.q$ = 1.5",
        members="@functools.cached_property\ndef p$(self):\n    return self.q$ * 2",
        changes=("net.q$ = <n>", "net.p$ = <n>", "del net.p$", "attributes(net).pop('p$', None)"),
        weight=0.3,
    ),
    Construct(
        "hasattr",
        "y = y * (2 if hasattr(self, 'h$') else 3)",
        changes=(
            "net.h$ = None",
            "del net.h$",
            "mod.Net.h$ = 1",
            "mod.Base.h$ = 1",
            "del mod.Base.h$",
            "net.register_buffer('h$', torch.ones(1))",
        ),
    ),
    Construct(
        "getattr with a default",
        "y = y * getattr(self, 'g$', 1.5)",
        changes=("net.g$ = <n>", "del net.g$", "mod.Net.g$ = <n>", "del mod.Net.g$", "mod.Base.g$ = <n>", "nn.Module.g$ = <n>"),
    ),
    Construct(
        "except AttributeError",
        "try:\n    y = y * self.c$.e\nexcept AttributeError:\n    y = y - 1",
        top=_CONFIG,
        init="self.c$ = Config$()",
        changes=("net.c$.e = <n>", "mod.Config$.e = <n>", "del net.c$.e", "net.c$ = None", "net.c$ = mod.Other$()"),
    ),
    Construct(
        "attribute of a plain object's class",
        "y = y * self.c$.scale",
        top=_CONFIG,
        init="self.c$ = Config$()",
        changes=(
            "net.c$.scale = <n>",
            "mod.Config$.scale = <n>",
            "del net.c$.scale",
            "net.c$ = mod.Config$()",
            "net.c$.__class__ = mod.Other$",
            "mod.Config$.scale = property(lambda self: <n>)",
            "mod.Other$.scale = <n>",
            "net.c$.__dict__['scale'] = <n>",
        ),
    ),
    Construct(
        "nested objects",
        "y = y * self.c$.inner.scale",
        top=_CONFIG,
        init="self.c$ = Config$()\nself.c$.inner = Config$()",
        changes=(
            "net.c$.inner.scale = <n>",
            "net.c$.inner = mod.Other$()",
            "net.c$.scale = <n>",
            "mod.Config$.inner = None",
            "del net.c$.inner.scale",
            "vars(net.c$)['inner'] = mod.Config$()",
            "net.c$.inner = net.c$",
        ),
    ),
    Construct(
        "global object",
        "y = y * CONFIG$.scale",
        top=_CONFIG + "CONFIG$ = Config$()",
        changes=("mod.CONFIG$.scale = <n>", "mod.CONFIG$ = mod.Other$()", "mod.Config$.scale = <n>", "del mod.CONFIG$.scale"),
    ),
    Construct(
        "class of globals",
        "y = y * Config$.scale",
        top=_CONFIG,
        changes=(
            "mod.Config$.scale = <n>",
            "mod.Config$ = mod.Other$",
            "mod.Other$.scale = <n>",
            "type.__setattr__(mod.Config$, 'scale', <n>)",
        ),
    ),
    Construct(
        "slots",
        "y = y * self.s$.scale + getattr(self.s$, 'bias', 0)",
        top=_SLOTS,
        init="self.s$ = Slots$()",
        changes=("net.s$.scale = <n>", "net.s$.bias = <n>", "del net.s$.bias", "net.s$ = mod.Slots$()", "del net.s$.scale"),
    ),
    Construct(
        "descriptor",
        "y = y * self.d$",
        top=_DESCRIPTOR,
        members="d$ = Descriptor$()",
        changes=(
            "net.d$ = <n>",
            "mod.Descriptor$.scale = <n>",
            "vars(mod.Net)['d$'].scale = <n>",
            "mod.Net.d$ = <n>",
            "attributes(net)['d$'] = <n>",
        ),
    ),
    Construct(
        "data descriptor",
        "y = y * self.d$",
        top=_DATA_DESCRIPTOR,
        members="d$ = Descriptor$()",
        changes=(
            "net.d$ = <n>",
            "mod.Descriptor$.scale = <n>",
            "vars(mod.Net)['d$'].scale = <n>",
            "attributes(net)['d$'] = <n>",
            "attributes(net).pop('d$', None)",
        ),
    ),
    Construct(
        "property of an object",
        "y = y * self.c$.scale",
        top=_PROPERTY,
        init="self.c$ = Config$()",
        changes=(
            "net.c$.base = <n>",
            "mod.Config$.base = <n>",
            "net.c$.more = <n>",
            "del net.c$.more",
            "mod.Config$.scale = property(lambda self: <n>)",
        ),
    ),
    Construct(
        "__getattr__",
        "y = y * self.c$.scale",
        top=_GETATTR,
        init="self.c$ = Config$()",
        changes=(
            "net.c$.table['scale'] = <n>",
            "net.c$.scale = <n>",
            "mod.Config$.scale = <n>",
            "del net.c$.scale",
            "mod.Config$.__getattr__ = lambda self, name: <n>",
            "net.c$.table = {'scale': <n>}",
        ),
    ),
    Construct(
        "__getattr__ of the module",
        "y = y * self.m$",
        init="self.t$ = {'m$': 1.5}",
        members="def __getattr__(self, name):\n    if name.startswith('m') and name in self.__dict__.get('t' + name[1:], ()):\n"
        "        return self.__dict__['t' + name[1:]][name]\n    return super().__getattr__(name)",
        changes=("net.t$['m$'] = <n>", "net.m$ = <n>", "mod.Net.m$ = <n>", "del net.m$", "mod.Base.m$ = <n>"),
        weight=0.6,
    ),
    Construct(
        "__getattribute__",
        "y = y * self.c$.scale",
        top=_GETATTRIBUTE,
        init="self.c$ = Config$()",
        changes=("net.c$.factor = <n>", "net.c$.scale = <n>", "mod.Config$.factor = <n>", "mod.Config$.scale = <n>"),
        weight=0.5,
    ),
    Construct(
        "attribute of a class's class",
        "y = y * type(self).k$",
        meta="k$ = 1.5",
        changes=("mod.Meta.k$ = <n>", "mod.Net.k$ = <n>", "mod.Base.k$ = <n>", "del mod.Net.k$", "net.k$ = <n>"),
    ),
    Construct(
        "property of a metaclass",
        "y = y * type(self).k$",
        meta="@property\ndef k$(cls):\n    return cls.__dict__.get('_k$', 1.5)",
        changes=("mod.Net._k$ = <n>", "mod.Meta.k$ = <n>", "mod.Base._k$ = <n>"),
        weight=0.6,
    ),
    Construct(
        "vars of the module",
        "y = y * vars(self).get('v$', 2) + len([n for n in self.__dict__ if n.startswith('v$')])",
        changes=("net.v$ = <n>", "del net.v$", "net.v$b = 1", "mod.Net.v$ = <n>"),
    ),
    Construct(
        "training flag",
        "y = y * (1.5 if self.training else 0.5)",
        changes=("net.eval()", "net.train()", "net.training = <b>", "net.lin.training = <b>", "net.lin.eval()"),
    ),
    Construct(
        "attribute of a module",
        "y = y * math.pi * MATH$.tau$",
        top="MATH$ = types.ModuleType('constants')\nMATH$.tau$ = 1.5",
        changes=("mod.MATH$.tau$ = <n>", "mod.MATH$ = types.SimpleNamespace(tau$=<n>)", "del mod.MATH$.tau$"),
        weight=0.6,
    ),
)
