"""Trains known architectures in small, with random weights, in eager and through Rekindle: a row a model.

Each is called at three sizes with dropout off and then on: outputs, every gradient, buffers and random numbers
are compared, then the parameters after 5 steps of training over the three sizes. It ends up right in one graph
("graph"), right in several with eager between them ("parts"), right in eager ("eager"), or "wrong"; "absent": its
package is not installed. exports: graphs made with dropout off, and on; one serves all sizes. The exit status is
1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import collections
import copy
import dataclasses
import functools
import importlib.util
import json
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rekindle
import torch
from comparison import Step, difference, leaves_of, nudge, on_device, seed_all, step, where
from device_of_tests import load_test_device
from model_zoo import MODELS, Model
from torch import nn

_DROPOUT = 0.1
_STEPS = 5
_AMPLIFIED = 4.0  # times what one rounding error in the parameters becomes
_RATE = 1e-2
_DRIFT = 1e-2  # of what training moves a parameter by: rounding is amplified from step to step
_PLACES = ("graph", "parts", "eager", "wrong", "absent")


@dataclasses.dataclass
class Run:
    """A model at its sizes with one probability of dropout. place: one of _PLACES. exports: after the first size,
    and after all.

    reason: what is wrong, or why all or some of it ran in eager. fixed: why sizes are not left open.
    """

    dropout: float
    place: str
    exports: tuple[int, int] = (0, 0)
    reason: str = ""
    fixed: str = ""
    seconds: float = 0.0


@dataclasses.dataclass
class Row:
    """One model. sizes: of its three calls, as model_zoo.py names them."""

    name: str
    package: str
    sizes: list[tuple[int, ...]]
    runs: list[Run]

    @property
    def place(self) -> str:
        """The worst of its runs."""
        return max((run.place for run in self.runs), key=_PLACES.index)

    @property
    def is_open(self) -> bool:
        """Whether one export served all sizes, in every run."""
        return all(run.place == "graph" and run.exports[0] == run.exports[1] <= 1 for run in self.runs)

    def text(self) -> str:
        """A row of a table in Markdown."""
        exports = " / ".join(str(run.exports[1]) for run in self.runs)
        sizes = ", ".join("×".join(map(str, sizes)) for sizes in self.sizes)
        notes = dict.fromkeys(note for run in self.runs for note in (run.reason, run.fixed) if note)
        return f"| {self.name} | {self.place} | {exports} | {sizes} | {'; '.join(notes).replace('|', '/')} |"


def try_model(model: Model, options: rekindle.Options, device: str = "cpu") -> Row:
    """All of one model."""
    if importlib.util.find_spec(model.package.partition(".")[0]) is None:
        return Row(
            model.name,
            model.package,
            model.sizes,
            [Run(0.0, "absent", reason=f"{model.package} is not installed")],
        )
    runs = []
    for dropout in (0.0, _DROPOUT):
        start = time.perf_counter()
        run = _run(model, dropout, options, device)
        runs.append(dataclasses.replace(run, seconds=time.perf_counter() - start))
    return Row(model.name, model.package, model.sizes, runs)


def _run(model: Model, dropout: float, options: rekindle.Options, device: str) -> Run:
    run = Run(dropout, "graph")
    exports = []
    try:
        torch.manual_seed(0)
        eager = model.make(dropout).train().to(device)
        module = copy.deepcopy(eager)
        wrapped = rekindle.Module(module, options)
        calls = [on_device(model.inputs(*sizes), device) for sizes in model.sizes]
        for seed, inputs in enumerate(calls):
            before = copy.deepcopy(eager)
            expected = step(eager, eager, (), inputs, seed)
            again = functools.partial(_again, before, inputs, seed)
            run.reason = difference(step(wrapped, module, (), inputs, seed), expected, again)
            exports.append(rekindle.status(wrapped).exports)
            if run.reason:
                return dataclasses.replace(run, place="wrong", reason=f"at {model.sizes[seed]}, {run.reason}")
        run.reason = _training(eager, wrapped, module, calls)
    except Exception as error:  # that eager does not raise is no excuse for the suite to end here
        line = (str(error).splitlines() or [""])[0]
        run.reason = f"{type(error).__name__}: {line}; {where(error)}"
    if run.reason:
        return dataclasses.replace(run, place="wrong")
    status = rekindle.status(wrapped)
    place, reason = _place(status)
    return Run(dropout, place, (exports[0], status.exports), reason, _fixed(wrapped))


def _again(before: nn.Module, inputs: dict[str, Any], seed: int) -> Step:
    """Eager's step once more."""
    eager = copy.deepcopy(before)
    return step(eager, eager, (), inputs, seed)


