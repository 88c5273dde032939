"""Records what a wrapped module has done so far: `rekindle.status(model)`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from rekindle.modules.partial_capture import Part

_SUMS = (
    "lookup_seconds", "export_seconds", "build_seconds", "verify_seconds", "plan_seconds", "saved_seconds", "verify_failures",
    "hits", "exports", "plans", "packed_calls", "replayed_calls", "fused_kernels",
)  # fmt: skip


@dataclass
class Status:
    """Counts what one rekindle.Module has done since it was made. Times are in seconds.

    source: where the graph of the last call came from: "memory", "local", "remote", "background", "export" or "eager"; "none"
        before the first call. After the first call of a graph it keeps saying where the graph came from.
    lookup_seconds: spent on looking entries up
    export_seconds: spent on exports
    build_seconds: spent on finding the sizes that stay open and on making graphs
    verify_seconds: spent on comparing graphs with eager
    plan_seconds: spent on making plans
    saved_seconds: what the exports of the entries that were hit had taken, less the lookups
    verify_failures: hits that a fresh export disproved, in the mode "verify"
    hits, exports, plans: how many there were
    eager_calls: calls that ran in eager
    arena_bytes: of the largest arena
    kept_bytes: of the process, what is freed and kept for its next step; rekindle.release_memory() gives it back
    packed_calls: calls that left rows of tokens out (padding_elimination)
    density, loss_density: of the last call that could: the share of the rows that it needs, and of those that the loss reads;
        None before it
    replayed_calls: calls whose launches the GPU repeated by itself (cuda_graphs)
    fused_kernels: kernels of several operators that a GPU uses, in the plans used last
    cache_dir: the directory of the cache, None before it is opened
    parts: where a module that cannot run from one graph has its submodules from: itself first, then each that was called. Empty
        for others. The counts and times of the parts are in those of the module.
    bypass: (reason code, message) of every kind of call that ran in eager, in order of first appearance
    fallback: the same list; a bypass is what causes a fallback
    """

    source: str = "none"
    lookup_seconds: float = 0.0
    export_seconds: float = 0.0
    build_seconds: float = 0.0
    verify_seconds: float = 0.0
    plan_seconds: float = 0.0
    saved_seconds: float = 0.0
    verify_failures: int = 0
    hits: int = 0
    exports: int = 0
    eager_calls: int = 0
    plans: int = 0
    arena_bytes: int = 0
    kept_bytes: int = 0
    packed_calls: int = 0
    density: float | None = None
    loss_density: float | None = None
    replayed_calls: int = 0
    fused_kernels: int = 0
    cache_dir: str | None = None
    parts: list[Part] = field(default_factory=list)
    bypass: list[tuple[str, str]] = field(default_factory=list)

    def with_sessions(self, stats: list[dict[str, Any]]) -> Status:
        """Returns a copy without parts, to which the figures of sessions are added, as of _native.Session.stats()."""
        plans, seconds = sum(stat["plans"] for stat in stats), sum(stat["plan_seconds"] for stat in stats)
        arena = max((stat["arena_bytes"] for stat in stats), default=0)
        asked = [stat for stat in stats if stat.get("padding_calls")]
        return replace(
            self,
            bypass=list(self.bypass),
            parts=[],
            plans=plans,
            plan_seconds=seconds,
            arena_bytes=arena,
            packed_calls=sum(stat["packed_calls"] for stat in asked),
            density=asked[-1]["density"] if asked else None,
            loss_density=asked[-1]["loss_density"] if asked else None,
            replayed_calls=sum(stat["replayed_runs"] for stat in stats),
            fused_kernels=sum(stat["fused_kernels"] for stat in stats),
        )

    def add_parts(self, own: Part, parts: dict[str, tuple[Status, Part]]) -> None:
        """Counts what the parts of a module have done, and lists those that ran, `own`, the module itself, first."""
        self.parts.append(own)
        for name, (status, as_part) in parts.items():
            self.add(status)
            for part in status.parts or [as_part]:
                if part.source != "none":
                    self.parts.append(replace(part, name=".".join(filter(None, (name, part.name)))))

    def add(self, other: Status) -> None:
        """Counts what a part has done."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.arena_bytes = max(self.arena_bytes, other.arena_bytes)
        if other.density is not None:
            self.density, self.loss_density = other.density, other.loss_density

    @property
    def fallback(self) -> list[tuple[str, str]]:
        """Returns (code, message) of what ran in eager: `bypass` by ORTModule's word."""
        return self.bypass
