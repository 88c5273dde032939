"""Arguments: tensors that share memory with others or with the module, plain values, None, containers, objects."""

from random_programs.construct import Construct

_TENSOR = (
    "a$=x(4)",
    "a$=x(1, 4)",
    "a$=None",
    "a$=x(4, grad=True)",
    "a$=x(4, dtype=torch.float64)",
    "a$=x(8)[::2]",
    "a$=x(4).requires_grad_()",
)
_SHARED = (
    "a$=net.lin.bias",
    "a$=net.lin.weight",
    "a$=net.lin.bias.data",
    "a$=net.lin.weight[0]",
    "a$=net.lin.weight.data[1]",
    "a$=x(4)",
)
_SAVED = ("a$=v(0, 4)", "a$=v(0, 4), b$=v(0, 4)", "a$=v(0, 4), b$=v(2, 6)", "a$=v(0, 4), b$=v(4, 8)", "a$=x(4), b$=x(4)")

ARGUMENTS = (
    Construct("optional tensor", "y = y * a$ if a$ is not None else y - 1", parameters=("a$=None",), arguments=_TENSOR),
    Construct("state as an argument", "y = y + (a$ if a$ is not None else 1)", parameters=("a$=None",), arguments=_SHARED),
    Construct(
        "buffer as an argument",
        "self.b$.mul_(0.5).add_(y.detach().mean(0))\ny = y + (a$ if a$ is not None else 1)",
        parameters=("a$=None",),
        arguments=("a$=net.b$", "a$=x(4)", "a$=net.b$.clone()", "a$=net.b$[:1]"),
        init="self.register_buffer('b$', torch.ones(4))",
        changes=("net.b$ = torch.ones(4)", "net.b$.fill_(<n>)"),
    ),
    Construct(
        "arguments that overlap",
        "if a$ is not None:\n    y = y * a$\nif b$ is not None:\n    y = y + b$",
        parameters=("a$=None", "b$=None"),
        arguments=_SAVED,
    ),
    Construct(
        "written arguments that overlap",
        "if a$ is not None:\n    a$.add_(1)\nif b$ is not None:\n    y = y + b$",
        parameters=("a$=None", "b$=None"),
        arguments=_SAVED,
        weight=0.7,
    ),
    Construct(
        "arguments on an array",
        "if a$ is not None:\n    a$.mul_(2)\nif b$ is not None:\n    y = y + b$",
        parameters=("a$=None", "b$=None"),
        arguments=("a$=numpy(0, 4), b$=numpy(0, 4)", "a$=numpy(0, 4), b$=numpy(2, 6)", "a$=numpy(0, 4), b$=numpy(4, 8)"),
        weight=0.5,
    ),
    Construct(
        "the input twice",
        "y = y + a$ if a$ is not None else y",
        parameters=("a$=None",),
        arguments=("a$=same()", "a$=same()[:1]", "a$=x(3, 4)", "a$=same().data"),
    ),
    Construct(
        "identity of two arguments",
        "y = y * (2 if a$ is x else 3)",
        parameters=("a$=None",),
        arguments=("a$=same()", "a$=x(3, 4)", "a$=same()[:]"),
    ),
    Construct(
        "plain number",
        "y = y * a$",
        parameters=("a$=1.5",),
        arguments=("a$=<n>", "a$=<i>", "a$=torch.tensor(2.)", "a$=np.float32(2)"),
    ),
    Construct(
        "plain flag",
        "y = y * 2 if a$ else y - 1",
        parameters=("a$=False",),
        arguments=("a$=True", "a$=None", "a$=<i>", "a$=''", "a$=[]"),
    ),
    Construct(
        "text",
        "y = y * len(a$) if a$ != 'a' else y - 1",
        parameters=("a$='abc'",),
        arguments=("a$=<s>", "a$='b' * 7", "a$=[1, 2]"),
    ),
    Construct(
        "dict of tensors",
        "for k, v in a$.items():\n    y = y * 0.5 + v * len(k)",
        parameters=("a$={}",),
        arguments=(
            "a$={'k': x(4)}",
            "a$={'kk': x(4), 'l': 2}",
            "a$={'l': 2, 'kk': x(4)}",
            "a$={'k': <n>}",
            "a$=collections.OrderedDict(k=x(4))",
        ),
    ),
    Construct(
        "list of tensors",
        "for v in a$:\n    y = y * 0.5 + v",
        parameters=("a$=()",),
        arguments=("a$=[x(4)]", "a$=(x(4), 2)", "a$=[x(4), x(4)]", "a$=[<n>]", "a$=[same()]"),
    ),
    Construct(
        "list that is changed",
        "a$.append(2)\ny = y * len(a$)",
        parameters=("a$=[]",),
        arguments=("a$=[1]", "a$=[x(4)]"),
        weight=0.3,
    ),
    Construct(
        "dict that is changed",
        "a$['k'] = y\ny = y * len(a$)",
        parameters=("a$={}",),
        arguments=("a$={'l': 1}", "a$={}"),
        weight=0.3,
    ),
    Construct(
        "attribute of an argument",
        "y = y * getattr(x, 'pad$', 1.5)",
        parameters=("b$=None",),
        arguments=("b$=tag(pad$=<n>)", "b$=tag(other$=<n>)"),
    ),
    Construct(
        "attribute of another argument",
        "y = y * getattr(a$, 'pad', 1.5)",
        parameters=("a$=None",),
        arguments=("a$=tagged(x(4), pad=<n>)", "a$=x(4)", "a$=tagged(x(4), other=1)"),
    ),
    Construct(
        "object as an argument",
        "y = y * a$.scale if a$ is not None else y - 1",
        top="class Config$:\n    scale = 1.5\n    def __init__(self, **k):\n        vars(self).update(k)\n",
        parameters=("a$=None",),
        arguments=("a$=mod.Config$()", "a$=mod.Config$(scale=<n>)", "a$=types.SimpleNamespace(scale=<n>)"),
        changes=("mod.Config$.scale = <n>",),
        weight=0.5,
    ),
    Construct(
        "dataclass as an argument",
        "y = y * a$.t if a$ is not None else y - 1",
        top="@dataclasses.dataclass\nclass Batch$:\n    t: object = 2\n    more: int = 1\n",
        parameters=("a$=None",),
        arguments=("a$=mod.Batch$(x(4))", "a$=mod.Batch$()", "a$=mod.Batch$(x(4), more=<i>)"),
        weight=0.5,
    ),
    Construct(
        "function as an argument",
        "y = a$(y)",
        parameters=("a$=torch.tanh",),
        arguments=("a$=torch.sin", "a$=lambda y: y * <n>", "a$=torch.tanh"),
        weight=0.4,
    ),
    Construct(
        "keyword arguments",
        "y = y * sum(k$.values()) + len(k$) if (k$ := {'p': p$, **q$}) else y",
        parameters=("p$=1", "q$={}"),
        arguments=("p$=<n>", "q$={'z': <n>}", "q$={'z': 1, 'w': <n>}"),
    ),
    Construct(
        "argument that requires a gradient",
        "y = y * a$",
        parameters=("a$=2",),
        arguments=("a$=x(4, grad=True)", "a$=x(4)", "a$=x(3, 4, grad=True)", "a$=x(4, grad=True) * 2"),
    ),
    Construct(
        "integers as an argument",
        "y = y + a$.sum() if a$.dtype.is_floating_point else y * a$",
        parameters=("a$=torch.tensor(2)",),
        arguments=("a$=torch.arange(4)", "a$=torch.tensor(<p>)", "a$=x(4)", "a$=torch.tensor([True, False, True, True])"),
    ),
    Construct(
        "array as an argument",
        "y = y * torch.as_tensor(a$)",
        parameters=("a$=2.",),
        arguments=("a$=np.arange(4, dtype=np.float32)", "a$=np.float64(<i>)"),
        weight=0.4,
    ),
)