def _training(eager: nn.Module, wrapped: nn.Module, module: nn.Module, calls: list[dict[str, Any]]) -> str:
    """Train both; what differs then, empty when nothing does.

    Some models amplify rounding from step to step, so that a copy in eager which starts one rounding error away is trained, too:
    what differs may be a few times as far away as that.
    """
    before = {name: parameter.detach().clone() for name, parameter in eager.named_parameters()}
    nudged = nudge(copy.deepcopy(eager))
    runs = [_trained(called, calls) for called in (eager, wrapped, nudged)]
    explained = 0.0
    for i, (theirs, mine, other) in enumerate(zip(*runs, strict=True)):
        explained = max(explained, _AMPLIFIED * abs(other - theirs))
        if not abs(mine - theirs) <= max(1e-3 * max(1.0, abs(theirs)), explained):
            return f"after {i} steps of training the loss is {mine}, in eager {theirs}, and {other} one rounding error away"
    moved = {name: (parameter - before[name]).norm() for name, parameter in eager.named_parameters()}
    floor = 1e-2 * max(moved.values())
    theirs, others = (dict(model.named_parameters()) for model in (eager, nudged))
    for name, parameter in module.named_parameters():
        apart, allowed = (parameter - theirs[name]).norm(), _AMPLIFIED * (others[name] - theirs[name]).norm()
        if not apart <= max(_DRIFT * max(moved[name], floor), allowed):
            return f"after training, {name} is {apart:.2e} from eager's, which moved by {moved[name]:.2e}"
    return ""


def _trained(called: nn.Module, calls: list[dict[str, Any]]) -> list[float]:
    """The losses of some steps."""
    seed_all(1)
    optimizer = torch.optim.SGD(called.parameters(), lr=_RATE, momentum=0.9)
    losses = []
    for i in range(_STEPS):
        optimizer.zero_grad()
        loss = _loss(called(**calls[i % len(calls)]))
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


def _loss(result: Any) -> torch.Tensor:
    """What is trained for: the first scalar of a result, or else the mean square of its first tensor."""
    found = [x for x in leaves_of(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    return next((x for x in found if x.dim() == 0), None) if any(x.dim() == 0 for x in found) else found[0].square().mean()


def _place(status: rekindle.Status) -> tuple[str, str]:
    reasons = "; ".join(f"{code}: {text}" for code, text in status.bypass)
    if status.eager_calls == 0 and status.source != "eager":
        return "graph", reasons
    graphs = sum(part.source != "eager" for part in status.parts)
    return ("parts", f"{graphs} parts; {reasons}") if graphs else ("eager", reasons)


def _fixed(wrapped: rekindle.Module) -> str:
    """Why the graphs have fixed sizes where they have."""
    graphs = wrapped._runtime._kinds.graphs()
    fixed = [f"{places}: {why}" for variant in graphs for places, why in variant.contract.shapes.fixed]
    return "; ".join(dict.fromkeys(fixed))


def _rows(pattern: str, options: rekindle.Options, device: str) -> Iterator[Row]:
    for model in MODELS:
        if any(part in model.name for part in pattern.split(",")):
            row = try_model(model, options, device)
            print(f"{row.place:6} {row.name} {sum(run.seconds for run in row.runs):.0f} s", file=sys.stderr)
            yield row


def main(arguments: list[str] | None = None) -> int:
    """Print a table, then the counts; 1 when anything is wrong."""
    parser = argparse.ArgumentParser(
        prog="conformance models", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="models whose name contains TEXT, or one of several: gpt2,bert",
    )
    parser.add_argument("--device", default="cpu", help='as torch names it, or "test": that of tests/device')
    parser.add_argument("--json", action="store_true", help="one JSON object: counts, and every row")
    given = parser.parse_args(arguments)
    if given.device == "test":
        load_test_device()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    if not given.json:
        print("| model | ran in | exports | sizes | notes |\n|---|---|---|---|---|", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for row in _rows(given.only, rekindle.Options(cache_dir=Path(directory), log="off"), given.device):
            rows.append(row)
            if not given.json:
                print(row.text(), flush=True)
    counts = collections.Counter(row.place for row in rows)
    once = sum(row.is_open for row in rows)
    if given.json:
        everything = [{**dataclasses.asdict(row), "place": row.place, "open": row.is_open} for row in rows]
        print(json.dumps({"counts": {**counts, "one export": once}, "rows": everything}, indent=1))
    else:
        print(", ".join(f"{place} {counts[place]}" for place in _PLACES) + f"; one export for all sizes: {once} of {len(rows)}")
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
