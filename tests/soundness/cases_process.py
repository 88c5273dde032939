"""Questions about the process and its files that calls into C answer: a forward that asks one leaves no graph behind, or one
that is for that answer."""

from case import Case

_QUESTIONS = {
    "file by its type": ("import io", "io.FileIO('data.txt').read(1)[0]", "open('data.txt', 'w').write('3')"),
    "file by numpy": (
        "import numpy as np",
        "float(np.fromfile('data.txt', dtype=np.uint8)[0])",
        "open('data.txt', 'w').write('3')",
    ),
    "line of a file": ("import linecache", "float(linecache.getline('data.txt', 1))", "open('data.txt', 'w').write('3')"),
    "recursion limit": ("", "sys.getrecursionlimit() % 7", "sys.setrecursionlimit(sys.getrecursionlimit() + 1)"),
    "garbage collector": ("import gc", "(2 + gc.isenabled())", "import gc; gc.disable()"),
    "errors of numpy": ("import numpy as np", "len(np.geterr()['over'])", "import numpy as np; np.seterr(over='ignore')"),
    "handler of a signal": (
        "import signal",
        "(2 + (signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN))",
        "import signal; signal.signal(signal.SIGUSR2, signal.SIG_IGN)",
    ),
    "group of all ranks": (
        "",
        "(2 + (torch.distributed.group.WORLD is not None))",
        "import torch.distributed as D, tempfile\nD.init_process_group('gloo', rank=0, world_size=1, "
        "init_method='file://' + tempfile.mktemp())",
    ),
}

_WATCHED = {"errors of numpy"}

CASES = tuple(
    Case(
        "process",
        name,
        files={"data.txt": "2"},
        top=top,
        body=f"return self.linear(x) * {question}",
        start=change,
        populates=name in _WATCHED,
        fresh=True,
        modes=("train",),
    )
    for name, (top, question, change) in _QUESTIONS.items()
)
