"""Tensors that a module holds: buffers, parameters, views of them, ties, and those that no table lists."""

from random_programs.construct import Construct

_BUFFER = (
    "net.b$.fill_(<n>)",
    "net.b$ = <t>",
    "net.b$.data = <t>",
    "net.b$.data = net.lin.bias.data",
    "net.b$[0] = <i>",
    "net.b$ = None",
    "net.b$ = net.b$.double()",
    "del net.b$",
    "net.load_state_dict({**net.state_dict(), 'b$': <t>}, strict=False)",
    "net.register_buffer('b$', <t>, persistent=<b>)",
    "net.b$ = net.b$.clone()",
    "net.b$.resize_(4).fill_(2)",
)
_WEIGHT = (
    "net.w$.data.fill_(<i>)",
    "net.w$ = nn.Parameter(<t>)",
    "net.w$.data = <d>",
    "net.w$.requires_grad_(<b>)",
    "net.w$ = net.lin.bias",
    "net.w$.data = net.lin.bias.data",
    "net.lin.bias = net.w$",
    "net.w$.data = net.w$.data.clone()",
    "del net.w$",
    "net.w$ = nn.Parameter(net.w$.data)",
)
_TENSOR = (
    "net.t$.fill_(<n>)",
    "net.t$ = <t>",
    "net.t$.data = <d>",
    "net.t$ = net.lin.bias",
    "net.t$ = net.lin.bias.data",
    "net.t$ = net.t$.clone()",
    "net.t$ = <n>",
    "net.t$.requires_grad_()",
    "net.lin.bias.data.fill_(<i>)",
)

