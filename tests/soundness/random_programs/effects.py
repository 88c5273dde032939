"""Effects of a forward, which must be as many as in eager: each leaves a trace that the comparison sees. Most keep a call in
eager, so that they are rare."""

from random_programs.construct import Construct

_FUNCTION = (
    "LOG$ = []\nclass Counted$(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
    "        {forward}return x * 2\n"
    "    @staticmethod\n    def backward(ctx, g):\n        {backward}return g * 2\n"
)
_NOTE = "LOG$.append(1); "

EFFECTS = (
    Construct(
        "count by a global function", "note$()\ny = y * 2", top="LOG$ = []\ndef note$():\n    LOG$.append(1)\n", weight=0.2
    ),
    Construct(
        "count by a closure",
        "note$()\ny = y * 2",
        top="def make$():\n    n = 0\n    def note():\n        nonlocal n\n        n += 1\n    return note\nnote$ = make$()\n",
        weight=0.2,
    ),
    Construct(
        "count by a method",
        "self.c$.note()\ny = y * 2",
        top="class Counter$:\n    n = 0\n    def note(self):\n        self.n += 1\n",
        init="self.c$ = Counter$()",
        weight=0.2,
    ),
    Construct("count by an attribute", "self.n$ += 1\ny = y * 2", init="self.n$ = 0", changes=("net.n$ = 0",), weight=0.2),
    Construct("count by a class attribute", "type(self).n$ += 1\ny = y * 2", members="n$ = 0", weight=0.2),
    Construct(
        "last result kept",
        "self.last$ = y.detach()\ny = y * 2",
        init="self.last$ = None",
        changes=("net.last$ = None", "net.last$ = torch.ones(4)"),
        weight=0.3,
    ),
    Construct("loss kept", "self.aux$ = y.square().mean() * 3\ny = y * 2", init="self.aux$ = None", changes=("net.aux$ = <n>",)),
    Construct(
        "result kept without a line in __init__",
        "self.new$ = y\ny = y * 2",
        changes=("net.__dict__.pop('new$', None)", "net.new$ = <n>", "net.new$ = torch.nn.Linear(1, 1)"),
    ),
    Construct(
        "result kept and read",
        "self.h$ = y * 1.5\nself.g$ = [self.h$, x.shape[0], None]\ny = self.h$ + self.g$[1]",
        changes=("net.h$ = 3", "del net.h$", "net.g$ = <t>"),
    ),
    Construct(
        "kept in one of two cases",
        "if self.k$ > 2:\n    self.h$ = y.detach()\ny = y * 2",
        init="self.k$ = 3",
        changes=("net.k$ = <i>", "net.h$ = <n>"),
    ),
    Construct(
        "kept over a default of the class",
        "self.h$ = y.sum() if self.training else 4\ny = y + self.h$",
        members="h$ = 5",
        changes=("type(net).h$ = <n>", "net.__dict__.pop('h$', None)", "net.train(not net.training)"),
    ),
    Construct(
        "kept by a property",
        "self.p$ = y\ny = self.p$ * 2",
        members="@property\ndef p$(self):\n    return self.q$ * 2\n@p$.setter\ndef p$(self, value):\n    self.q$ = value\n",
        changes=("net.q$ = <n>",),
    ),
    Construct(
        "kept after a look",
        "y = y * 2 if getattr(self, 'h$', None) is None else y * 3\nself.h$ = y.detach()",
        changes=("net.h$ = None", "net.__dict__.pop('h$', None)"),
        weight=0.3,
    ),
    Construct(
        "kept within a checkpoint",
        "def kept$(z):\n    self.h$ = z * 2\n    return self.h$ * z\n"
        "y = torch.utils.checkpoint.checkpoint(kept$, y, use_reentrant=False)",
        weight=0.3,
    ),
    Construct(
        "last result kept in a list",
        "self.kept$.append(y)\ny = y * 2",
        init="self.kept$ = []",
        changes=("net.kept$.clear()",),
        weight=0.2,
    ),
    Construct("global counter", "global N$\nN$ = N$ + 1\ny = y * 2", top="N$ = 0", weight=0.2),
    Construct("print", "print('forward', self.k$)\ny = y * 2", init="self.k$ = 1", changes=("net.k$ = <n>",), weight=0.2),
    Construct("write", "sys.stdout.write('forward')\ny = y * 2", weight=0.1),
    Construct(
        "system call",
        "os.write(FILES$(), b'a')\ny = y * 2",
        top="FILES$ = functools.cache(lambda: os.memfd_create('log'))\nREAD$ = type('Read', (), {'__repr__': lambda s: "
        "str(os.fstat(FILES$()).st_size)})\nDESCRIBED$ = READ$()\n",
        weight=0.1,
    ),
    Construct("warning", "warnings.warn('forward', stacklevel=1)\ny = y * 2", weight=0.2),
    Construct(
        "log record",
        "LOGGER$.warning('forward')\ny = y * 2",
        top="LOG$ = []\nclass Handler$(logging.Handler):\n    def emit(self, record):\n"
        "        LOG$.append(record.getMessage())\nLOGGER$ = logging.getLogger(__name__ + '.b$')\n"
        "LOGGER$.addHandler(Handler$())\nLOGGER$.propagate = False\n",
        weight=0.2,
    ),
    Construct(
        "effect of a Function's forward", "y = Counted$.apply(y)", top=_FUNCTION.format(forward=_NOTE, backward=""), weight=0.4
    ),
    Construct(
        "effect of a Function's backward", "y = Counted$.apply(y)", top=_FUNCTION.format(forward="", backward=_NOTE), weight=0.4
    ),
    Construct(
        "print of a Function's backward",
        "y = Counted$.apply(y)",
        top=_FUNCTION.format(forward="", backward="print('backward'); "),
        weight=0.3,
    ),
    Construct(
        "effect of a hook of the module",
        "y = self.m$(y)",
        top="LOG$ = []\ndef hook$(*_):\n    LOG$.append(1)\n",
        init="self.m$ = nn.Linear(4, 4)\nself.m$.register_forward_hook(hook$)",
        changes=("net.m$._forward_hooks.clear()",),
        weight=0.3,
    ),
    Construct(
        "effect of a backward hook",
        "y = self.m$(y)",
        top="LOG$ = []\ndef hook$(*_):\n    LOG$.append(1)\n",
        init="self.m$ = nn.Linear(4, 4)\nself.m$.register_full_backward_hook(hook$)",
        weight=0.3,
    ),
    Construct(
        "effect of a parameter's hook",
        "y = y * self.w$",
        top="LOG$ = []\ndef hook$(g):\n    LOG$.append(1)\n",
        init="self.w$ = nn.Parameter(torch.ones(4))\nself.w$.register_hook(hook$)",
        weight=0.4,
    ),
    Construct(
        "effect after accumulation",
        "y = y * self.w$",
        top="LOG$ = []\ndef hook$(p):\n    LOG$.append(float(p.grad.sum()) > 0)\n",
        init="self.w$ = nn.Parameter(torch.ones(4))\nself.w$.register_post_accumulate_grad_hook(hook$)",
        weight=0.4,
    ),
    Construct(
        "effect of an intermediate's hook",
        "y = y * 2\nif y.requires_grad:\n    y.register_hook(hook$)",
        top="LOG$ = []\ndef hook$(g):\n    LOG$.append(1)\n",
        weight=0.2,
    ),
    Construct(
        "effect of a property",
        "y = y * self.p$",
        top="LOG$ = []\n",
        members="@property\ndef p$(self):\n    LOG$.append(1)\n    return 1.5",
        weight=0.3,
    ),
    Construct(
        "effect of a property that is not read",
        "y = y * 1.5",
        top="LOG$ = []\n",
        members="@property\ndef p$(self):\n    LOG$.append(1)\n    return 1.5",
        weight=0.4,
    ),
    Construct(
        "effect of comparing",
        "y = y * self.c$.k",
        top="LOG$ = []\nclass Watched$:\n    k = 1.5\n    def __eq__(self, other):\n        LOG$.append('eq')\n"
        "        return self is other\n    def __hash__(self):\n        LOG$.append('hash')\n        return 1\n"
        "    def __repr__(self):\n        LOG$.append('repr')\n"
        "        return 'w'\n    def __getattr__(self, name):\n        LOG$.append(name)\n        raise AttributeError(name)\n"
        "    def __bool__(self):\n"
        "        LOG$.append('bool')\n        return True\n    def __len__(self):\n        LOG$.append('len')\n"
        "        return 1\n    def __iter__(self):\n"
        "        LOG$.append('iter')\n        return iter(())\n",
        init="self.c$ = Watched$()",
        changes=("net.c$.k = <n>",),
        weight=0.5,
    ),
    Construct(
        "Python's random numbers", "y = y * random.random()", top="import random\nRANDOM$ = random.Random(3)\n", weight=0.2
    ),
    Construct(
        "NumPy's random numbers",
        "y = y * float(RANDOM$.random())",
        top="RANDOM$ = np.random.RandomState(3)\n",
        changes=("mod.RANDOM$.seed(3)",),
        weight=0.2,
    ),
    Construct(
        "error",
        "if x.shape[0] == self.n$:\n    raise KeyError('rows')\ny = y * 2",
        init="self.n$ = 7",
        changes=("net.n$ = 3", "net.n$ = 2", "net.n$ = 7"),
        weight=0.6,
    ),
    Construct(
        "error after a write",
        "self.b$.add_(1)\nif x.shape[0] == self.n$:\n    raise KeyError('rows')\ny = y + self.b$",
        init="self.n$ = 7\nself.register_buffer('b$', torch.zeros(4))",
        changes=("net.n$ = 3", "net.n$ = 2", "net.n$ = 7"),
        weight=0.5,
    ),
    Construct(
        "error at run time",
        "self.b$.add_(1)\ny = y + F.embedding((x[:, 0].abs() * self.k$).long(), self.e$)",
        init="self.k$ = 0\nself.register_buffer('b$', torch.zeros(4))\nself.e$ = nn.Parameter(torch.ones(3, 4))",
        changes=("net.k$ = 1000", "net.k$ = 0", "net.lin.weight.data.fill_(100)"),
        weight=0.5,
    ),
    Construct(
        "failing operator",
        "try:\n    y = y + torch.linalg.cholesky(self.c$).sum()\nexcept RuntimeError:\n    y = y - 1",
        init="self.register_buffer('c$', torch.eye(2))",
        changes=("net.c$.neg_()", "net.c$.copy_(torch.eye(2))", "net.c$ = -torch.eye(2)"),
        weight=0.5,
    ),
)
