"""Tells how long a refusal stands: guards that pass as long as trying again is of no use.

An example: a module has a backward hook, so that its calls are refused. The guard watches the tables of all its modules, the
hooks among them; once the hook is removed it fails, and the next call is tried.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from rekindle import _native
from rekindle.graphs.call_key import tables_of
from rekindle.modules.hooks import FORWARD_HOOKS, STATE_DICT_HOOKS, global_hooks
from rekindle.modules.module_tables import named_buffers, named_modules, named_parameters
from rekindle.reasons import Bypass, Disturbed, Reason, SizedByData, SmallByData

# Tables that no refusal is about: hooks around no forward, and what is said of hooks that other tables have. A guard of many
# modules is asked at each call.
_SAY_NOTHING = frozenset((*STATE_DICT_HOOKS, *(name for names in FORWARD_HOOKS.values() for name in names)))


class TryAgain:
    """Fails as a guard each time: the refusal holds for one call only."""

    def check(self) -> bool:
        """Returns False, in the place of _native.Guard.check."""
        return False


def passes_by_itself(bypass: Bypass, first: bool) -> bool:
    """Tells whether the next call may fare better though nothing was changed."""
    if isinstance(bypass, (SizedByData, SmallByData, Disturbed)):  # of the first, the next export knows
        return True
    # A forward may complete its configuration, fill a cache or warn once; the second time it has nothing to do.
    return first and not is_of_tables(bypass)


def is_of_tables(bypass: Bypass) -> bool:
    """Tells whether a refusal stands while the tables of the modules are the same. If not, the forward changes some itself."""
    return bypass.reason not in (Reason.STATE_MUTATED, Reason.CHANGED_DURING_EXPORT, Reason.SIDE_EFFECT)


def guard_of(bypass: Bypass, module: nn.Module) -> Any:
    """Returns a guard that passes as long as trying again is of no use."""
    modules = list(named_modules(module).values())
    state = [*named_parameters(module).values(), *named_buffers(module).values()]
    if not is_of_tables(bypass):
        hooks = [module.__dict__[name] for module in modules for name in FORWARD_HOOKS if name in module.__dict__]
        return _native.Guard(hooks, state, [(module.__dict__, "training") for module in modules])
    tables = [table for module in modules for table in tables_of(module, but=_SAY_NOTHING)]
    return _native.Guard([*tables, *global_hooks()], state)
