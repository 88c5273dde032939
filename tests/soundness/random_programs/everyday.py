"""Caches with arguments, what is carried from call to call, modules' own calls, and other everyday code."""

from random_programs.construct import Construct

_CACHED = "K$ = [1.5]\n"
_RNN = ("a$=last()", "a$=again()", "a$=x(3, 4)", "a$=None")

EVERYDAY = (
    Construct(
        "cached tensor",
        "y = y * f$(y.shape[-1])",
        top=_CACHED + "@functools.cache\ndef f$(n):\n    return torch.arange(float(n)) * K$[0]\n",
        changes=("mod.K$[0] = <n>", "mod.f$.cache_clear()", "mod.f$(4).fill_(<i>)", "mod.f$(4)", "mod.K$ = [<n>]"),
    ),
    Construct(
        "cache of a method",
        "y = y * self.f$(2)",
        members="@functools.lru_cache(maxsize=4)\ndef f$(self, n):\n    return self.k$ * n",
        init="self.k$ = 1.5",
        changes=("net.k$ = <n>", "mod.Net.f$.cache_clear()", "inner.f$(3)"),
        weight=0.5,
    ),
    Construct(
        "small cache",
        "y = y * f$(self.n$) + f$(n=2)",
        init="self.n$ = 1",
        top=_CACHED + "@functools.lru_cache(maxsize=2)\ndef f$(n):\n    return K$[0] * n\n",
        changes=("net.n$ = <p>", "mod.K$[0] = <n>", "mod.f$.cache_clear()", "mod.f$(3)"),
    ),
    Construct(
        "cached random numbers",
        "y = y * f$(4)",
        top="@functools.lru_cache\ndef f$(n):\n    return torch.rand(n)\n",
        changes=("mod.f$.cache_clear()", "mod.f$(4).mul_(2)"),
        weight=0.5,
    ),
    Construct(
        "cached function with an effect",
        "y = y * f$(2)",
        top="LOG$ = []\n@functools.cache\ndef f$(n):\n    LOG$.append(n)\n    return n\n",
        changes=("mod.f$.cache_clear()",),
        weight=0.5,
    ),
    Construct("recurrent state", "y = y + a$.mean() if a$ is not None else y", parameters=("a$=None",), arguments=_RNN),
    Construct(
        "state that is written and carried",
        "y = y * (a$ if a$ is not None else 1)\nself.h$.copy_(y.detach().reshape(-1, 4)[0])\ny = y + self.h$",
        init="self.register_buffer('h$', torch.zeros(4))",
        parameters=("a$=None",),
        arguments=("a$=net.h$", "a$=net.h$.clone()", "a$=None", "a$=last()"),
        changes=("net.h$.zero_()", "net.h$ = torch.ones(4)"),
    ),
    Construct(
        "buffer multiplied after it was written",
        "self.b$.mul_(0.5).add_(1)\ny = y * self.b$",
        init="self.register_buffer('b$', torch.ones(4))",
        changes=("net.b$.fill_(<n>)", "net.b$ = torch.zeros(4)"),
    ),
    Construct(
        "reduce and accumulate",
        "y = functools.reduce(lambda a, f: f(a), self.fs$, y) + [*itertools.accumulate(self.c$)][-1]",
        init="self.fs$ = (torch.tanh, lambda y: y * 1.5)\nself.c$ = [1, 2]",
        changes=("net.c$[0] = <n>", "net.fs$ = net.fs$[::-1]", "net.c$.append(<p>)", "net.fs$ = (torch.sin,)"),
    ),
    Construct(
        "try and finally",
        "try:\n    y = y * self.c$[self.i$]\nexcept (IndexError, TypeError) as e:\n    y = y - len(e.args)\n"
        "else:\n    y = y + 1\n"
        "finally:\n    y = y * 2",
        init="self.c$ = [1.5]\nself.i$ = 0",
        changes=("net.i$ = <i>", "net.c$.append(<n>)", "net.i$ = None", "net.c$ = (<n>, 1)"),
    ),
    Construct(
        "division of arrays",
        "with np.errstate(over='ignore'):\n    y = y * float(self.c$[0] / self.c$[1])",
        init="self.c$ = np.array([3., 2.])",
        changes=("net.c$[1] = 0", "net.c$[1] = <p>", "world: np.seterr(divide='raise')", "world: np.seterr(divide='ignore')"),
    ),
    Construct(
        "result as a named tuple",
        "out['t$'] = Result$(y * 2, self.k$)\nout['d$'] = {'a': [y - 1], 'b': (y,)}",
        top="Result$ = collections.namedtuple('Result$', 'y k')",
        init="self.k$ = 1",
        changes=("net.k$ = <n>", "net.k$ = None", "net.k$ = [1]"),
    ),
    Construct(
        "forked random numbers",
        "with torch.random.fork_rng(devices=[]):\n    torch.manual_seed(self.s$)\n    y = y + torch.rand(4)",
        init="self.s$ = 3",
        changes=("net.s$ = <i>",),
        weight=0.4,
    ),
    Construct(
        "module called by a method of its own",
        "y = self.m$.scaled(y)",
        top="class Scaling$(nn.Linear):\n    k = 1.5\n    def scaled(self, y):\n        return self(y) * self.k\n",
        init="self.m$ = Scaling$(4, 4)",
        changes=("net.m$.k = <n>", "mod.Scaling$.k = <n>", "net.m$.register_forward_hook(lambda m, a, r: r * 2)"),
    ),
    Construct(
        "attention",
        "q = y.unsqueeze(0)\ny = y + self.a$(q, q, q, need_weights=False)[0].squeeze(0)",
        init="self.a$ = nn.MultiheadAttention(4, 2, dropout=0.1, batch_first=True)",
        changes=("net.a$.dropout = 0.", "net.a$.num_heads = 4; net.a$.head_dim = 1", "net.a$.in_proj_bias.data.fill_(<i>)"),
        weight=0.5,
    ),
    Construct(
        "function that logs",
        "y = Logged$.apply(y)",
        top="import io\nLINES$ = io.StringIO()\nLOGGER$ = logging.getLogger(__name__ + '.c$')\nLOGGER$.propagate = False\n"
        "LOGGER$.addHandler(logging.StreamHandler(LINES$))\nREAD$ = type('Read', (), {'__repr__': lambda s: "
        "LINES$.getvalue()})()\nclass Logged$(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        LOGGER$.warning('forward')\n        return x * 2\n    @staticmethod\n    def backward(ctx, g):\n"
        "        LOGGER$.warning('backward')\n        return g * 2\n",
        changes=("mod.LOGGER$.setLevel(logging.ERROR)", "mod.LOGGER$.setLevel(logging.DEBUG)"),
        weight=0.6,
    ),
    Construct(
        "object that ends",
        "Ends$()\ny = y * 2",
        top="LOG$ = []\nclass Ends$:\n    def __del__(self):\n        LOG$.append(1)\n",
        weight=0.3,
    ),
)
