"""Writes in place: to buffers, arguments, through views, by Functions; and what is drawn at random."""

from random_programs.construct import Construct

_BUFFER = (
    "net.b$.fill_(<n>)",
    "net.b$ = torch.zeros(4)",
    "net.b$.data = torch.ones(4)",
    "net.b$ = net.b$.clone()",
    "net.load_state_dict({**net.state_dict(), 'b$': <t>}, strict=False)",
)
_INIT = "self.register_buffer('b$', torch.zeros(4))"
_CLAMP = (
    "class Clamp$(torch.autograd.Function):\n    limit = 10.\n    @staticmethod\n    def forward(ctx, x):\n"
    "        return x.clamp(max=Clamp$.limit)\n    @staticmethod\n    def backward(ctx, g):\n        return g * 2\n"
)
_IN_PLACE = (
    "class Clamp$(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.mark_dirty(x)\n"
    "        return x.clamp_(max=10.)\n    @staticmethod\n    def backward(ctx, g):\n        return g * 2\n"
)
_UNMARKED = _IN_PLACE.replace("        ctx.mark_dirty(x)\n", "").replace(
    "return x.clamp_(max=10.)", "x.clamp_(max=10.)\n        return x * 1"
)
_SAVES = (
    "class Scale$(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, w, k):\n"
    "        ctx.save_for_backward(x, w)\n"
    "        ctx.k = k\n        return x * w * k\n    @staticmethod\n    def backward(ctx, g):\n"
    "        x, w = ctx.saved_tensors\n"
    "        return g * w * ctx.k, (g * x).sum(0) * ctx.k, None\n"
)

