"""What a forward asks about: the process, tensors' metadata, sizes, identity, modes."""

from random_programs.construct import Construct

QUESTIONS = (
    Construct(
        "environment variable",
        "y = y * len(os.environ.get('RANDOM_$', 'abc'))",
        changes=(
            "world: os.environ['RANDOM_$'] = <s> * 2",
            "world: os.environ.pop('RANDOM_$', None)",
            "world: os.environ['RANDOM_$_OTHER'] = 'a'",
            "world: os.putenv('RANDOM_$', 'abcdef')",
        ),
    ),
    Construct(
        "in the environment",
        "y = y * (2 if 'RANDOM_$' in os.environ else 3)",
        changes=("world: os.environ['RANDOM_$'] = <s>", "world: os.environ.pop('RANDOM_$', None)"),
    ),
    Construct(
        "ContextVar",
        "y = y * VARIABLE$.get()",
        top="VARIABLE$ = contextvars.ContextVar('VARIABLE$', default=1.5)",
        changes=("mod.VARIABLE$.set(<n>)", "mod.VARIABLE$ = contextvars.ContextVar('v', default=<n>)", "mod.VARIABLE$.set(2)"),
    ),
    Construct(
        "ContextVar with a default of the call",
        "y = y * VARIABLE$.get(3)",
        top="VARIABLE$ = contextvars.ContextVar('VARIABLE$')",
        changes=("mod.VARIABLE$.set(<n>)", "TOKEN = mod.VARIABLE$.set(<n>)"),
        weight=0.6,
    ),
    Construct(
        "threading.local",
        "y = y * getattr(LOCAL$, 'k', 3)",
        top="LOCAL$ = threading.local()\nLOCAL$.k = 1.5",
        changes=("mod.LOCAL$.k = <n>", "del mod.LOCAL$.k", "mod.LOCAL$ = threading.local()"),
        weight=0.5,
    ),
    Construct(
        "event",
        "y = y * (2 if EVENT$.is_set() else 3)",
        top="EVENT$ = threading.Event()",
        changes=("mod.EVENT$.set()", "mod.EVENT$.clear()", "mod.EVENT$ = threading.Event()"),
        weight=0.5,
    ),
    Construct(
        "lock",
        "y = y * (2 if LOCK$.locked() else 3)",
        top="LOCK$ = threading.Lock()",
        changes=("mod.LOCK$.acquire(blocking=False)", "mod.LOCK$.release()"),
        weight=0.4,
    ),
    Construct(
        "logger level",
        "y = y * (2 if LOGGER$.isEnabledFor(logging.DEBUG) else 3)",
        top="LOGGER$ = logging.getLogger(__name__ + '.a$')",
        changes=(
            "mod.LOGGER$.setLevel(logging.DEBUG)",
            "mod.LOGGER$.setLevel(logging.ERROR)",
            "mod.LOGGER$.disabled = <b>",
            "world: logging.disable(logging.CRITICAL)",
            "world: logging.disable(logging.NOTSET)",
        ),
        weight=0.5,
    ),
    Construct(
        "recursion limit",
        "y = y * (2 if sys.getrecursionlimit() > 5000 else 3)",
        changes=("world: sys.setrecursionlimit(6000)", "world: sys.setrecursionlimit(1200)"),
        weight=0.4,
    ),
    Construct(
        "working directory",
        "y = y * len(os.path.basename(os.getcwd()))",
        changes=("world: os.chdir('/')", "world: os.chdir('/tmp')"),
        weight=0.4,
    ),
    Construct(
        "loaded modules",
        "y = y * (2 if 'random_module_$' in sys.modules else 3)",
        changes=("world: sys.modules['random_module_$'] = types", "world: sys.modules.pop('random_module_$', None)"),
        weight=0.4,
    ),
    Construct(
        "import in the forward",
        "import random_module_$ as m\ny = y * m.scale",
        top="sys.modules.setdefault('random_module_$', types.ModuleType('random_module_$')).__dict__.setdefault('scale', 1.5)",
        changes=(
            "world: sys.modules['random_module_$'].scale = <n>",
            "world: sys.modules['random_module_$'] = types.SimpleNamespace(scale=<n>)",
            "world: sys.modules['random_module_$'].other = 1",
        ),
        weight=0.5,
    ),
    Construct(
        "default dtype",
        "y = y * torch.ones(4, dtype=torch.get_default_dtype()).sum().item() + torch.tensor(1.5).element_size()",
        changes=("world: torch.set_default_dtype(torch.float64)", "world: torch.set_default_dtype(torch.float32)"),
        weight=0.4,
    ),
    Construct("grad mode", "y = y * (2 if torch.is_grad_enabled() else 3)", weight=0.6),
    Construct(
        "flags of torch",
        "y = y * (2 if torch.backends.cudnn.benchmark else 3) + (1 if torch.are_deterministic_algorithms_enabled() else 0)",
        changes=(
            "world: torch.backends.cudnn.benchmark = <b>",
            "world: torch.use_deterministic_algorithms(<b>)",
            "world: torch.backends.cudnn.deterministic = <b>",
        ),
        weight=0.5,
    ),
    Construct(
        "requires_grad",
        "y = y * (2 if self.lin.weight.requires_grad else 3) + (1 if x.requires_grad else 0)",
        changes=("net.lin.weight.requires_grad_(<b>)", "net.requires_grad_(<b>)", "net.lin.bias.requires_grad = <b>"),
    ),
    Construct(
        "absent gradient",
        "y = y * (2 if self.lin.weight.grad is None else 3)",
        changes=("net.zero_grad()", "net.lin.weight.grad = torch.ones(4, 4)", "net.lin.weight.grad = None"),
        weight=0.5,
    ),
    Construct(
        "leaf and base",
        "y = y * (2 if x.is_leaf else 3) + (1 if x._is_view() else 0) + (1 if x._base is None else 0)",
        weight=0.5,
    ),
    Construct(
        "version of a tensor",
        "y = y * (1 + self.lin.weight._version % 2)",
        changes=("with torch.no_grad(): net.lin.weight.add_(0)", "net.lin.weight.data.add_(0.1)"),
        weight=0.4,
    ),
    Construct(
        "attribute of a parameter",
        "y = y * getattr(self.lin.weight, 'scale', 1.5)",
        changes=(
            "net.lin.weight.scale = <n>",
            "del net.lin.weight.scale",
            "net.lin.weight = nn.Parameter(net.lin.weight.data)",
            "net.lin.bias.scale = <n>",
        ),
    ),
    Construct(
        "shape",
        "y = y * x.shape[0] + x.dim() + (1 if x.size(-1) == 4 else 0)",
        weight=0.6,
    ),
    Construct("layout of an argument", "y = y * (2 if x.is_contiguous() else 3) + x.stride(0)", weight=0.5),
    Construct("identity of arguments", "y = y * (2 if x is self.lin.weight else 3)", weight=0.4),
    Construct(
        "tied weights",
        "y = y * (2 if self.lin.weight is self.also$.weight else 3) + self.also$(x)",
        init="self.also$ = nn.Linear(4, 4)",
        changes=(
            "net.also$.weight = net.lin.weight",
            "net.also$.weight = nn.Parameter(torch.ones(4, 4))",
            "net.lin.weight = net.also$.weight",
            "net.also$ = net.lin",
            "net.also$.weight.data = net.lin.weight.data",
        ),
    ),
    Construct(
        "shared memory",
        "y = y * (2 if self.lin.weight.data_ptr() == self.also$.weight.data_ptr() else 3) + self.also$(x)",
        init="self.also$ = nn.Linear(4, 4)",
        changes=(
            "net.also$.weight.data = net.lin.weight.data",
            "net.also$.weight.data = net.also$.weight.data.clone()",
            "net.also$.weight = net.lin.weight",
        ),
        weight=0.5,
    ),
    Construct(
        "value of a buffer",
        "y = y * 2 if self.b$.item() > 0 else y - 1",
        init="self.register_buffer('b$', torch.ones(()))",
        changes=(
            "net.b$.fill_(<n>)",
            "net.b$.neg_()",
            "net.b$ = torch.zeros(())",
            "net.load_state_dict({**net.state_dict(), 'b$': torch.tensor(-2.)})",
        ),
        weight=0.5,
    ),
    Construct(
        "value of a plain tensor",
        "y = y * float(self.k$)",
        init="self.k$ = torch.tensor(1.5)",
        changes=("net.k$.fill_(<n>)", "net.k$ = torch.tensor(2.5)", "net.k$.data = torch.tensor(2.)", "net.k$ = 3"),
        weight=0.6,
    ),
    Construct(
        "numbers of NumPy's settings",
        "y = y * (2 if np.geterr()['divide'] == 'warn' else 3)",
        changes=("world: np.seterr(divide='ignore')", "world: np.seterr(divide='warn')"),
        weight=0.3,
    ),
    Construct(
        "autocast", "y = y * (2 if torch.is_autocast_enabled('cpu') else 3) + F.linear(x, self.lin.weight).float()", weight=0.4
    ),
    Construct(
        "file",
        "y = y * len(open(PATH$).read())",
        top="PATH$ = os.path.join(os.environ.get('RANDOM_FILES', '/tmp'), 'file$.txt')\nopen(PATH$, 'w').write('ab')",
        changes=(
            "world: open(os.path.join(os.environ['RANDOM_FILES'], 'file$.txt'), 'w').write(<s> * 3)",
            "world: os.remove(os.path.join(os.environ['RANDOM_FILES'], 'file$.txt'))",
        ),
        weight=0.3,
    ),
)
