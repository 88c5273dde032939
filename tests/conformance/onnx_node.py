"""The node tests of the installed onnx wheel, run by rekindle.onnx_backend.

Each is right (from a plan, or interpreted), refused with a reason, or wrong.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import sys
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import torch
from device_of_tests import load_test_device
from onnx.backend.test.case.node import collect_testcases
from rekindle import _native, onnx_backend

# These draw random numbers; expected is one draw of NumPy's generator. Types and shapes are compared.
_RANDOM = re.compile(r"test_(bernoulli|training_dropout(?!_zero_ratio))")


@dataclass
class Result:
    """What became of one test: "planned" and "interpreted" are right, "refused" and "wrong" say why."""

    name: str
    outcome: str
    reason: str = ""

    @property
    def right(self) -> bool:
        """Whether the outputs are as expected."""
        return self.outcome in ("planned", "interpreted")


def _wider(case: Any, actual: Any) -> tuple[float, float] | None:
    """A second tolerance (relative, absolute); results that need it are noted."""
    if getattr(actual, "dtype", None) == np.float16:
        # 0.001 is for some numbers less than the two last places that ONNX's runner allows bfloat16.
        return 2**-9, case.atol
    if case.name.startswith("test_dft_inverse"):
        # What is expected is the rounding of NumPy's transform in float32, 2e-7, where the exact result is 0.
        return case.rtol, 1e-6
    return None


def difference(actual: Any, expected: Any, rtol: float, atol: float, name: str) -> str:
    """What tells the two apart within the tolerance; empty when nothing does."""
    if isinstance(expected, onnx.TensorProto):
        expected = onnx.numpy_helper.to_array(expected)
    if expected is None or isinstance(expected, list):
        if not isinstance(expected, list) or not isinstance(actual, list) or len(actual) != len(expected):
            return "" if actual is None and expected is None else "sequences differ in length"
        return next(
            filter(None, (difference(a, e, rtol, atol, name) for a, e in zip(actual, expected, strict=True))),
            "",
        )
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"is {actual.dtype}{list(actual.shape)}, expected {expected.dtype}{list(expected.shape)}"
    if _RANDOM.match(name):
        return ""
    # As ONNX's own runner does: two units in the last place of bfloat16.
    rtol = max(rtol, 2**-6) if expected.dtype.name == "bfloat16" else rtol
    if expected.dtype.kind not in "biufc":  # ml_dtypes: exact in float32
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    close = np.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    if close.all():
        return ""
    at = tuple(np.argwhere(~close)[0])
    place = list(map(int, at))
    return f"{(~close).sum()} of {close.size} elements differ; at {place} {actual[at]} for {expected[at]}"


def run_case(case: Any, device: str = "cpu") -> Result:
    """Run all data sets of one test on a device, as torch names it."""
    torch.manual_seed(0)
    note = ""
    try:
        prepared = onnx_backend.RekindleRep(case.model, device)
        for inputs, expected in case.data_sets:
            outputs = prepared.run(list(inputs))
            for name, actual, wanted in zip(outputs._fields, outputs, expected, strict=True):
                found = difference(actual, wanted, case.rtol, case.atol, case.name)
                if found and (wider := _wider(case, actual)):
                    note, found = found, difference(actual, wanted, *wider, case.name)
                if found:
                    return Result(case.name, "wrong", f"{name}: {found}")
    except _native.Unsupported as error:
        return Result(case.name, "refused", " ".join(str(error).split()))
    except Exception as error:  # a failure that nobody foresaw is a wrong answer
        return Result(case.name, "wrong", f"{type(error).__name__}: {' '.join(str(error).split())[:400]}")
    return Result(case.name, "interpreted" if prepared.why_interpreted else "planned", note)


def _run_apart(case: Any, device: str) -> Result:
    """Run a case in a process of its own, which ends where the host touches memory of the test device."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writer, json.dumps(asdict(run_case(case, device))).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return Result(**json.loads(text)) if text else Result(case.name, "wrong", f"its process ended with status {status}")


def collect(pattern: str = "") -> list[Any]:
    """The tests of the installed wheel whose names match."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, about overflows that the tests are about
        return [case for case in collect_testcases(None) if re.search(pattern, case.name)]


def main(arguments: list[str] | None = None) -> int:
    """Print what is not right, then the counts; 1 when anything is wrong."""
    parser = argparse.ArgumentParser(prog="conformance onnx-node", description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="only tests whose name matches")
    parser.add_argument("--device", default="cpu", help='as torch names it, or "test": that of tests/device')
    parser.add_argument("--json", type=Path, help="write every outcome to this file")
    options = parser.parse_args(arguments)
    if options.device == "test":
        load_test_device()
    run = run_case if options.device == "cpu" else _run_apart
    results = [run(case, options.device) for case in collect(options.pattern)]
    for result in results:
        if not result.right:
            print(f"{result.outcome:8} {result.name}: {result.reason}")
        elif result.reason:
            print(f"noted: {result.name}: {result.reason}")
    counts = collections.Counter(result.outcome for result in results)
    right = counts["planned"] + counts["interpreted"]
    print(
        f"onnx {onnx.__version__}: {len(results)} node tests: {right} right ({counts['planned']} planned, "
        f"{counts['interpreted']} interpreted), {counts['refused']} refused, {counts['wrong']} wrong"
    )
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
