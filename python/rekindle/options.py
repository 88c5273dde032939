"""Defines the options of a wrapped module. Every field has an environment variable; an explicit argument wins over it.

Examples: with REKINDLE_CACHE=off, `Options().cache` is "off" and `Options(cache="on").cache` is "on";
`Options(cache="verify:1/50")` has the cache_mode "verify" and the verified_share 0.02; `Options(dynamics="static")` raises an
OptionError that suggests "dynamic".
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import os
import warnings
from dataclasses import dataclass
from typing import Any

from rekindle.errors import OptionError
from rekindle.memory_plan import MemoryPlan
from rekindle.option_values import TIMES_OF_LEVELS, checked

_TIME_FOR_MEMORY = 0.02  # the share of a step's time that goes into computing large values again, if nothing else is said
# Read by Rekindle, its build, its scripts or its tests, but not an option of a module.
_OTHER_VARIABLES = {
    f"REKINDLE_{name}"
    for name in (
        "ACCEPT",
        "ALLOW_NETWORK_DB",
        "ALLOW_SHARED_DIR",
        "BUNDLE",
        "CUDA",
        "DEV",
        "FUZZ",
        "FUZZ_SECONDS",
        "FUZZ_SEED",
        "PYTHON",
        "SANITIZE",
        "TESTS",
        "TORCH",
        "UNITY",
    )
}


def variable_of(name: str) -> str:
    """Names the environment variable of an option: `cache_dir` -> `REKINDLE_CACHE_DIR`."""
    return "REKINDLE_" + name.upper()


@dataclass(frozen=True, init=False)
class Options:
    """Says how a module is wrapped. Raises OptionError for a name or a value that does not exist.

    cache_dir: directory of the cache (default: see `rekindle cache --help`)
    cache: "on"; "off": neither read nor written; "readonly"; "refresh": exported again and overwritten; "strict": a call that
        cannot run from a graph raises; "verify": a hit is exported again and used only if both agree; "verify:1/50": one in fifty
    fallback: what a call does that cannot run from a graph: "eager", or "error" (FallbackError)
    numerics: "fast" may round otherwise than eager; "eager" leaves to PyTorch's operators, and adds as they do, what would, so
        that most models train to the same bits
    dynamic: "auto": one export serves all sizes of a call's tensors that the model does not branch on; "static": each set of
        input shapes has an export of its own
    start: "wait": the first call of a kind waits for its graph; "background": calls run in eager until a helper process has made
        it, where one can be had; see docs/howto/start-in-the-background.md
    memory_budget: what the activations of a training step may take: bytes, text such as "2GiB", or a share, such as 0.5 or "50%",
        of what they take if nothing is computed again; see docs/memory.md. None: the backward computes again what takes a
        fiftieth of a step's time at most.
    memory_level: what the backward may take longer so that less is held: 0 computes nothing again, 1 what takes a tenth of a
        step's time, 2 what takes a third, as a second forward does. Instead of a memory_budget.
    memory_plan: the path of a file that lists what the backward computes again, and nothing else is; see docs/memory.md. Instead
        of both.
    padding_elimination: whether training steps leave out the tokens on which the loss does not depend: those that attention
        masks hide and, in layers that no attention follows, those whose label the loss ignores. Results with a row for each
        token, such as logits, are zero in the rows left out; see docs/howto/leave-padding-out.md.
    cuda_graphs: whether a GPU repeats the launches of a step by itself, as CUDA graphs, where its tensors stay where they are;
        for steps that take the host longer than the GPU. See docs/howto/replay-launches.md.
    fused_kernels: whether a GPU computes pointwise operators that follow from each other as one kernel, which is compiled while
        the first steps run; see docs/howto/fuse-kernels.md.
    cache_size: bytes of entries that the cache keeps, or text such as "500MiB"; above it the least valuable are evicted (default:
        5 GiB; 0: never)
    remote: further tiers behind the directory, such as "http://cache.example:8080/rekindle ro", separated by ";"; see
        docs/howto/share-between-machines.md
    wait_seconds: how long a process waits at most for another one that makes the same export; 0: not at all
    key_salt: text that becomes part of every key; two salts never share an entry
    inline_functions: whether autograd Functions that say nothing else become part of the graph with the operations of their
        forward, which autograd then differentiates; their backwards are ignored
    exclude_attributes: names of attributes that are left out of the key, as "package.Class.attribute" or
        "model.layers[0].attribute". A graph that depends on one of them is wrong after it changes: see
        docs/howto/steer-the-key.md.
    print_memory: the calls of the module, counted from 1, before which the account of rekindle.memory is printed to stderr:
        numbers, or text such as "1,100"
    log: least severe level that is logged
    """

    cache_dir: str | None = None
    cache: str = "on"
    fallback: str = "eager"
    numerics: str = "fast"
    dynamic: str = "auto"
    start: str = "wait"
    memory_budget: int | float | str | None = None
    memory_level: int | None = None
    memory_plan: MemoryPlan | None = None
    padding_elimination: bool = False
    cuda_graphs: bool = False
    fused_kernels: bool = False
    cache_size: int | str | None = None
    remote: str | None = None
    wait_seconds: float = 600.0
    key_salt: str = ""
    inline_functions: bool = False
    exclude_attributes: tuple[str, ...] = ()
    print_memory: tuple[int, ...] = ()
    log: str = "info"

    def __init__(self, **given: Any) -> None:
        fields = {field.name: field.default for field in dataclasses.fields(self)}
        for name in given:
            if name not in fields:
                close = difflib.get_close_matches(name, fields, 1)
                hint = f"did you mean '{close[0]}'? " if close else ""
                raise OptionError(f"unknown option '{name}'; {hint}known options: {', '.join(fields)}")
        warn_of_unknown_variables()
        for name, default in fields.items():
            value, origin = given.get(name), f"option '{name}'"
            if name not in given:
                value, origin = os.environ.get(variable_of(name)) or default, variable_of(name)
            object.__setattr__(self, name, checked(name, value, origin))
        self._choose_what_steers_memory(given)

    def _choose_what_steers_memory(self, given: dict[str, Any]) -> None:
        """Leaves one of what is set: what the program says wins over the environment."""
        names = [name for name in ("memory_level", "memory_budget", "memory_plan") if getattr(self, name) is not None]
        said = [name for name in names if given.get(name) is not None]
        if len(said or names) > 1:
            what = " and ".join(f"{name} is {getattr(self, name)}" for name in said or names)
            raise OptionError(f"{what}; set one of them")
        for name in set(names) - set(said or names):
            object.__setattr__(self, name, None)

    def key_fields(self) -> dict[str, Any]:
        """Returns the options that change what an export means."""
        return {
            "numerics": self.numerics,
            "salt": self.key_salt,
            "inline": self.inline_functions,
            "excluded": list(self.exclude_attributes),
        }

    def of_part(self) -> Options:
        """Returns the options of a part of a module, whose results are read by what runs around it: no row may be missing."""
        part = copy.copy(self)
        object.__setattr__(part, "padding_elimination", False)
        return part

    @property
    def session(self) -> dict[str, Any]:
        """Returns what a _native.Session that serves calls is made with."""
        made: dict[str, Any] = {
            "padding_elimination": self.padding_elimination,
            "record_launches": self.cuda_graphs,
            "fuse": self.fused_kernels,
        }
        if self.memory_plan is not None:
            return made | {"memory_plan": (self.memory_plan.file, self.memory_plan.recompute)}
        if self.memory_level is not None:
            return made | {"budget_time": TIMES_OF_LEVELS[self.memory_level], "budget_anything": True}
        if self.memory_budget is None:
            return made | {"budget_time": _TIME_FOR_MEMORY}
        name = "budget_share" if isinstance(self.memory_budget, float) else "budget_bytes"
        return made | {name: self.memory_budget}

    @property
    def cache_mode(self) -> str:
        """Returns `cache` without the share of a "verify:1/N"."""
        return self.cache.partition(":")[0]

    @property
    def forbids_eager(self) -> bool:
        """Tells whether a call that cannot run from a graph is an error."""
        return self.fallback == "error" or self.cache_mode == "strict"

    @property
    def verified_share(self) -> float:
        """Returns the share of the hits that are exported again and compared, from 0 to 1."""
        if self.cache_mode != "verify":
            return 0.0
        return 1.0 / int(self.cache.partition("/")[2] or "1")


def warn_of_unknown_variables() -> None:
    """Warns once per misspelt REKINDLE_ variable: a setting that silently does nothing is worse than none."""
    known = {variable_of(field.name) for field in dataclasses.fields(Options)} | _OTHER_VARIABLES
    for name in os.environ:
        if name.startswith("REKINDLE_") and name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}? " if close else ""
            warnings.warn(f"rekindle: unknown environment variable {name}; {hint}known: {', '.join(sorted(known))}", stacklevel=3)