WRITES = (
    Construct(
        "running mean",
        "if self.training:\n    self.b$.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)\ny = y - self.b$",
        init=_INIT,
        changes=_BUFFER,
    ),
    Construct(
        "counter buffer",
        "self.n$ += 1\ny = y * self.n$",
        init="self.register_buffer('n$', torch.zeros((), dtype=torch.long))",
        changes=("net.n$.zero_()", "net.n$ = torch.tensor(5)", "net.n$.fill_(<p>)", "net.n$ = net.n$.float()"),
    ),
    Construct(
        "buffer replaced", "self.b$ = self.b$ + y.detach().mean(0)\ny = y + self.b$", init=_INIT, changes=_BUFFER, weight=0.6
    ),
    Construct(
        "write through a view of a buffer", "self.b$[:2].add_(y.detach().mean())\ny = y + self.b$", init=_INIT, changes=_BUFFER
    ),
    Construct(
        "write to a buffer that is also held elsewhere",
        "self.b$.add_(y.detach().mean(0))\ny = y + self.c$['k']",
        init=_INIT + "\nself.c$ = {'k': self.b$}",
        changes=(*_BUFFER, "net.c$['k'] = net.b$", "net.c$['k'] = torch.ones(4)"),
    ),
    Construct(
        "write to a buffer that another shows",
        "self.b$.add_(y.detach().mean(0))\ny = y + self.head$.sum()",
        init=_INIT + "\nself.register_buffer('head$', self.b$[:2])",
        changes=(*_BUFFER, "net.head$ = net.b$[:2]", "net.head$ = torch.ones(2)", "net.head$.fill_(<n>)"),
    ),
    Construct(
        "write to a buffer beside another",
        "self.b$.add_(y.detach().mean(0))\ny = y + self.d$",
        init=_INIT + "\nself.register_buffer('d$', torch.ones(4))",
        changes=(
            *_BUFFER,
            "net.d$.data = net.b$",
            "net.d$ = net.b$",
            "net.d$ = net.b$.clone()",
            "net.b$.data = net.d$",
            "net.d$.fill_(<n>)",
        ),
    ),
    Construct(
        "average of a weight",
        "with torch.no_grad():\n    self.e$.lerp_(self.lin.bias, 0.1)\ny = y + self.e$",
        init="self.register_buffer('e$', self.lin.bias.detach().clone())",
        changes=(
            "net.e$ = net.lin.bias.data",
            "net.e$.data = net.lin.bias.data",
            "net.e$.fill_(<n>)",
            "net.lin.bias.data.fill_(<i>)",
            "net.e$ = torch.zeros(4)",
        ),
    ),
    Construct(
        "write to a plain tensor",
        "self.t$.add_(1)\ny = y + self.t$",
        init="self.t$ = torch.zeros(4)",
        changes=("net.t$.fill_(<n>)", "net.t$ = torch.zeros(4)", "net.t$ = net.t$.clone()"),
        weight=0.5,
    ),
    Construct(
        "write to a parameter",
        "with torch.no_grad():\n    self.w$.clamp_(-1, 2)\ny = y * self.w$",
        init="self.w$ = nn.Parameter(torch.arange(4.))",
        changes=("net.w$.data.fill_(<n>)", "net.w$ = nn.Parameter(torch.ones(4))", "net.lin.bias = net.w$"),
        weight=0.6,
    ),
    Construct(
        "write to an intermediate",
        "y = y.clone()\ny[:, 0] = self.k$\ny[:, 1:3].mul_(2)",
        init="self.k$ = 2",
        changes=("net.k$ = <n>",),
    ),
    Construct(
        "write to an argument",
        "a$.add_(1)\ny = y + a$.sum()",
        parameters=("a$=torch.zeros(1)",),
        arguments=("a$=x(4)", "a$=x(2, 2)", "a$=net.lin.bias.data"),
        weight=0.6,
    ),
    Construct(
        "Function",
        "y = Clamp$.apply(y)",
        top=_CLAMP,
        changes=("mod.Clamp$.limit = <n>", "mod.Clamp$.backward = staticmethod(lambda ctx, g: g * 3)"),
    ),
    Construct(
        "Function that writes in place",
        "z = y * 1\ny = Clamp$.apply(z) + z",
        top=_IN_PLACE,
        changes=("net.lin.bias.data.fill_(40)", "net.lin.bias.data.fill_(0)"),
    ),
    Construct(
        "Function that writes unmarked",
        "z = (y * 1).detach()\ny = Clamp$.apply(z) + z + y",
        top=_UNMARKED,
        changes=("net.lin.bias.data.fill_(40)", "net.lin.bias.data.fill_(0)"),
    ),
    Construct(
        "Function that writes to a buffer",
        "w = Clamp$.apply(self.b$)\ny = y + self.b$ + w",
        init="self.register_buffer('b$', torch.ones(4))",
        top=_UNMARKED,
        changes=("net.b$.fill_(40)", "net.b$.fill_(<n>)"),
    ),
    Construct(
        "Function that saves",
        "y = Scale$.apply(y, self.w$, self.k$)",
        top=_SAVES,
        init="self.w$ = nn.Parameter(torch.arange(4.))\nself.k$ = 2",
        changes=("net.k$ = <n>", "net.w$.requires_grad_(<b>)", "net.w$ = nn.Parameter(torch.ones(4))", "net.w$.data.fill_(<i>)"),
    ),
    Construct(
        "dropout",
        "y = F.dropout(y, self.p$, self.training)",
        init="self.p$ = 0.5",
        changes=("net.p$ = 0.25", "net.p$ = 0.", "net.eval()", "net.train()"),
    ),
    Construct(
        "Dropout",
        "y = self.d$(y)",
        init="self.d$ = nn.Dropout(0.5)",
        changes=(
            "net.d$.p = 0.25",
            "net.d$.p = 0",
            "net.d$.eval()",
            "net.d$.train()",
            "net.d$.inplace = <b>",
            "net.d$ = nn.Identity()",
        ),
    ),
    Construct(
        "random numbers", "y = y + torch.rand(4) * self.k$ + torch.randn_like(y)", init="self.k$ = 1", changes=("net.k$ = <n>",)
    ),
    Construct("random numbers that nobody reads", "torch.rand(3)\ny = y * 2", weight=0.5),
    Construct(
        "random numbers of a generator",
        "y = y + torch.rand(4, generator=self.g$)",
        init="self.g$ = torch.Generator().manual_seed(3)",
        changes=("net.g$.manual_seed(5)", "net.g$ = torch.Generator().manual_seed(3)"),
        weight=0.4,
    ),
    Construct(
        "BatchNorm",
        "y = self.n$(y)",
        init="self.n$ = nn.BatchNorm1d(4)",
        changes=(
            "net.n$.eval()",
            "net.n$.train()",
            "net.n$.momentum = 0.5",
            "net.n$.momentum = None",
            "net.n$.reset_running_stats()",
            "net.n$.eps = 1.",
            "net.n$.track_running_stats = <b>",
            "net.n$.running_mean.fill_(<i>)",
            "net.n$.weight = None",
            "net.n$.running_var = None",
        ),
    ),
    Construct(
        "buffer in the results",
        "out['b$'] = self.b$\ny = y * 2",
        init="self.register_buffer('b$', torch.arange(4.))",
        changes=_BUFFER,
    ),
    Construct(
        "view of a buffer in the results",
        "out['b$'] = self.b$[1:]\ny = y * 2",
        init="self.register_buffer('b$', torch.arange(4.))",
        changes=_BUFFER,
    ),
    Construct(
        "parameter in the results",
        "out['w$'] = self.lin.weight\nout['v$'] = self.lin.bias[:2]",
        changes=("net.lin.weight = nn.Parameter(torch.ones(4, 4))", "net.lin.weight.requires_grad_(<b>)"),
    ),
    Construct("argument in the results", "out['x$'] = x\nout['r$'] = x.reshape(-1)"),
    Construct(
        "object in the results",
        "out['c$'] = self.c$\nout['d$'] = (self.c$, [self.d$])",
        init="self.c$ = [1, 2]\nself.d$ = {'k': 1}",
        changes=("net.c$.append(3)", "net.d$['k'] = <n>", "net.c$ = [1, 2]", "net.d$ = net.c$"),
        weight=0.6,
    ),
    Construct("views in the results", "out['a$'] = y[:, :2]\nout['b$'] = y.t()\nout['c$'] = y"),
    Construct(
        "plain values in the results",
        "out['k$'] = self.k$\nout['n$'] = None\nout['s$'] = x.shape",
        init="self.k$ = 1",
        changes=("net.k$ = <n>", "net.k$ = <s>", "net.k$ = None"),
    ),
    Construct("detached result", "out['d$'] = y.detach()\nout['e$'] = (y * 2).detach()\nout['i$'] = y.argmax(-1)"),
    Construct(
        "gradient inside",
        "with torch.enable_grad():\n    z = y.detach().requires_grad_()\n"
        "    g, = torch.autograd.grad((z ** 2).sum() * self.k$, z)\ny = y + g",
        init="self.k$ = 1",
        changes=("net.k$ = <n>",),
        weight=0.4,
    ),
    Construct(
        "checkpoint",
        "y = torch.utils.checkpoint.checkpoint(self.f$, y, use_reentrant=False)",
        init="self.k$ = 2",
        members="def f$(self, y):\n    return torch.tanh(y) * self.k$",
        changes=("net.k$ = <n>",),
        weight=0.4,
    ),
)