STATE = (
    Construct("buffer", "y = y * self.b$", init="self.register_buffer('b$', torch.arange(4.))", changes=_BUFFER),
    Construct(
        "buffer that is not persistent",
        "y = y + self.b$",
        init="self.register_buffer('b$', torch.arange(4.), persistent=False)",
        changes=_BUFFER,
    ),
    Construct(
        "buffer that may be None",
        "y = y * self.b$ if self.b$ is not None else y - 1",
        init="self.register_buffer('b$', None)",
        changes=_BUFFER,
    ),
    Construct("parameter", "y = y * self.w$", init="self.w$ = nn.Parameter(torch.arange(4.))", changes=_WEIGHT),
    Construct(
        "parameter that may be None",
        "y = y * self.w$ if self.w$ is not None else y - 1",
        init="self.register_parameter('w$', None)",
        changes=(*_WEIGHT, "net.w$ = None"),
    ),
    Construct(
        "frozen parameter",
        "y = y * self.w$",
        init="self.w$ = nn.Parameter(torch.arange(4.), requires_grad=False)",
        changes=_WEIGHT,
    ),
    Construct("plain tensor", "y = y * self.t$", init="self.t$ = torch.arange(4.)", changes=_TENSOR),
    Construct("plain tensor that is a parameter", "y = y * self.t$", init="self.__dict__['t$'] = self.lin.bias", changes=_TENSOR),
    Construct(
        "view of a parameter",
        "y = y * self.lin.weight[0] + self.lin.weight.T[1]",
        changes=(
            "net.lin.weight.data = net.lin.weight.data.T",
            "net.lin.weight.data.fill_(<i>)",
            "net.lin.weight = nn.Parameter(torch.ones(4, 4))",
        ),
    ),
    Construct(
        "held view of a parameter",
        "y = y * self.v$",
        init="self.v$ = self.lin.weight.data[0]",
        changes=(
            "net.lin.weight.data.fill_(<i>)",
            "net.v$.fill_(<i>)",
            "net.v$ = net.v$.clone()",
            "net.v$ = net.lin.weight[1]",
            "net.lin.weight.data = torch.ones(4, 4)",
            "net.v$ = net.lin.weight.data[1]",
        ),
    ),
    Construct(
        "global tensor",
        "y = y * T$",
        top="T$ = torch.arange(4.)",
        changes=("mod.T$.fill_(<n>)", "mod.T$ = <t>", "mod.T$.data = <d>", "mod.T$ = net.lin.bias", "mod.T$ = mod.T$.double()"),
    ),
    Construct(
        "tensor in a list",
        "y = y * self.c$[0]",
        init="self.c$ = [torch.arange(4.), 1]",
        changes=("net.c$[0].fill_(<n>)", "net.c$[0] = <t>", "net.c$.reverse()", "net.c$[0] = net.lin.bias", "net.c$[1] = 2"),
    ),
    Construct(
        "buffer in a dict as well",
        "y = y * self.c$['k'] + self.b$",
        init="self.register_buffer('b$', torch.arange(4.))\nself.c$ = {'k': self.b$}",
        changes=(*_BUFFER, "net.c$['k'] = <t>", "net.c$['k'].fill_(<n>)", "net.c$['k'] = net.b$"),
    ),
    Construct(
        "tensor in a closure",
        "y = f$(y)",
        top="def make$():\n    t = torch.arange(4.)\n    return (lambda y: y * t), t\nf$, t$ = make$()",
        changes=(
            "mod.t$.fill_(<n>)",
            "mod.f$, mod.t$ = mod.make$()",
            "mod.f$.__closure__[0].cell_contents = <t>",
            "mod.t$ = None",
        ),
    ),
    Construct(
        "two buffers of one memory",
        "y = y * self.b$ + self.head$.sum()",
        init="self.register_buffer('b$', torch.arange(4.))\nself.register_buffer('head$', self.b$[:2])",
        changes=(*_BUFFER, "net.head$.fill_(<n>)", "net.head$ = net.b$[2:]", "net.head$ = torch.ones(2)"),
    ),
    Construct(
        "views of one parameter",
        "y = y * self.a$[0] + self.c$[0]",
        init="self.a$ = nn.Parameter(torch.ones(2, 4))\nself.c$ = nn.Parameter(self.a$.data[1:])",
        changes=(
            "net.a$.data.fill_(<i>)",
            "net.c$.data.fill_(<i>)",
            "net.c$ = nn.Parameter(torch.ones(1, 4))",
            "net.c$.data = net.a$.data[:1]",
        ),
    ),
    Construct(
        "names of parameters",
        "y = y * len([*self.parameters()]) + sum(len(n) for n, _ in self.named_buffers())",
        changes=(
            "net.p$ = nn.Parameter(torch.ones(1))",
            "del net.p$",
            "net.register_buffer('q$', torch.ones(1))",
            "net.q$ = None",
            "net.lin.bias = None",
        ),
        weight=0.6,
    ),
    Construct(
        "sum of all parameters",
        "y = y + sum(p.sum() for p in self.parameters()) * 0.1",
        changes=(
            "net.p$ = nn.Parameter(torch.ones(2))",
            "del net.p$",
            "net.lin.bias = None",
            "net.lin.weight = nn.Parameter(net.lin.weight.data * 2)",
        ),
    ),
    Construct(
        "state_dict",
        "y = y * len(self.state_dict())",
        changes=(
            "net.p$ = nn.Parameter(torch.ones(2))",
            "del net.p$",
            "net.register_buffer('q$', torch.ones(1), persistent=<b>)",
        ),
        weight=0.4,
    ),
    Construct(
        "detached weight", "y = y * self.w$.detach() + self.w$", init="self.w$ = nn.Parameter(torch.arange(4.))", changes=_WEIGHT
    ),
    Construct(
        "weight without a gradient",
        "with torch.no_grad():\n    z = y * self.w$\ny = y + z * self.w$",
        init="self.w$ = nn.Parameter(torch.arange(4.))",
        changes=_WEIGHT,
    ),
    Construct(
        "tensor from an array",
        "y = y * torch.as_tensor(self.c$)",
        init="self.c$ = np.ones(4, dtype=np.float32)",
        changes=("net.c$[1] = <i>", "net.c$ = np.full(4, <i>, dtype=np.float64)", "net.c$ *= 2"),
    ),
    Construct(
        "buffer from an array",
        "y = y * self.b$",
        init="self.c$ = np.ones(4, dtype=np.float32)\nself.register_buffer('b$', torch.from_numpy(self.c$))",
        changes=("net.c$[1] = <i>", "net.b$.fill_(<n>)", "net.c$ *= 2", "net.b$ = <t>"),
    ),
    Construct(
        "tensor made of a list",
        "y = y * torch.tensor(self.c$)",
        init="self.c$ = [1., 2., 3., 4.]",
        changes=("net.c$[1] = <n>", "net.c$ = [<n>] * 4", "net.c$.reverse()"),
    ),
    Construct(
        "number beside a buffer",
        "y = y * self.b$ + self.k$",
        init="self.register_buffer('b$', torch.tensor(2))\nself.k$ = 1",
        changes=("net.k$ = <n>", "net.b$.fill_(<p>)", "net.b$ = torch.tensor(2.5)", "net.k$ = torch.tensor(1)"),
    ),
    Construct(
        "tensor subclass",
        "y = y * self.t$.as_subclass(torch.Tensor)",
        top="class Tagged$(torch.Tensor):\n    pass\n",
        init="self.t$ = torch.arange(4.).as_subclass(Tagged$)",
        changes=("net.t$ = <t>", "net.t$.tag = 1", "net.t$.fill_(<n>)"),
        weight=0.3,
    ),
    Construct(
        "parametrization",
        "y = self.q$(y)",
        top="class Twice$(nn.Module):\n    k = 2\n    def forward(self, w):\n        return w * self.k\n",
        init="self.q$ = torch.nn.utils.parametrize.register_parametrization(nn.Linear(4, 4), 'weight', Twice$())",
        changes=(
            "net.q$.parametrizations.weight[0].k = <n>",
            "mod.Twice$.k = <n>",
            "net.q$.weight = torch.ones(4, 4)",
            "torch.nn.utils.parametrize.remove_parametrizations(net.q$, 'weight')",
        ),
        weight=0.5,
    ),
)
