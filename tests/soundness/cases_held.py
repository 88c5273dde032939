"""Changes of what held modules lead to, which a forward reads without a name that leads there."""

import dataclasses

from case import Case

_PACKAGE = {"conf/__init__.py": "from . import train\n", "conf/train.py": "import conf\nRATE = 2.0\n"}
_READS_RATE = {"top": "import conf", "files": _PACKAGE, "edit": ("RATE = 2.0", "RATE = 3.0"), "explained": "RATE"}
_OWN_RATE = "return self.linear(x) * self.conf.train.RATE"
_OF_A_CLASS = """
import sys, types
class _Module(types.ModuleType):
    step = 1.0
    @property
    def half(self):
        return 0.5
RATES = [2.0]
def scaled(x):
    return x * 4.0
sys.modules[__name__].__class__ = _Module
"""
_BY_HAND = "import types\nSETTINGS = types.ModuleType('settings')\nSETTINGS.RATES = [2.0]\ndef first(m):\n    return m.RATES[0]"
_MODULES = (
    Case("module in a module", "attribute", init="self.conf = conf", body=_OWN_RATE, **_READS_RATE),
    Case("module in a module", "local", body="c = conf\nreturn self.linear(x) * c.train.RATE", **_READS_RATE),
    Case("module in a module", "class attribute", members="conf = conf", body=_OWN_RATE, **_READS_RATE),
    Case("module in a module", "argument", body="return self.linear(x) * (lambda m: m.train.RATE)(conf)", **_READS_RATE),
    Case(
        "module in a module",
        "default argument",
        body="def rate(m=conf):\n    return m.train.RATE\nreturn self.linear(x) * rate()",
        **_READS_RATE,
    ),
    Case("module in a module", "vars", body="return self.linear(x) * vars(conf)['train'].RATE", **_READS_RATE),
    Case(
        "module in a module",
        "names held",
        init="self.names = vars(conf)",
        body="return self.linear(x) * self.names['train'].RATE",
        **_READS_RATE,
    ),
    Case(
        "module in a module",
        "member of a class there",
        top="import conf",
        files={**_PACKAGE, "conf/train.py": "class Rates:\n    first = 2.0\n"},
        init="self.conf = conf",
        body="return self.linear(x) * self.conf.train.Rates.first",
        edit=("first = 2.0", "first = 3.0"),
        explained="Rates",
    ),
    Case(
        "module in a module",
        "third level",
        top="import top",
        files={**_PACKAGE, "top.py": "import conf\n"},
        init="self.top = top",
        body="return self.linear(x) * self.top.conf.train.RATE",
        edit=("RATE = 2.0", "RATE = 3.0"),
        explained="RATE",
    ),
    Case(
        "module in a module",
        "package without a file",
        top="import conf.train",
        files={"conf/train.py": "RATE = 2.0\n"},
        init="self.conf = conf",
        body=_OWN_RATE,
        edit=("RATE = 2.0", "RATE = 3.0"),
        explained="RATE",
    ),
    Case(
        "module of a class",
        "item of a list",
        top="import conf",
        files={"conf.py": _OF_A_CLASS},
        init="self.conf = conf",
        body="return self.linear(x) * self.conf.RATES[0]",
        edit=("RATES = [2.0]", "RATES = [3.0]"),
        explained="RATES",
    ),
    Case(
        "module of a class",
        "function",
        top="import conf",
        files={"conf.py": _OF_A_CLASS},
        body="c = conf\nreturn c.scaled(self.linear(x))",
        edit=("x * 4.0", "x + 4.0"),
        explained="scaled",
    ),
    Case(
        "module of a class",
        "member of the class",
        top="import conf",
        files={"conf.py": _OF_A_CLASS},
        members="conf = conf",
        body="return self.linear(x) * self.conf.step",
        edit=("step = 1.0", "step = 3.0"),
        explained="_Module",
    ),
    Case(
        "module made by hand",
        "attribute",
        top=_BY_HAND,
        init="self.settings = SETTINGS",
        body="return self.linear(x) * self.settings.RATES[0]",
        edit=("[2.0]", "[3.0]"),
        explained="RATES",
    ),
    Case(
        "module made by hand",
        "argument",
        top=_BY_HAND,
        body="return self.linear(x) * first(SETTINGS)",
        mutate="subject.SETTINGS.RATES[0] = 3.0",
        explained="SETTINGS",
    ),
)

# The same programs without the change.
_UNCHANGED = tuple(
    dataclasses.replace(case, name=f"{case.hazard}, {case.name}", hazard="held", edit=None, mutate="", harmless=True)
    for case in _MODULES
)
CASES = (*_MODULES, *_UNCHANGED)
