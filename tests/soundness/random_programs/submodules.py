"""Tables of submodules, and hooks."""

from random_programs.construct import Construct

_LINEARS = "nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)"
_HOOK = (
    "def hook$(module, args, result):\n    return result * K$\nK$ = 1.5\ndef other$(module, args, result):\n"
    "    return result - 1\n"
)

SUBMODULES = (
    Construct(
        "Sequential",
        "y = self.s$(y)",
        init=f"self.s$ = nn.Sequential({_LINEARS})",
        changes=(
            "net.s$.append(nn.Tanh())",
            "net.s$.pop(-1)",
            "net.s$[1] = nn.ReLU()",
            "net.s$.insert(0, nn.ReLU())",
            "del net.s$[0]",
            "net.s$[0] = net.s$[2]",
            "net.s$ = nn.Sequential(nn.Tanh())",
            "net.s$[2].weight = net.s$[0].weight",
            "net.s$.add_module('1', nn.Sigmoid())",
            "net.s$ = net.s$[:2]",
        ),
    ),
    Construct(
        "ModuleList",
        "for m in self.l$:\n    y = m(y)",
        init=f"self.l$ = nn.ModuleList([{_LINEARS}])",
        changes=(
            "net.l$.append(nn.Tanh())",
            "net.l$.pop(-1)",
            "net.l$[1] = nn.ReLU()",
            "net.l$.insert(0, nn.ReLU())",
            "del net.l$[0]",
            "net.l$ = nn.ModuleList(reversed(net.l$))",
            "net.l$.extend([net.lin])",
            "net.l$[0] = net.lin",
        ),
    ),
    Construct(
        "ModuleDict",
        "for n, m in self.d$.items():\n    y = m(y) + len(n)",
        init="self.d$ = nn.ModuleDict({'a': nn.Linear(4, 4), 'b': nn.Tanh()})",
        changes=(
            "net.d$['c'] = nn.ReLU()",
            "del net.d$['a']",
            "net.d$['a'] = nn.Identity()",
            "net.d$.update({'b': nn.ReLU()})",
            "net.d$['a'] = net.d$.pop('a')",
            "net.d$.clear()",
        ),
    ),
    Construct(
        "in a ModuleDict",
        "y = self.d$['a'](y) if 'a' in self.d$ else y - 1",
        init="self.d$ = nn.ModuleDict({'a': nn.Linear(4, 4)})",
        changes=("del net.d$['a']", "net.d$['a'] = nn.Tanh()", "net.d$['q'] = nn.Tanh()"),
    ),
    Construct(
        "children",
        "for m in self.children():\n    if isinstance(m, nn.Linear):\n        y = m(y)",
        changes=("net.more$ = nn.Linear(4, 4)", "del net.more$", "net.more$ = nn.Tanh()", "net.lin = nn.Linear(4, 4)"),
        weight=0.7,
    ),
    Construct(
        "submodule that may be None",
        "y = self.m$(y) if self.m$ is not None else y - 1",
        init="self.m$ = None",
        changes=("net.m$ = nn.Tanh()", "net.m$ = None", "net.m$ = nn.Linear(4, 4)", "del net.m$", "net.m$ = net.lin"),
    ),
    Construct(
        "submodule that may be absent",
        "if hasattr(self, 'm$'):\n    y = self.m$(y)",
        changes=("net.m$ = nn.Tanh()", "del net.m$", "net.add_module('m$', nn.ReLU())", "net.m$ = nn.Linear(4, 4)"),
    ),
    Construct(
        "attribute of a submodule",
        "y = self.m$(y) * self.m$.out_features",
        init="self.m$ = nn.Linear(4, 4)",
        changes=(
            "net.m$.out_features = <p>",
            "net.m$ = nn.Linear(4, 4, bias=False)",
            "net.m$.bias = None",
            "net.m$.in_features = 7",
        ),
    ),
    Construct(
        "layers with settings",
        "y = self.m$(y)",
        init="self.m$ = nn.LeakyReLU(0.1)",
        changes=(
            "net.m$.negative_slope = 0.5",
            "net.m$ = nn.LeakyReLU(0.3)",
            "net.m$.inplace = <b>",
            "net.m$.__class__ = nn.Identity",
            "net.m$ = nn.ELU()",
        ),
    ),
    Construct(
        "LayerNorm",
        "y = self.m$(y)",
        init="self.m$ = nn.LayerNorm(4)",
        changes=(
            "net.m$.eps = 1.",
            "net.m$.weight = None",
            "net.m$.bias.data.fill_(<i>)",
            "net.m$.normalized_shape = (2,)",
            "net.m$.bias = net.lin.bias",
        ),
    ),
    Construct(
        "class of a submodule",
        "y = self.m$(y)",
        top="class One$(nn.Linear):\n    def forward(self, x):\n        return super().forward(x) * 1.5\n"
        "class Two$(nn.Linear):\n    k = 2\n    def forward(self, x):\n        return super().forward(x) * self.k\n",
        init="self.m$ = One$(4, 4)",
        changes=(
            "net.m$.__class__ = mod.Two$",
            "net.m$.__class__ = mod.One$",
            "mod.Two$.k = <n>",
            "mod.One$.forward = mod.Two$.forward",
            "net.m$.forward = lambda x: x * <n>",
            "del net.m$.forward",
            "net.m$.k = <n>",
            "mod.One$.k = <n>",
        ),
    ),
    Construct(
        "the same submodule twice",
        "y = self.m$(self.n$(y))",
        init="self.m$ = nn.Linear(4, 4)\nself.n$ = self.m$",
        changes=("net.n$ = nn.Linear(4, 4)", "net.m$ = nn.Linear(4, 4)", "net.n$ = net.m$", "net.n$.weight.data.fill_(0.1)"),
    ),
    Construct(
        "forward hook",
        "y = self.m$(y)",
        top=_HOOK,
        init="self.m$ = nn.Linear(4, 4)\nself.h$ = self.m$.register_forward_hook(hook$)",
        changes=(
            "net.h$.remove()",
            "net.h$ = net.m$.register_forward_hook(mod.other$)",
            "mod.K$ = <n>",
            "net.m$._forward_hooks.clear()",
            "net.h$ = net.m$.register_forward_hook(mod.other$, prepend=True)",
        ),
        weight=0.6,
    ),
    Construct(
        "hook moved to another module",
        "y = self.m$(y)",
        top=_HOOK,
        init="self.m$ = nn.Linear(4, 4)",
        changes=(
            "net.h$ = net.lin.register_forward_hook(mod.hook$)",
            "net.h$ = net.m$.register_forward_hook(mod.hook$)",
            "net.h$.remove()",
            "net.h$ = net.m$.register_forward_pre_hook(lambda m, a: (a[0] * <n>,))",
            "mod.K$ = <n>",
        ),
        weight=0.6,
    ),
    Construct(
        "backward hook",
        "y = self.m$(y)",
        init="self.m$ = nn.Linear(4, 4)",
        changes=(
            "net.h$ = net.m$.register_full_backward_hook(lambda m, i, o: (i[0] * 2,))",
            "net.h$.remove()",
            "net.h$ = net.lin.register_full_backward_hook(lambda m, i, o: None)",
        ),
        weight=0.4,
    ),
    Construct(
        "hook of a parameter",
        "y = y * self.w$",
        init="self.w$ = nn.Parameter(torch.ones(4))",
        changes=(
            "net.h$ = net.w$.register_hook(lambda g: g * <n>)",
            "net.h$.remove()",
            "net.h$ = net.lin.weight.register_hook(lambda g: g * <n>)",
        ),
        weight=0.5,
    ),
    Construct(
        "modules by name",
        "y = y * len([n for n, _ in self.named_modules()]) + (1 if self.get_submodule('lin').bias is None else 0)",
        changes=("net.more$ = nn.Tanh()", "del net.more$", "net.lin.more$ = nn.Tanh()", "net.lin.bias = None"),
        weight=0.5,
    ),
    Construct(
        "list of modules that is no ModuleList",
        "for m in self.l$:\n    y = m(y)",
        init="self.l$ = [nn.Tanh(), self.lin]",
        changes=(
            "net.l$.reverse()",
            "net.l$[1] = nn.ReLU()",
            "net.l$.append(nn.ReLU())",
            "net.lin = nn.Linear(4, 4)",
            "net.l$[1] = net.lin",
        ),
    ),
    Construct(
        "module in a closure",
        "y = f$(y)",
        top="hidden$ = nn.LeakyReLU(0.2)\nf$ = lambda y: hidden$(y)",
        changes=("mod.hidden$.negative_slope = 0.5", "mod.hidden$ = nn.Tanh()", "mod.hidden$.eval()", "mod.f$ = torch.sin"),
    ),
    Construct(
        "Embedding",
        "y = y + self.e$((x[..., 0] > 0).long())",
        init="self.e$ = nn.Embedding(3, 4)",
        changes=(
            "net.e$.padding_idx = 1",
            "net.e$.weight.data.fill_(<i>)",
            "net.e$.max_norm = 0.5",
            "net.e$ = nn.Embedding(3, 4)",
            "net.e$.scale_grad_by_freq = True",
        ),
    ),
    Construct(
        "spectral norm",
        "y = self.q$(y)",
        init="self.q$ = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))",
        changes=("net.q$.parametrizations.weight.original0.data.fill_(2)", "net.q$.eval()", "net.q$.weight = torch.ones(4, 4)"),
        weight=0.4,
    ),
)
