"""Changes of what held modules, classes and loggers of libraries have set on them, and of what makes a state dict."""

import dataclasses

from case import Case

_NORMAL = "from torch.distributions import Normal"
_ASKS = "return self.linear(x) * (2.0 if {}.has_rsample else 3.0)"
_OTHERWISE = "torch.distributions.Normal.has_rsample = False"
_LOGGER = "import logging\nLOG = logging.getLogger('subject')\nLOG.scale = 2.0"
_USERS_LOGGER = "import logging\nclass Logger(logging.Logger):\n    scale = 2.0\nLOG = Logger('subject')"
_COUNTS = {
    "init": "self.linear.register_buffer('table', torch.ones(1))",
    "body": "return self.linear(x) * len(self.state_dict())",
}

_OF_LIBRARIES = (
    Case(
        "held of a library",
        "class",
        top=_NORMAL,
        init="self.kind = Normal",
        body=_ASKS.format("self.kind"),
        mutate=_OTHERWISE,
        explained="model.kind",
    ),
    Case(
        "held of a library",
        "class in a class attribute",
        top=_NORMAL,
        members="kind = Normal",
        body=_ASKS.format("self.kind"),
        mutate=_OTHERWISE,
        explained="kind",
    ),
    Case(
        "held of a library",
        "class by another name",
        top=_NORMAL,
        body="kind = Normal\n" + _ASKS.format("kind"),
        mutate=_OTHERWISE,
        explained="Normal",
    ),
    Case(
        "held of a library",
        "object in a class attribute",
        top=_NORMAL,
        members="kind = Normal(0.0, 1.0)",
        body=_ASKS.format("self.kind"),
        mutate=_OTHERWISE,
        explained="kind",
    ),
    Case(
        "held of a library",
        "module of Python",
        init="self.math = math",
        body="return self.linear(x) * self.math.sqrt(4.0)",
        top="def five(x):\n    return 5.0",
        mutate="subject.math.sqrt = subject.five",
        explained="math",
    ),
    Case(
        "held of a library",
        "installed module",
        top="import einops\ndef fivefold(x, text):\n    return x * 5.0",
        init="self.ops = einops",
        body="return self.ops.rearrange(self.linear(x), 'a b -> a b')",
        mutate="subject.einops.rearrange = subject.fivefold",
        explained="ops",
    ),
    Case(
        "held of a library",
        "logger",
        top=_LOGGER,
        init="self.log = LOG",
        body="return self.linear(x) * self.log.scale",
        mutate="subject.LOG.scale = 3.0",
        explained="log.scale",
    ),
    Case(
        "held of a library",
        "logger of a class",
        top=_USERS_LOGGER,
        init="self.log = LOG",
        body="return self.linear(x) * self.log.scale",
        mutate="subject.Logger.scale = 3.0",
        explained="log",
    ),
)

_STATE_DICTS = (
    Case(
        "state dict",
        "hook",
        populates=False,
        mutate="model.linear._register_state_dict_hook(lambda m, state, prefix, meta: state.update(more=m.table))",
        explained="state dict",
        **_COUNTS,
    ),
    Case(
        "state dict",
        "buffer that is no more in it",
        populates=False,
        mutate="model.linear.register_buffer('table', model.linear.table, persistent=False)",
        explained="state dict",
        **_COUNTS,
    ),
)

# The same programs without the change.
_UNCHANGED = tuple(
    dataclasses.replace(case, name=f"{case.hazard}, {case.name}", hazard="held", edit=None, mutate="", harmless=True)
    for case in _OF_LIBRARIES
)
CASES = (*_OF_LIBRARIES, *_STATE_DICTS, *_UNCHANGED)
