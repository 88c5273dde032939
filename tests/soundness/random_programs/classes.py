"""Values that come from classes: methods, super(), re-classing, configs of the standard library, enums, matches."""

from random_programs.construct import Construct

_DATACLASS = (
    "@dataclasses.dataclass\nclass Data$:\n    scale: float = 1.5\n    extra: list = dataclasses.field(default_factory=list)\n"
)
_FROZEN = "@dataclasses.dataclass(frozen=True)\nclass Data$:\n    scale: float = 1.5\n    bias: float = 0.25\n"
_ENUM = "class Mode$(enum.Enum):\n    A = 1\n    B = 2\n    C = 'c'\n"
_INT_ENUM = "class Mode$(enum.IntEnum):\n    A = 1\n    B = 2\n"
_TUPLE = "class Pair$(typing.NamedTuple):\n    scale: float = 1.5\n    bias: float = 0.5\n"
_TUPLE_SUBCLASS = "class Pair$(collections.namedtuple('Pair$', 'scale bias')):\n    pass\n"
_SHAPES = (
    "class Shape$:\n    __match_args__ = ('size', 'side')\n    def __init__(self):\n        self.size, self.side = 2, 3\n"
    "class Round$(Shape$):\n    pass\n"
)
_SCALES = (
    "class Scale$:\n    def __call__(self, y):\n        return y * 1.5\nclass Twice$(Scale$):\n"
    "    def __call__(self, y):\n        return y * 2\n"
)
_OPERATORS = (
    "class Number$:\n    def __init__(self, value):\n        self.value = value\n    def __float__(self):\n"
    "        return float(self.value)\n"
    "    def __bool__(self):\n        return self.value > 0\n    def __len__(self):\n        return 2\n"
    "    def __eq__(self, other):\n"
    "        return self.value == other\n    __hash__ = None\n    def __mul__(self, other):\n        return other * self.value\n"
)

