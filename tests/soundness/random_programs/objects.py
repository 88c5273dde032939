"""Values in objects of the standard library, and in classes that decide what an access means."""

from random_programs.construct import Construct

_ABSTRACT = (
    "import abc\nclass Kind$(abc.ABC):\n    @abc.abstractmethod\n    def k(self):\n        return 1.5\n"
    "class Own$(Kind$):\n    def k(self):\n        return super().k() * 2\nclass Other$:\n    def k(self):\n        return 3\n"
)
_META = (
    "class Checks$(type):\n    def __instancecheck__(cls, value):\n        return getattr(value, 'is_kind', False)\n"
    "class Kind$(metaclass=Checks$):\n    pass\nclass Thing$:\n    is_kind = True\n"
)

OBJECTS = (
    Construct(
        "itemgetter and attrgetter",
        "y = y * self.g$(self.c$) + self.a$(self)",
        top="import operator\n",
        init="self.c$ = [1.5, 2]\nself.g$ = operator.itemgetter(0)\nself.a$ = operator.attrgetter('k$')\nself.k$ = 2",
        changes=("net.c$[0] = <n>", "net.k$ = <n>", "net.g$ = mod.operator.itemgetter(1)", "net.c$ = {0: <n>}"),
    ),
    Construct(
        "regular expression",
        "y = y * len(self.p$.findall(self.s$))",
        top="import re\n",
        init="self.p$ = re.compile('a')\nself.s$ = 'banana'",
        changes=("net.p$ = mod.re.compile('b|n')", "net.s$ = <s>", "net.p$ = mod.re.compile('A', mod.re.I)"),
    ),
    Construct(
        "exact numbers",
        "y = y * float(self.f$) + float(self.d$) + self.z$.imag",
        top="import decimal, fractions\n",
        init="self.f$ = fractions.Fraction(3, 2)\nself.d$ = decimal.Decimal('0.5')\nself.z$ = 1 + 2j",
        changes=("net.f$ = mod.fractions.Fraction(<p>, 3)", "net.d$ = mod.decimal.Decimal(<p>)", "net.z$ = complex(0, <n>)"),
    ),
    Construct(
        "dates and paths",
        "y = y * self.t$.day + len(self.p$.parts)",
        top="import datetime, pathlib\n",
        init="self.t$ = datetime.date(2020, 1, 2)\nself.p$ = pathlib.PurePosixPath('a/b')",
        changes=("net.t$ = net.t$.replace(day=<p>)", "net.p$ = net.p$ / 'c'", "net.p$ = net.p$.parent"),
    ),
    Construct(
        "array of numbers",
        "y = y * self.v$[0] + len(self.v$)",
        init="self.v$ = memoryview(bytearray([1, 2, 3]))",
        changes=("net.v$[0] = <p>", "net.v$ = net.v$[1:]", "net.v$.release()"),
        weight=0.4,
    ),
    Construct(
        "weak dictionary",
        "y = y * self.w$['a'].k if 'a' in self.w$ else y - 1",
        top="import weakref\nclass Kept$:\n    k = 1.5\n",
        init="self.o$ = Kept$()\nself.w$ = weakref.WeakValueDictionary(a=self.o$)",
        changes=("net.o$.k = <n>", "net.o$ = None", "net.w$['a'] = net.o$", "net.o$ = mod.Kept$()", "mod.Kept$.k = <n>"),
        weight=0.6,
    ),
    Construct(
        "weak reference",
        "y = y * self.w$().k if self.w$() is not None else y - 1",
        top="import weakref\nclass Kept$:\n    k = 1.5\n",
        init="self.o$ = Kept$()\nself.w$ = weakref.ref(self.o$)",
        changes=("net.o$.k = <n>", "net.o$ = None", "net.w$ = mod.weakref.ref(net.lin)", "mod.Kept$.k = <n>"),
        weight=0.6,
    ),
    Construct(
        "abstract class",
        "y = y * self.c$.k() + (1 if isinstance(self.c$, Kind$) else 0)",
        top=_ABSTRACT,
        init="self.c$ = Own$()",
        changes=("net.c$ = mod.Other$()", "mod.Kind$.register(mod.Other$)", "mod.Kind$.k = lambda self: <n>"),
    ),
    Construct(
        "isinstance of a metaclass",
        "y = y * (2 if isinstance(self.c$, Kind$) else 3)",
        top=_META,
        init="self.c$ = Thing$()",
        changes=("net.c$.is_kind = <b>", "mod.Thing$.is_kind = <b>", "mod.Checks$.__instancecheck__ = lambda cls, v: <b>"),
    ),
    Construct(
        "set name",
        "y = y * self.f$",
        top="class Field$:\n    def __set_name__(self, owner, name):\n        self.name = '_' + name\n"
        "    def __get__(self, one, owner):\n        return getattr(one, self.name, 1.5)\n",
        members="f$ = Field$()",
        changes=("net._f$ = <n>", "vars(mod.Net)['f$'].name = 'q$'", "net.q$ = <n>", "del net._f$"),
    ),
    Construct(
        "partial method",
        "y = self.p$(y)",
        members="def f$(self, y, k=1):\n    return y * k\np$ = functools.partialmethod(f$, k=1.5)",
        changes=("mod.Net.p$ = functools.partialmethod(mod.Net.f$, k=<n>)", "mod.Net.f$ = lambda self, y, k=1: y - k"),
    ),
    Construct(
        "decorator with state",
        "y = f$(y)",
        top="class Scaled$:\n    def __init__(self, f):\n        self.f, self.k = f, 1.5\n    def __call__(self, y):\n"
        "        return self.f(y) * self.k\n@Scaled$\ndef f$(y):\n    return y + 0.5\n",
        changes=("mod.f$.k = <n>", "mod.f$.f = torch.tanh", "mod.f$ = mod.Scaled$(torch.sin)", "mod.f$ = mod.f$.f"),
    ),
    Construct(
        "flags",
        "y = y * (2 if self.m$ & Flags$.A else 3) + self.m$.value",
        top="class Flags$(enum.Flag):\n    A = 1\n    B = 2\n",
        init="self.m$ = Flags$.A",
        changes=("net.m$ = mod.Flags$.B", "net.m$ |= mod.Flags$.B", "net.m$ = ~net.m$"),
    ),
    Construct(
        "registry of classes",
        "y = y * sum(c.k for c in REGISTRY$)",
        top="REGISTRY$ = []\nclass Plugin$:\n    def __init_subclass__(cls, **k):\n        REGISTRY$.append(cls)\n"
        "class One$(Plugin$):\n    k = 1.5\n",
        changes=("type('Two', (mod.Plugin$,), {'k': <n>})", "mod.One$.k = <n>", "mod.REGISTRY$.reverse()", "mod.REGISTRY$.pop()"),
    ),
)
