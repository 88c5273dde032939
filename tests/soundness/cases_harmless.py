"""Changes that no export depends on: the second process must hit."""

from functools import partial

from case import Case

_SAME = partial(Case, "harmless", harmless=True, matters=False)
_HELPER = {"helper.py": "def act(x):\n    return x * 2\n\ndef unused(x):\n    return x\nUNREAD = 1\n"}
_USES = {"files": _HELPER, "top": "import helper\n", "body": "return helper.act(self.linear(x))"}
_NAMES = "NAMES = {'a', 'bb', 'ccc', 'dddd'}\n"

CASES = (
    _SAME("new process"),
    _SAME("new weights", mutate="torch.manual_seed(9); model.linear.reset_parameters()"),
    _SAME("weights written in place", mutate="model.linear.weight.data.mul_(2)"),
    _SAME("weights replaced", mutate="model.linear.weight = nn.Parameter(torch.ones(4, 4))"),
    _SAME(
        "weights loaded", mutate="model.load_state_dict({'weight': None} and {k: v * 2 for k, v in model.state_dict().items()})"
    ),
    _SAME(
        "content of a buffer",
        init="self.register_buffer('b', torch.ones(4))",
        body="return self.linear(x) * self.b",
        mutate="model.b.fill_(3)",
    ),
    _SAME("content of the batch", call="model(x * 3)", start="S = 1"),
    _SAME("other random state", start="torch.manual_seed(5)"),
    _SAME("other working directory", start="os.chdir('/')"),
    _SAME("comment", **_USES, edit=("    return x * 2", "    # twice\n    return x * 2")),
    _SAME("comment at the end of a line", **_USES, edit=("x * 2", "x * 2  # twice")),
    _SAME("formatting", **_USES, edit=("return x * 2", "return (x  *  2)")),
    _SAME("parentheses over lines", **_USES, edit=("return x * 2", "return (\n        x\n        * 2\n    )")),
    _SAME("blank lines", **_USES, edit=("def unused", "\n\n\ndef unused")),
    _SAME(
        "docstring edited",
        top="def act(x):\n    '''Twice.'''\n    return x * 2",
        body="return act(self.linear(x))",
        edit=("Twice.", "Two times."),
    ),
    _SAME("docstring of a class", members="'''Twice.'''", edit=("Twice.", "Two times.")),
    _SAME("docstring of a module", top="'''Twice.'''", edit=("Twice.", "Two times.")),
    _SAME("type annotation", **_USES, edit=("def act(x):", "def act(x: object) -> object:")),
    _SAME(
        "annotation of a class attribute",
        members="GAIN: float = 2.0",
        body="return self.linear(x) * self.GAIN",
        edit=("GAIN: float", "GAIN: int"),
    ),
    _SAME("moved directory", **_USES, second_directory="elsewhere"),
    _SAME("touched file", **_USES, mutate="os.utime('helper.py', (1, 1))"),
    _SAME("file edited after the import", **_USES, mutate="open('helper.py', 'w').write('raise SystemExit')"),
    _SAME("unrelated file", added={"notes.txt": "x"}),
    _SAME("unrelated module edited", files={"other.py": "A = 1\n"}, top="import other", edit=("A = 1", "A = 2")),
    _SAME("unrelated module added", added={"other.py": "A = 1\n"}, mutate="import other"),
    _SAME("unread global of a helper", **_USES, edit=("UNREAD = 1", "UNREAD = 2")),
    _SAME("unused function of a helper", **_USES, edit=("    return x\n", "    return -x\n")),
    _SAME(
        "function moved within its file",
        files={"helper.py": "def act(x):\n    return x * 2\n"},
        top="import helper\n",
        body="return helper.act(self.linear(x))",
        edit=("def act", "def before():\n    pass\n\ndef act"),
    ),
    _SAME("unused import", **_USES, edit=("def unused", "import string\ndef unused")),
    _SAME("unused import in the subject", top="import statistics", edit=("import statistics", "import string")),
    _SAME("unrelated environment variable", env={"SUBJECT_OTHER": "1"}),
    _SAME("usual variables", env={"PWD": "/", "HOSTNAME": "other", "SLURM_JOB_ID": "7", "TERM": "dumb", "_": "x"}),
    _SAME("rank, when nobody asks", env={"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}),
    _SAME("level of the log", env={"REKINDLE_LOG": "debug"}),
    _SAME("optimizer", mutate="OPT = torch.optim.AdamW(model.parameters()) if 'SUBJECT_SLOW' in os.environ else None"),
    _SAME("number of threads", mutate="torch.set_num_threads(2)"),
    _SAME("hash seed", env={"PYTHONHASHSEED": "7"}, fresh=True),
    _SAME(
        "hash seed, with a set that is asked and counted",
        top=_NAMES,
        body="return self.linear(x) * (2 if 'a' in NAMES else 3) * len(NAMES)",
        env={"PYTHONHASHSEED": "7"},
        fresh=True,
    ),
    _SAME(
        "hash seed, with a set literal that is asked",
        body="return self.linear(x) * (2 if 'a' in {'a', 'b', 'c'} else 3)",
        env={"PYTHONHASHSEED": "7"},
        fresh=True,
    ),
    _SAME(
        "hash seed, with a set of numbers",
        init="self.sizes = {3, 1, 2}",
        body="return self.linear(x) * sum(s for s in self.sizes)",
        env={"PYTHONHASHSEED": "7"},
        fresh=True,
    ),
    _SAME(
        "order of sys.path",
        files={"helper.py": "def act(x):\n    return x * 2\n", "b/nothing.py": ""},
        top="import helper",
        body="return helper.act(self.linear(x))",
        start="sys.path.insert(0, os.path.join(os.getcwd(), 'b'))",
    ),
    _SAME("hook on a parameter", mutate="model.linear.weight.register_hook(lambda g: g * 2)"),
    _SAME("gradient accumulated", mutate="model.linear.weight.grad = torch.ones(4, 4)"),
    _SAME("state dict hook", mutate="model._register_state_dict_hook(lambda *a: None)"),
    _SAME(
        "attribute of the wrapped class that is noise",
        top="import logging",
        init="self.log = logging.getLogger('a')",
        mutate="model.log.setLevel(10)",
    ),
    _SAME("warnings filter", start="import warnings; warnings.simplefilter('ignore')"),
    _SAME("garbage collector", start="import gc; gc.disable()"),
    _SAME("a model was made before", mutate="OTHER = subject.Net(); OTHER(torch.zeros(1, 4))"),
    _SAME("ran in eager before", mutate="model(torch.zeros(3, 4))"),
    _SAME(
        "cached helper, not called yet",
        top="import functools\n@functools.lru_cache\ndef scale(n):\n    return n * 2",
        body="return self.linear(x) * scale(1)",
    ),
    _SAME(
        "cached helper, filled alike",
        top="import functools\n@functools.lru_cache\ndef scale(n):\n    return n * 2\nscale(1)",
        body="return self.linear(x) * scale(1)",
    ),
    _SAME(
        "module passed on",
        files={"settings.py": "SCALE = 2.0\n"},
        top="import settings",
        body="return self.linear(x) * getattr(settings, 'SCALE'.upper())",
    ),
    _SAME(
        "configuration of transformers, its version",
        top="from transformers import GPT2Config",
        init="self.config = GPT2Config()",
        body="return self.linear(x) * self.config.n_head",
        mutate="model.config._commit_hash = 'b'",
    ),
)