CLASSES = (
    Construct(
        "method",
        "y = self.f$(y)",
        members="def f$(self, y):\n    return y * 1.5",
        base="def g$(self, y):\n    return y + 0.5",
        changes=(
            "mod.Net.f$ = lambda self, y: y * <n>",
            "net.f$ = lambda y: y * <n>",
            "mod.Net.f$ = mod.Net.g$",
            "del mod.Net.f$",
            "del net.f$",
            "mod.Base.f$ = mod.Base.g$",
        ),
    ),
    Construct(
        "super",
        "y = self.f$(y)",
        members="def f$(self, y):\n    return super().f$(y) * 1.5",
        base="def f$(self, y):\n    return y + 0.5",
        changes=(
            "mod.Base.f$ = lambda self, y: y * <n>",
            "mod.Net.f$ = lambda self, y: y * <n>",
            "del mod.Net.f$",
            "net.f$ = lambda y: y - 1",
        ),
    ),
    Construct(
        "class and static methods",
        "y = self.f$(y) + self.g$()",
        members="k$ = 1.5\n@classmethod\ndef f$(cls, y):\n    return y * cls.k$\n@staticmethod\ndef g$():\n    return 0.5",
        changes=(
            "mod.Net.k$ = <n>",
            "net.k$ = <n>",
            "mod.Net.g$ = staticmethod(lambda: <n>)",
            "net.g$ = lambda: <n>",
            "mod.Net.f$ = classmethod(lambda cls, y: y * <n>)",
        ),
    ),
    Construct(
        "class of the module",
        "y = y * {'Net': 1.5, 'Third$': -1, 'Other$': 2}.get(type(self).__name__, 3)",
        members="def h$(self):\n    pass",
        base="third$ = 0",
        changes=("net.__class__.__name__ = <s>", "mod.Net.__name__ = <s>", "mod.Net.__qualname__ = <s>"),
    ),
    Construct(
        "class of an object",
        "y = self.c$(y)",
        top=_SCALES,
        init="self.c$ = Scale$()",
        changes=(
            "net.c$.__class__ = mod.Twice$",
            "net.c$.__class__ = mod.Scale$",
            "net.c$ = mod.Twice$()",
            "mod.Scale$.__call__ = mod.Twice$.__call__",
            "del mod.Twice$.__call__",
            "net.c$.__call__ = None",
        ),
    ),
    Construct(
        "isinstance",
        "y = y * (2 if isinstance(self.c$, Twice$) else 3)",
        top=_SCALES,
        init="self.c$ = Scale$()",
        changes=(
            "net.c$.__class__ = mod.Twice$",
            "net.c$ = mod.Twice$()",
            "net.c$ = None",
            "mod.Twice$ = mod.Scale$",
            "mod.Twice$ = (int, mod.Scale$)",
        ),
    ),
    Construct(
        "operators of an object",
        "y = (self.c$ * y if self.c$ else y - 1) + (1 if self.c$ == 2 else 0) + len(self.c$)",
        top=_OPERATORS,
        init="self.c$ = Number$(1.5)",
        changes=(
            "net.c$.value = <n>",
            "mod.Number$.__bool__ = lambda self: <b>",
            "mod.Number$.__len__ = lambda self: <p>",
            "net.c$ = <n>",
            "mod.Number$.__mul__ = lambda self, other: other * <n>",
        ),
    ),
    Construct(
        "dataclass",
        "y = y * self.c$.scale + len(self.c$.extra)",
        top=_DATACLASS,
        init="self.c$ = Data$()",
        changes=(
            "net.c$.scale = <n>",
            "net.c$.extra.append(1)",
            "net.c$ = mod.Data$(<n>)",
            "mod.Data$.scale = <n>",
            "del net.c$.scale",
            "net.c$.extra = []",
            "net.c$ = dataclasses.replace(net.c$, scale=<n>)",
        ),
    ),
    Construct(
        "frozen dataclass",
        "y = y * self.c$.scale + self.c$.bias",
        top=_FROZEN,
        init="self.c$ = Data$()",
        changes=(
            "net.c$ = dataclasses.replace(net.c$, scale=<n>)",
            "object.__setattr__(net.c$, 'bias', <n>)",
            "net.c$.scale = <n>",
            "mod.Data$.bias = <n>",
            "object.__delattr__(net.c$, 'bias')",
        ),
    ),
    Construct(
        "dataclass fields",
        "y = y * sum(getattr(self.c$, f.name) for f in dataclasses.fields(self.c$))",
        top=_FROZEN,
        init="self.c$ = Data$()",
        changes=(
            "net.c$ = mod.Data$(<n>)",
            "object.__setattr__(net.c$, 'scale', <n>)",
            "mod.Data$.__dataclass_fields__.pop('bias', None)",
            "object.__setattr__(net.c$, 'more', <n>)",
        ),
        weight=0.5,
    ),
    Construct(
        "SimpleNamespace",
        "y = y * self.c$.scale + getattr(self.c$, 'bias', 0)",
        init="self.c$ = types.SimpleNamespace(scale=1.5)",
        changes=("net.c$.scale = <n>", "net.c$.bias = <n>", "del net.c$.bias", "net.c$ = types.SimpleNamespace(scale=<n>)"),
    ),
    Construct(
        "argparse.Namespace",
        "y = y * (self.c$.scale if 'scale' in self.c$ else 3)",
        init="self.c$ = argparse.Namespace(scale=1.5)",
        changes=(
            "net.c$.scale = <n>",
            "del net.c$.scale",
            "net.c$.other = 1",
            "vars(net.c$).update(scale=<n>)",
            "net.c$ = argparse.Namespace()",
        ),
    ),
    Construct(
        "enum member",
        "y = y * (2 if self.m$ is Mode$.A else 3) + len(self.m$.name)",
        top=_ENUM,
        init="self.m$ = Mode$.A",
        changes=(
            "net.m$ = mod.Mode$.B",
            "net.m$ = mod.Mode$.C",
            "mod.Mode$.A._value_ = 5",
            "net.m$ = mod.Mode$.A",
            "net.m$ = mod.Mode$(2)",
        ),
    ),
    Construct(
        "enum value",
        "y = y * self.m$.value + len(Mode$)",
        top=_INT_ENUM,
        init="self.m$ = Mode$.A",
        changes=("net.m$ = mod.Mode$.B", "mod.Mode$.A._value_ = 5", "net.m$ = mod.Mode$.A", "mod.Mode$.A.extra = 3"),
    ),
    Construct(
        "attribute of an enum member",
        "y = y * getattr(self.m$, 'scale', 1.5)",
        top=_ENUM,
        init="self.m$ = Mode$.A",
        changes=("mod.Mode$.A.scale = <n>", "mod.Mode$.B.scale = <n>", "net.m$ = mod.Mode$.B", "del mod.Mode$.A.scale"),
        weight=0.5,
    ),
    Construct(
        "named tuple",
        "y = y * self.t$.scale + self.t$[1]",
        top=_TUPLE,
        init="self.t$ = Pair$()",
        changes=("net.t$ = mod.Pair$(<n>)", "net.t$ = net.t$._replace(bias=<n>)", "net.t$ = (1.5, 2)", "mod.Pair$.scale = <n>"),
    ),
    Construct(
        "subclass of a named tuple",
        "y = y * self.t$.scale + getattr(self.t$, 'more', 0)",
        top=_TUPLE_SUBCLASS,
        init="self.t$ = Pair$(1.5, 2)",
        changes=("net.t$ = mod.Pair$(<n>, 2)", "net.t$.more = <n>", "mod.Pair$.more = <n>", "del net.t$.more"),
    ),
    Construct(
        "match by class",
        "match self.c$:\n    case Round$(size=n):\n        y = y * n\n    case Shape$(n, m):\n        y = y * n - m\n"
        "    case [a, *_]:\n        y = y * a\n    case {'k': k}:\n        y = y * k\n    case _:\n        y = y - 1",
        top=_SHAPES,
        init="self.c$ = Shape$()",
        changes=(
            "net.c$ = mod.Round$()",
            "net.c$.size = <n>",
            "net.c$ = [<n>, 2]",
            "net.c$ = {'k': <n>}",
            "net.c$ = None",
            "mod.Shape$.__match_args__ = ('side', 'size')",
            "net.c$.__class__ = mod.Round$",
        ),
    ),
    Construct(
        "subclass of a number",
        "y = y * self.n$ + getattr(self.n$, 'bias', 0)",
        top="class Number$(float):\n    pass\n",
        init="self.n$ = Number$(1.5)",
        changes=(
            "net.n$ = mod.Number$(<n>)",
            "net.n$.bias = <n>",
            "mod.Number$.bias = <n>",
            "net.n$ = <n>",
            "mod.Number$.__rmul__ = lambda self, other: other * <n>",
        ),
    ),
    Construct(
        "text of an object",
        "y = y * len(f'{self.c$!r}') + len(str(self.c$))",
        top="class Text$:\n    def __init__(self):\n        self.size = 10\n    def __repr__(self):\n"
        "        return 'a' * self.size\n",
        init="self.c$ = Text$()",
        changes=(
            "net.c$.size = <p>",
            "mod.Text$.__str__ = lambda self: 'bc'",
            "net.c$ = <s>",
            "mod.Text$.__repr__ = lambda self: 'b'",
        ),
        weight=0.5,
    ),
)
