"""Breaks what the test device is there to protect, one place at a time, and asks that a test fails and says why.

scripts/mutants            all, a line each
scripts/mutants stream     those whose name has this word
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
from dataclasses import dataclass

_ROOT = pathlib.Path(__file__).parents[2]
_TEST = _ROOT / "build" / "tests" / "device_test"


@dataclass(frozen=True)
class Mutant:
    """A change of one file, and a text that a failing test prints for it."""

    name: str
    file: str
    old: str
    new: str
    says: str


MUTANTS = (
    Mutant(
        "a frame is used on a second stream without waiting for the first",
        "session/run/executor.cc",
        "  frame.enter_stream();\n",
        "",
        "race: ",
    ),
    Mutant(
        "a link of the backward's chain does not say where it runs",
        "session/autograd/backward_chain.cc",
        "next->add_input_metadata(link);",
        "next->add_input_metadata(torch::autograd::Node::undefined_input());",
        "kernels_on[2]",
    ),
    Mutant(
        "constants are left on the host",
        "session/plan/lower.cc",
        "slot.constant = slot.constant.to(request_.device);",
        "(void)slot;",
        "is on the host, the others on test:0",
    ),
    Mutant(
        "a lowering reads its constants where they lie",
        "session/lower/op.cc",
        "  if (!constants_[i].is_cpu()) constants_[i] = constants_[i].cpu();\n",
        "",
        "SIGSEGV",
    ),
    Mutant(
        "the arena is on the host",
        "session/run/frame.cc",
        "device::allocate(plan_->arena_bytes, plan_->device)",
        "device::allocate(plan_->arena_bytes, at::kCPU)",
        "on the host",
    ),
    Mutant(
        "two slots of the arena overlap",
        "session/plan/memory_planner.cc",
        "end = std::max(end, placed->offset + placed->bytes);",
        "end = std::max(end, placed->offset + placed->bytes / 2);",
        "FAILED",
    ),
    Mutant(
        "a frame counts as used before its memory is there",
        "session/run/frame.cc",
        "  if (frame == nullptr) frame = std::make_unique<Frame>(plan_);",
        "  ++in_use_, high_water_ = std::max(high_water_, in_use_);\n"
        "  if (frame == nullptr) frame = std::make_unique<Frame>(plan_), --in_use_;",
        "stats().frames == 1",
    ),
    Mutant(
        "attention calls the CPU's own kernel",
        "session/ops/attention.cc",
        "    if (!args.in(0).is_cpu()) return attend(args, attention);\n",
        "",
        "is the CPU's own",
    ),
    Mutant(
        "memory that a second stream used goes back without a word to the allocator",
        "device/stream_order.cc",
        "    guard.recordDataPtrOnStream(memory.storage().data_ptr(), now);\n",
        "",
        "race: ",
    ),
)


def _build() -> str:
    """Returns what the compiler says where it fails."""
    command = ["cmake", "--build", str(_ROOT / "build"), "--target", "device_test"]
    command[0] = str(_ROOT / ".venv" / "bin" / "cmake")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout[-2000:]


def _outcome(mutant: Mutant) -> str:
    """Returns "caught", or why it was not; leaves the file as it was."""
    path = _ROOT / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        return f"is out of date: {mutant.file} has its place {text.count(mutant.old)} times"
    try:
        path.write_text(text.replace(mutant.old, mutant.new))
        if failure := _build():
            return f"does not compile:\n{failure}"
        run = subprocess.run([_TEST, "~[host]"], capture_output=True, text=True, check=False)
    finally:
        path.write_text(text)
    if run.returncode == 0:
        return "survives"
    return "caught" if mutant.says in run.stdout + run.stderr else "is caught, but no test names the cause"


def main() -> int:
    """Tries each mutant; returns 1 when one was not caught."""
    chosen = [mutant for mutant in MUTANTS if all(word in mutant.name for word in sys.argv[1:])]
    outcomes = []
    for mutant in chosen:
        outcomes.append(_outcome(mutant))
        print(f"{outcomes[-1]:8} {mutant.name}", flush=True)
    _build()
    print(f"{outcomes.count('caught')} of {len(chosen)} caught")
    return 0 if outcomes.count("caught") == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
