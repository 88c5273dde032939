"""Changes of operators that a program adds: custom ones, symbolic functions, autograd Functions."""

from case import Case

_CUSTOM = """
from torch.library import custom_op
@custom_op("subject::scaled", mutates_args=())
def scaled(t: torch.Tensor) -> torch.Tensor:
    return t * 2
@scaled.register_fake
def fake(t):
    return torch.empty_like(t)
def backward(ctx, g):
    return g * 2
scaled.register_autograd(backward)
"""
_COMPOSITE = """
LIB = torch.library.Library("subject", "DEF")
LIB.define("scaled(Tensor t) -> Tensor")
def impl(t):
    return t * 2
LIB.impl("scaled", impl, "CompositeImplicitAutograd")
"""
_FUNCTION = """
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        return t * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
"""

CASES = (
    Case(
        "custom op",
        "implementation",
        top=_CUSTOM,
        body="return scaled(self.linear(x))",
        edit=("return t * 2", "return t * 3"),
        explained="scaled",
    ),
    Case(
        "custom op",
        "fake",
        top=_CUSTOM,
        body="return scaled(self.linear(x))",
        edit=("empty_like", "zeros_like"),
        matters=False,
        explained="scaled",
    ),
    Case(
        "custom op",
        "autograd",
        top=_CUSTOM,
        body="return scaled(self.linear(x))",
        edit=("return g * 2", "return g * 3"),
        modes=("train",),
        explained="scaled",
    ),
    Case(
        "custom op",
        "composite",
        top=_COMPOSITE,
        body="return torch.ops.subject.scaled(self.linear(x))",
        edit=("t * 2", "t * 3"),
        explained="impl",
    ),
    Case(
        "custom op",
        "override of one of torch",
        body="return torch.relu(self.linear(x))",
        explained="relu",
        start="LIB = torch.library.Library('aten', 'IMPL')\nLIB.impl('relu', lambda t: t * 2, 'AutogradCPU')",
    ),
    Case(
        "custom op",
        "override of one of torch on the CPU",
        body="return torch.tanh(self.linear(x))",
        explained="tanh",
        start="LIB = torch.library.Library('aten', 'IMPL')\nLIB.impl('tanh', lambda t: t * 2, 'CPU')",
        modes=("eval",),
    ),
    Case(
        "custom op",
        "override of one of torch edited",
        body="return torch.tanh(self.linear(x))",
        modes=("eval",),
        explained="tanh",
        both="LIB = torch.library.Library('aten', 'IMPL')\nLIB.impl('tanh', lambda t: t * K[0], 'CPU')\nK = [2]",
        start="K[0] = 3",
        populates=False,
    ),
    Case(
        "symbolic",
        "registered",
        body="return torch.relu(self.linear(x))",
        matters=False,
        explained="relu",
        start="import torch.onnx\ntorch.onnx.register_custom_op_symbolic('aten::relu', lambda g, t: g.op('Relu', t), 20)",
    ),
    Case(
        "symbolic",
        "edited",
        body="return torch.relu(self.linear(x))",
        matters=False,
        explained="relu",
        both="import torch.onnx\ntorch.onnx.register_custom_op_symbolic('aten::relu', lambda g, t: g.op('Relu', t), 20)",
        start="torch.onnx.register_custom_op_symbolic('aten::relu', lambda g, t: g.op('Relu', g.op('Relu', t)), 20)",
    ),
    Case(
        "autograd.Function",
        "backward",
        top=_FUNCTION,
        body="return Scaled.apply(self.linear(x))",
        edit=("g * 2", "g * 3"),
        modes=("train",),
        explained="Scaled",
    ),
    Case(
        "autograd.Function",
        "forward",
        top=_FUNCTION,
        body="return Scaled.apply(self.linear(x))",
        edit=("t * 2", "t * 3"),
        explained="Scaled",
    ),
    Case(
        "autograd.Function",
        "constant of the backward",
        top="K = 2\n" + _FUNCTION.replace("g * 2", "g * K"),
        body="return Scaled.apply(self.linear(x))",
        edit=("K = 2", "K = 3"),
        modes=("train",),
        explained="K",
    ),
    Case(
        "autograd.Function",
        "helper of the backward",
        top="def h(g):\n    return g * 2\n" + _FUNCTION.replace("g * 2", "h(g)", 1),
        body="return Scaled.apply(self.linear(x))",
        edit=("return g * 2", "return g * 3"),
        modes=("train",),
        explained="h",
    ),
)
