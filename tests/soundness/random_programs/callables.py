"""Values in callables: closures, defaults, globals, partials, bound methods, caches, generators."""

from random_programs.construct import Construct

_MAKE = (
    "def make$(k):\n    def scaled(y):\n        return y * k\n    def put(value):\n        nonlocal k\n        k = value\n"
    "    return scaled, put\nscaled$, put$ = make$(1.5)\n"
)
_FUNCTION = "def f$(y, s=1.5, *, t=0.5):\n    return y * s + t\ndef g$(y, s=2, *, t=1):\n    return y - s * t\n"
_CACHE = "K$ = [1.5]\n@functools.lru_cache(maxsize=None)\ndef f$(n):\n    return K$[0] * n\n"

_SCRIPT = (
    "def make$(k):\n    return torch.jit.CompilationUnit(f'def f(y):\\n    z = y * {k}\\n    return z.add_(torch.sin(y))\\n').f\n"
    "f$ = make$(1.5)\n"
)

CALLABLES = (
    Construct("script function", "y = f$(y)", top=_SCRIPT, changes=("mod.f$ = mod.make$(<n>)", "mod.f$ = mod.make$(1.5)")),
    Construct(
        "script function of the module",
        "y = self.f$(y)",
        top=_SCRIPT,
        init="self.f$ = f$",
        changes=("net.f$ = mod.make$(<n>)", "mod.f$ = mod.make$(<n>)", "net.f$ = mod.f$"),
    ),
    Construct(
        "closure",
        "y = scaled$(y)",
        top=_MAKE,
        changes=("mod.put$(<n>)", "mod.scaled$.__closure__[0].cell_contents = <n>", "mod.scaled$ = mod.make$(<n>)[0]"),
    ),
    Construct(
        "closure of the module",
        "y = self.f$(y)",
        top=_MAKE,
        init="self.f$, self.put$ = make$(1.5)",
        changes=("net.put$(<n>)", "net.f$ = mod.make$(<n>)[0]", "net.f$.__closure__[0].cell_contents = <n>", "net.put$ = None"),
    ),
    Construct(
        "closure over a container",
        "y = f$(y)",
        top="def make$():\n    box = {'k': 1.5}\n    return (lambda y: y * box['k']), box\nf$, box$ = make$()",
        changes=("mod.box$['k'] = <n>", "mod.box$['q'] = 1", "mod.f$, mod.box$ = mod.make$()", "mod.box$ = {'k': 3}"),
    ),
    Construct(
        "empty cell",
        "y = f$(y)",
        top="def make$():\n    def f(y):\n        try:\n            return y * k\n        except NameError:\n"
        "            return y - 1\n"
        "    def put(v):\n        nonlocal k\n        k = v\n    def drop():\n        nonlocal k\n        del k\n"
        "    if False:\n        k = 1\n    return f, put, drop\nf$, put$, drop$ = make$()",
        changes=("mod.put$(<n>)", "mod.drop$()"),
        weight=0.5,
    ),
    Construct(
        "defaults",
        "y = f$(y)",
        top=_FUNCTION,
        changes=(
            "mod.f$.__defaults__ = (<n>,)",
            "mod.f$.__kwdefaults__['t'] = <n>",
            "mod.f$.__kwdefaults__ = {'t': <n>}",
            "mod.f$ = mod.g$",
            "mod.f$.__code__ = mod.g$.__code__",
            "mod.g$.__defaults__ = (<n>,)",
            "mod.f$.__code__ = mod.f$.__code__.replace(co_name='q')",
        ),
    ),
    Construct(
        "mutable default",
        "y = f$(y)",
        top="def f$(y, s=[1.5], t={'k': 2}):\n    return y * s[0] + t['k']\n",
        changes=(
            "mod.f$.__defaults__[0][0] = <n>",
            "mod.f$.__defaults__[1]['k'] = <n>",
            "mod.f$.__defaults__ = ([<n>], {'k': 1})",
            "mod.f$.__defaults__[0].append(1)",
        ),
    ),
    Construct(
        "function attribute",
        "y = y * f$.scale",
        top=_FUNCTION + "f$.scale = 1.5",
        changes=(
            "mod.f$.scale = <n>",
            "del mod.f$.scale",
            "mod.f$.other = 1",
            "mod.f$.__dict__['scale'] = <n>",
            "mod.f$ = mod.g$",
        ),
    ),
    Construct("global number", "y = y * G$", top="G$ = 1.5", changes=("mod.G$ = <n>", "del mod.G$", "mod.H$ = 1")),
    Construct(
        "except NameError",
        "try:\n    y = y * absent$\nexcept NameError:\n    y = y - 1",
        changes=("mod.absent$ = <n>", "del mod.absent$", "mod.other$ = 1"),
        weight=0.6,
    ),
    Construct(
        "global shadows a builtin",
        "y = y * sum((1, 2)) + len((1, 2, 3))",
        changes=("mod.sum = lambda c: <n>", "del mod.sum", "mod.len = lambda c: <p>", "del mod.len"),
        weight=0.4,
    ),
    Construct(
        "global function",
        "y = f$(g$(y))",
        top=_FUNCTION,
        changes=(
            "mod.f$ = mod.g$",
            "mod.g$ = lambda y: y * <n>",
            "mod.g$ = torch.tanh",
            "mod.f$ = functools.partial(mod.f$, s=<n>)",
        ),
    ),
    Construct(
        "partial",
        "y = self.p$(y)",
        top=_FUNCTION,
        init="self.p$ = functools.partial(f$, s=2)",
        changes=(
            "net.p$.keywords['s'] = <n>",
            "net.p$ = functools.partial(mod.f$, t=<n>)",
            "mod.f$.__kwdefaults__['t'] = <n>",
            "net.p$ = mod.g$",
            "net.p$.extra = 1",
            "net.p$.keywords['t'] = <n>",
        ),
    ),
    Construct(
        "bound method",
        "y = self.b$(y)",
        top="class Scale$:\n    k = 1.5\n    def f(self, y):\n        return y * self.k\n",
        init="self.s$ = Scale$()\nself.b$ = self.s$.f",
        changes=(
            "net.s$.k = <n>",
            "mod.Scale$.k = <n>",
            "net.s$ = mod.Scale$()",
            "mod.Scale$.f = lambda self, y: y * <n>",
            "net.b$ = net.s$.f",
            "net.b$.__self__.k = <n>",
        ),
    ),
    Construct(
        "cached function",
        "y = y * f$(2)",
        top=_CACHE,
        changes=(
            "mod.K$[0] = <n>",
            "mod.f$.cache_clear()",
            "mod.f$(2)",
            "mod.K$ = [<n>]",
            "mod.f$.__wrapped__.__defaults__ = None",
        ),
        weight=0.6,
    ),
    Construct(
        "hand-made cache",
        "k = self.cache$.get('k')\nif k is None:\n    k = 1.5 * self.n$\n    self.cache$['k'] = k\ny = y * k",
        init="self.n$ = 2\nself.cache$ = {}",
        changes=("net.cache$.clear()", "net.n$ = <n>", "net.cache$['k'] = <n>", "net.cache$ = {}"),
        weight=0.4,
    ),
    Construct(
        "functools.wraps",
        "y = f$(y)",
        top="def double$(f):\n    @functools.wraps(f)\n    def inner(*a, **k):\n        return f(*a, **k) * inner.scale\n"
        "    inner.scale = 2\n    return inner\n@double$\ndef f$(y):\n    return y + 0.5\n",
        changes=(
            "mod.f$.scale = <n>",
            "mod.f$ = mod.f$.__wrapped__",
            "mod.f$ = mod.double$(mod.f$)",
            "mod.f$.__wrapped__ = None",
        ),
    ),
    Construct(
        "singledispatch",
        "y = f$(self.v$) * y",
        init="self.v$ = 2",
        top="@functools.singledispatch\ndef f$(v):\n    return 1.5\n@f$.register\ndef _(v: int):\n    return 2.5\n",
        changes=(
            "net.v$ = 'a'",
            "net.v$ = 3",
            "mod.f$.register(str)(lambda v: <n>)",
            "mod.f$.register(int)(lambda v: <n>)",
            "net.v$ = None",
        ),
        weight=0.5,
    ),
    Construct(
        "generator",
        "y = y * next(self.g$)",
        init="self.g$ = itertools.count(1)",
        changes=(
            "net.g$ = itertools.count(5)",
            "next(net.g$)",
            "net.g$ = itertools.repeat(<n>)",
            "net.g$ = itertools.cycle([1, 2])",
        ),
        weight=0.3,
    ),
    Construct(
        "generator function",
        "for k in f$(self.n$):\n    y = y * 0.5 + k",
        init="self.n$ = 2",
        top="def f$(n):\n    for i in range(n):\n        yield i + STEP$\nSTEP$ = 0.5\n",
        changes=("net.n$ = <p>", "mod.STEP$ = <n>", "mod.f$ = range", "mod.f$ = lambda n: [n]"),
    ),
    Construct(
        "running generator",
        "y = y * next(GENERATOR$)",
        top="def f$():\n    k = 1\n    while True:\n        yield k\n        k += 1\nGENERATOR$ = f$()\n",
        changes=("next(mod.GENERATOR$)", "mod.GENERATOR$ = mod.f$()", "mod.GENERATOR$.close()"),
        weight=0.3,
    ),
    Construct(
        "context manager",
        "with scope$(self):\n    y = y * K$[0]\ny = y + K$[0]",
        init="self.k$ = 2",
        top="K$ = [1]\n@contextlib.contextmanager\ndef scope$(owner):\n    before, K$[0] = K$[0], owner.k$\n    try:\n"
        "        yield\n    finally:\n"
        "        K$[0] = before\n",
        changes=("net.k$ = <n>", "mod.K$[0] = <n>", "mod.K$ = [<n>]"),
        weight=0.5,
    ),
    Construct(
        "callable from a table",
        "y = self.t$[self.n$](y)",
        init="self.t$ = {'relu': F.relu, 'tanh': torch.tanh, 'a': nn.Sigmoid()}\nself.n$ = 'tanh'",
        changes=(
            "net.n$ = 'relu'",
            "net.n$ = 'a'",
            "net.t$['tanh'] = torch.sin",
            "net.t$['relu'] = torch.sin",
            "net.n$ = 'tanh'",
        ),
    ),
    Construct(
        "function of torch replaced",
        "y = F.softsign(y) + torch.sin(y)",
        changes=(
            "world: F.softsign = lambda x: x * 2",
            "world: torch.sin = torch.cos",
            "mod.F = types.SimpleNamespace(softsign=torch.tanh)",
            "world: F.softsign = F.relu",
        ),
        weight=0.4,
    ),
    Construct(
        "lambda list",
        "for f in self.fs$:\n    y = f(y)",
        init="self.fs$ = [lambda y: y * 1.5, torch.tanh]",
        changes=("net.fs$.reverse()", "net.fs$.append(torch.sin)", "net.fs$.pop()", "net.fs$[0] = lambda y: y * <n>"),
    ),
)
