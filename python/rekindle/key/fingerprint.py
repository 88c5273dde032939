"""Describes a call before it runs, to find the cached graphs that may fit it.

`describe` gives the fields of the key without running user code. What else decides whether a graph fits is only seen while an
export runs: `recording.recorder.Recorder` notes the code that ran and what it read; `recording.observations.verify` tells later
whether all of it still holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from rekindle.key.ambient import add_ambient
from rekindle.key.module_tree import add_module_tree, module_paths
from rekindle.key.patches import add_patches
from rekindle.key.registries import add_registries
from rekindle.key.shared_memory import FIELD, add_memory
from rekindle.key.signature import add_signature
from rekindle.key.values.cells import Cells
from rekindle.key.values.classes import one_pass
from rekindle.key.values.places import Places
from rekindle.key.values.registered import register_digest
from rekindle.key.values.tensors import DeviceNames, besides_inference
from rekindle.key.values.walker import Walker
from rekindle.key.versions import add_versions
from rekindle.modules.module_tables import named_buffers, named_parameters
from rekindle.process.digest import Leaf, digest_leaves
from rekindle.process.torch_internals import disabled_torch_function
from rekindle.reasons import Bypass, Reason

__all__ = ["Fields", "Fingerprint", "describe", "register_digest"]

Fields = list[Leaf]
_IDENTITY = "identity"  # the name of the field for objects that are in several places


@dataclass(frozen=True)
class LeftOut:
    """Says what has no part in a key.

    excluded: by the user's wish, as of Options.exclude_attributes; they have to be among the fields of options, too
    unread: paths of attributes of modules that the forward does not read; the key says that they are there
    changing: paths of plain tensors whose numbers change; the key says what they are like, and a graph takes them as inputs
    """

    excluded: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    changing: frozenset[str] = frozenset()


NOTHING = LeftOut()


@dataclass
class Fingerprint:
    """Holds all that is known of a call before it runs."""

    fields: Fields  # leaves of the key, in order and uniquely named
    cells: list[tuple[Any, Cells]] = field(repr=False)  # what was read and may change: (value, its cells); see Walker
    weak: set[int] = field(repr=False)  # identities of those values that nothing which watches may keep alive
    tensors: list[tuple[str, torch.Tensor]] = field(repr=False)  # (path, tensor) of those that an export bakes in
    # Plain values that a graph takes as it does buffers, by a name that no buffer has: a dot, then the path.
    bound: dict[str, torch.Tensor] = field(repr=False)
    inputs: list[torch.Tensor] = field(repr=False)  # tensors of the call, in the order of the fields
    attributes: list[str] = field(repr=False)  # paths of the attributes of modules that are in the fields, but for unread ones
    unread: list[tuple[Any, str]] = field(
        repr=False
    )  # (owner, name) of attributes of which the fields say only that they are there
    functions: list[Any] = field(repr=False)  # functions that the fields cover by code
    classes: list[type] = field(repr=False)  # classes that the fields cover by code
    places: Places = field(repr=False)  # of all objects met
    modules: dict[int, tuple[str, object]] = field(repr=False)  # of the tree, as of module_paths
    registered: list[tuple[Any, str]] = field(default_factory=list, repr=False)  # (value, digest) of types with a digest function

    def digest(self) -> str:
        """Returns the digest of the fields; equal fingerprints have equal digests."""
        return digest_leaves(self.fields)

    def as_copied(self) -> Fingerprint:
        """Returns the fingerprint without what private copies have otherwise.

        They have memory of their own, so that which tensors share memory is left out, and which objects are in several places; no
        tensor of theirs is one of inference mode.
        """
        kept = [field for field in self.fields if not field[0].startswith((FIELD, _IDENTITY))]
        return replace(self, fields=[(name, besides_inference(value)) for name, value in kept])

    def difference(self, other: Fingerprint) -> str | None:
        """Returns the first field that differs in `other`, as `name: old -> new`, or None; this fingerprint is the old one."""
        return first_difference(self.fields, other.fields)

    def replaced_tensor(self, other: Fingerprint) -> str | None:
        """Returns the path of the first tensor that `other`, of equal fields, has another one for; None without one.

        Fields have its numbers, or, where a graph takes it as an input, not even these.
        """
        before, now = (dict(each.tensors) | each.bound for each in (self, other))
        for path, tensor in before.items():
            if (replacing := now.get(path)) is not tensor:
                return f"{path.removeprefix('.')}: {'absent' if replacing is None else 'another tensor is put there'}"
        return None


def first_difference(before: Fields, now: Fields) -> str | None:
    """Returns the first field that differs, as `name: old -> new`, or None."""
    if before == now and digest_leaves(before) == digest_leaves(now):
        return None
    old, new = dict(before), dict(now)
    for name in [*old, *new]:
        if name not in old or name not in new or digest_leaves([(name, old[name])]) != digest_leaves([(name, new[name])]):
            return f"{name}: {old.get(name, 'absent')} -> {new.get(name, 'absent')}"
    return "the order of the fields changed"


def describe(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options_fields: Mapping[str, Any],
    left_out: LeftOut = NOTHING,
    open_sizes: bool = False,
) -> Fingerprint:
    """Returns the fingerprint of the call `module(*args, **kwargs)`.

    Runs no user code but registered digest functions. Raises Bypass where it cannot tell. Leaves out the module's own hooks: they
    run around the call.

    options_fields: options that are part of the key, by name
    open_sizes: leave out the sizes of arguments that may be symbols of a shape guard
    """
    walker = Walker()
    walker.excluded, walker.unread, walker.changing = left_out.excluded, left_out.unread, left_out.changing
    walker.devices = DeviceNames(_device_of(module, args, kwargs))
    modules = module_paths(module)
    with one_pass(modules):
        for name, value in options_fields.items():
            walker.walk(f"option.{name}", value)
        add_ambient(walker)
        if walker.devices.architecture is not None:
            walker.emit("device.architecture", walker.devices.architecture)
        walker.bound = bound = []
        state = add_module_tree(walker, module)
        inputs = add_signature(walker, args, dict(kwargs), open_sizes)
        walker.bound = None
        add_memory(walker, state + bound, inputs)
        add_patches(walker)
        add_registries(walker)
        classes = list(walker.classes.values())
        places = Places()
        places.add(walker)
        if (text := places.text()) is not None:
            walker.emit(_IDENTITY, text)
        add_versions(walker, (base for cls in classes for base in cls.__mro__))
    return Fingerprint(
        walker.leaves, walker.cells, walker.weak, walker.tensors, _named(bound), inputs, walker.attributes_met, walker.unread_of,
        walker.functions, classes, places, modules, walker.registered,
    )  # fmt: skip


def _named(bound: list[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Returns tensors by name: a dot, then the path. Raises Bypass for two with one path, as values of a dict with odd keys."""
    named: dict[str, torch.Tensor] = {}
    for path, tensor in bound:
        if named.setdefault(f".{path}", tensor) is not tensor:
            raise Bypass(Reason.OPAQUE_VALUE, f"{path} leads to several plain tensors; register them as buffers")
    return named


def _device_of(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.device | None:
    """Returns the device of a call's tensors; where they are not on one, no graph serves the call."""
    state = (*named_parameters(module).values(), *named_buffers(module).values())
    first = next(iter(state), None)
    if first is None:
        first = next((leaf for leaf in tree_leaves((args, dict(kwargs))) if isinstance(leaf, torch.Tensor)), None)
    with disabled_torch_function():
        return None if first is None else first.device
