"""What a wrapped module has done so far: `rekindle.status(model)`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Status:
    """Of one rekindle.Module, since it was made. Times are in seconds.

    source: where the graph of the last call came from: "memory", "local", "remote", "export" or "eager"; "none" before
        the first call. After the first call of a variant it keeps saying where the variant came from.
    bypass: (reason code, message) of every kind of call that ran in eager, in order of first appearance.
    verify_failures: hits that a fresh export disproved, in the mode "verify".
    fallback: the same list; a bypass is what causes a fallback.
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
    cache_dir: str | None = None
    bypass: list[tuple[str, str]] = field(default_factory=list)

    @property
    def fallback(self) -> list[tuple[str, str]]:
        return self.bypass
