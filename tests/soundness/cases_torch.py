"""Changes of torch and of other libraries: patches, registries, settings of the process, upgrades in place."""

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
_DIST = {"dist/__init__.py": "__version__ = '1.0'\ndef act(x):\n    return x * 2\nSCALE = 2.0\n"}
_ACT = "return F.gelu(self.linear(x))"

CASES = (
    Case(
        "monkeypatch",
        "torch.nn.functional, read by the forward",
        body=_ACT,
        start="F.gelu = lambda x: torch.tanh(x) * 2",
        explained="gelu",
    ),
    Case(
        "monkeypatch",
        "torch.nn.functional, read by torch",
        init="self.act = nn.GELU()",
        body="return self.act(self.linear(x))",
        start="F.gelu = lambda x, **k: torch.tanh(x) * 2",
        explained="gelu",
    ),
    Case(
        "monkeypatch",
        "by another function of torch",
        init="self.act = nn.ReLU()",
        body="return self.act(self.linear(x))",
        start="F.relu = lambda x, inplace=False: x\nF.relu = F.silu",
        explained="relu",
    ),
    Case(
        "monkeypatch",
        "by a function in C",
        init="self.act = nn.GELU()",
        body="return self.act(self.linear(x))",
        start="import functools\nF.gelu = functools.partial(lambda x, approximate: torch.tanh(x))",
        explained="gelu",
    ),
    Case(
        "monkeypatch",
        "by an object",
        init="self.act = nn.GELU()",
        body="return self.act(self.linear(x))",
        start="class G:\n    def __call__(self, x, **k):\n        return x * 2\nF.gelu = G()",
        explained="gelu",
    ),
    Case(
        "monkeypatch",
        "function in C by another one",
        init="self.act = nn.Tanh()",
        body="return self.act(self.linear(x))",
        start="torch.tanh = torch.sigmoid",
        explained="tanh",
    ),
    Case(
        "monkeypatch",
        "wraps keeps the name",
        body=_ACT,
        explained="gelu",
        start="import functools\nG = F.gelu\n@functools.wraps(G)\ndef gelu(x):\n    return G(x) * 2\nF.gelu = gelu",
    ),
    Case(
        "monkeypatch",
        "closure of a wrapper that keeps the name",
        body=_ACT,
        explained="gelu",
        both="import patches",
        files={
            "patches.py": "import functools\nimport torch.nn.functional as F\nG = F.gelu\ndef make(s):\n    @functools.wraps(G)\n"
            "    def gelu(x):\n        return G(x) * s\n    return gelu\nF.gelu = make(2)\n"
        },
        edit=("make(2)", "make(3)"),
    ),
    Case(
        "monkeypatch",
        "code of a torch function",
        init="self.act = nn.ReLU()",
        body="return self.act(self.linear(x))",
        start="F.relu.__code__ = (lambda input, inplace=False: input * 2).__code__",
        explained="relu",
    ),
    Case(
        "monkeypatch",
        "defaults of a torch function",
        body="return F.dropout(self.linear(x))",
        start="F.dropout.__defaults__ = (0.25, True, False)",
        modes=("train",),
        explained="dropout",
    ),
    Case(
        "monkeypatch",
        "global of a torch module",
        init="self.act = nn.GELU()",
        body="return self.act(self.linear(x))",
        explained="F",
        start="import types\nN = types.SimpleNamespace(**vars(F))\nN.gelu = lambda x, **k: x * 2\nnn.modules.activation.F = N",
    ),
    Case(
        "monkeypatch",
        "Tensor method",
        body="return self.linear(x).relu()",
        start="torch.Tensor.relu = lambda s: s * 2",
        explained="relu",
    ),
    Case(
        "monkeypatch",
        "Tensor method by one in C",
        body="return self.linear(x).relu()",
        start="torch.Tensor.relu = torch.Tensor.tanh",
        explained="relu",
    ),
    Case(
        "monkeypatch",
        "Tensor operator",
        body="return self.linear(x) * 2",
        start="M = torch.Tensor.__mul__\ntorch.Tensor.__mul__ = lambda s, o: M(s, o) + 1",
        explained="__mul__",
    ),
    Case(
        "monkeypatch",
        "Tensor property",
        body="return self.linear(x).mT.mT",
        start="torch.Tensor.mT = property(lambda s: s * 2)",
        explained="mT",
    ),
    Case(
        "monkeypatch",
        "constant of math",
        body="return self.linear(x) * math.pi",
        start="import math; math.pi = 3",
        explained="pi",
    ),
    Case(
        "monkeypatch",
        "function of math",
        body="return self.linear(x) * math.cosh(1)",
        start="import math; math.cosh = math.sinh",
        explained="cosh",
    ),
    Case(
        "monkeypatch",
        "function of numpy",
        top="import numpy as np",
        body="return self.linear(x) * float(np.sqrt(4.0))",
        start="import numpy as np; np.sqrt = np.exp",
        explained="sqrt",
    ),
    Case(
        "monkeypatch",
        "numpy function by one of Python",
        top="import numpy as np",
        body="return self.linear(x) * float(np.mean([4.0]))",
        start="import numpy as np; np.mean = lambda v: 3.0",
        explained="mean",
    ),
    Case(
        "monkeypatch",
        "builtin",
        body="return self.linear(x) * len(oct(8))",
        start="import builtins; builtins.oct = hex",
        explained="oct",
    ),
    Case(
        "monkeypatch",
        "third-party helper",
        files=_DIST,
        top="import dist",
        body="return dist.act(self.linear(x))",
        mutate="subject.dist.act = lambda x: x * 3",
        explained="act",
    ),
    Case(
        "monkeypatch",
        "standard library function",
        top="import statistics",
        body="return self.linear(x) * statistics.mean([2, 2])",
        start="import statistics; statistics.mean = lambda v: 3",
        explained="mean",
    ),
    Case(
        "monkeypatch",
        "inside a standard library function",
        top="import statistics",
        body="return self.linear(x) * statistics.mean([2, 2])",
        start="import statistics; statistics.mean.__code__ = (lambda data: 3).__code__",
        explained="mean",
    ),
    Case(
        "library",
        "upgraded in place",
        files=_DIST,
        top="import dist",
        body="return dist.act(self.linear(x))",
        added={"dist/__init__.py": "__version__ = '2.0'\ndef act(x):\n    return x * 3\nSCALE = 2.0\n"},
        explained="act",
    ),
    Case(
        "library",
        "edited without a new version",
        files=_DIST,
        top="import dist",
        body="return dist.act(self.linear(x))",
        edit=("x * 2", "x * 3"),
        explained="act",
    ),
    Case(
        "library",
        "constant of another version",
        files=_DIST,
        top="from dist import SCALE",
        body="return self.linear(x) * SCALE",
        edit=("SCALE = 2.0", "SCALE = 3.0"),
        explained="SCALE",
    ),
    Case(
        "library",
        "version of numpy",
        top="import numpy as np",
        body="return self.linear(x) * float(np.sqrt(4.0))",
        start="import numpy; numpy.__version__ = '99.0'",
        matters=False,
        explained="numpy",
    ),
    Case(
        "library",
        "version that the forward reads",
        files=_DIST,
        top="import dist",
        body="return self.linear(x) * (3 if dist.__version__ >= '2' else 2)",
        edit=("'1.0'", "'2.0'"),
        explained="__version__",
    ),
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
    Case(
        "autocast",
        "on",
        call="torch.autocast('cpu', torch.bfloat16)(model)(x) if ON else model(x)",
        both="ON = False",
        start="ON = True",
        explained="autocast",
    ),
    Case(
        "autocast",
        "dtype of a region that takes the ambient one",
        body="with torch.autocast('cpu'):\n    y = x @ self.linear.weight\nreturn y.float()",
        start="torch.set_autocast_dtype('cpu', torch.float16)",
        explained="autocast",
    ),
    Case(
        "autocast",
        "enabled in the forward",
        body="with torch.autocast('cpu', torch.bfloat16, enabled=ON):\n    y = x @ self.linear.weight\nreturn y.float()",
        top="ON = False",
        edit=("ON = False", "ON = True"),
        explained="ON",
    ),
    Case(
        "setting",
        "default dtype",
        body="return self.linear(x) + torch.ones(4) / 3",
        both="D = torch.float32",
        mutate="torch.set_default_dtype(torch.float64)",
        modes=("train",),
        explained="default_dtype",
    ),
    Case(
        "setting",
        "default device",
        body="return self.linear(x) * (2 if torch.empty(1).device.type == 'cpu' else 3)",
        mutate="torch.set_default_device('meta')",
        modes=("train",),
        explained="default_device",
    ),
    Case(
        "setting",
        "matmul precision",
        body="return self.linear(x) * len(torch.get_float32_matmul_precision())",
        start="torch.set_float32_matmul_precision('medium')",
        matters=False,
        explained="matmul_precision",
    ),
    Case(
        "setting",
        "deterministic mode",
        body="return self.linear(x) * (3 if torch.are_deterministic_algorithms_enabled() else 2)",
        start="torch.use_deterministic_algorithms(True)",
        explained="deterministic",
    ),
    Case(
        "setting",
        "flash attention",
        body="return self.linear(x) * (3 if torch.backends.cuda.flash_sdp_enabled() else 2)",
        start="torch.backends.cuda.enable_flash_sdp(False)",
        explained="flash",
    ),
    Case(
        "setting",
        "math attention",
        body="return self.linear(x) * (3 if torch.backends.cuda.math_sdp_enabled() else 2)",
        start="torch.backends.cuda.enable_math_sdp(False)",
        explained="math",
    ),
    Case(
        "setting",
        "oneDNN",
        body="return self.linear(x) * (3 if torch.backends.mkldnn.enabled else 2)",
        start="torch._C._set_mkldnn_enabled(False)",
        explained="mkldnn",
    ),
    Case(
        "setting",
        "anomaly mode",
        body="return self.linear(x) * (3 if torch.is_anomaly_enabled() else 2)",
        start="torch.autograd.set_detect_anomaly(True)",
        explained="anomaly",
    ),
    Case(
        "setting",
        "fast path of attention",
        body="return self.linear(x) * (3 if torch.backends.mha.get_fastpath_enabled() else 2)",
        start="torch.backends.mha.set_fastpath_enabled(False)",
        explained="fastpath",
    ),
    Case(
        "setting",
        "threads, when asked for",
        body="return self.linear(x) * torch.get_num_threads()",
        mutate="torch.set_num_threads(2)",
        populates=False,
        explained="get_num_threads",
    ),
    Case(
        "setting",
        "seed, when asked for",
        body="return self.linear(x) * (torch.initial_seed() % 7)",
        call="[torch.manual_seed(S), model(x)][1]",
        both="S = 2",
        start="S = 3",
        populates=False,
        explained="initial_seed",
    ),
    Case(
        "mode",
        "torch function mode",
        explained="mode",
        mutate="class M(torch.overrides.TorchFunctionMode):\n"
        "    def __torch_function__(self, f, types, args=(), kwargs=None):\n        return f(*args, **(kwargs or {})) * 2 "
        "if f is F.linear else f(*args, **(kwargs or {}))\nM().__enter__()",
    ),
    Case(
        "mode",
        "inference mode",
        call="torch.inference_mode(ON)(model)(x)",
        both="ON = False",
        start="ON = True",
        modes=("eval",),
        matters=False,
        explained="inference",
    ),
)
