"""Asks the CUDA compiler what each kernel takes, and compares that with tests/golden/cuda_resources.txt.

cuda_resources.py --nvcc NVCC -- FLAGS...     compares; the flags are those of the build
cuda_resources.py --update --nvcc NVCC ...    writes the file anew

A line is a kernel for an architecture: `sm_90 forward_rows<float>: 40 registers, 256 bytes shared, 0 bytes spilled`. Spills are
an error with any compiler, as are more registers than a full block of our kernels has; the other numbers are compared where the
compiler is of the file's release.
"""

from __future__ import annotations

import argparse
import difflib
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator

_ROOT = pathlib.Path(__file__).parents[2]
_GOLDEN = _ROOT / "tests" / "golden" / "cuda_resources.txt"
_ARCHITECTURES = ("80", "90", "100")
_MOST_REGISTERS = 65536 // 512  # of a thread; with more a full block (kernels/cuda/launch.cuh) is not launched at all
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers.*?(?:(\d+) bytes smem|$)")


def report(nvcc: str, source: pathlib.Path, flags: list[str]) -> str:
    """Returns what the compiler says of a file's kernels, with names that people read."""
    codes = [f"--generate-code=arch=compute_{one},code=sm_{one}" for one in _ARCHITECTURES]
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, *flags, *codes, "--fatbin", "-Xptxas=-v", "-o", f"{folder}/out.fatbin", str(source)]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT)
    if ran.returncode:
        sys.exit(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")
    return subprocess.run(["c++filt"], input=ran.stdout + ran.stderr, capture_output=True, text=True, check=True).stdout


def kernels(text: str) -> Iterator[tuple[str, int, int, int]]:
    """Yields (architecture and name, registers, bytes of shared memory, bytes spilled) of each kernel in a report."""
    name, spilled = "", 0
    for line in text.splitlines():
        if found := re.search(r"Compiling entry function '(.+)' for '(\w+)'", line):
            kernel = re.sub(r"^.*::(?=\w+[<(])", "", found[1].split("(rekindle", 1)[0].replace("void ", ""))
            name = f"{found[2]} {kernel}"
        elif found := _SPILLS.search(line):
            spilled = int(found[1]) + int(found[2])
        elif found := _USED.search(line):
            yield name, int(found[1]), int(found[2] or 0), spilled


def release(nvcc: str) -> str:
    """Returns the compiler's release, as `13.0`."""
    told = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release (\S+),", told)
    return found[1] if found else "unknown"


def main() -> None:
    """Compares, or writes the golden file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("flags", nargs="*")
    options = parser.parse_args()
    lines, wrong = [f"nvcc {release(options.nvcc)}"], []
    for source in sorted((_ROOT / "kernels" / "cuda").glob("*.cu")):
        for name, registers, shared, spilled in sorted(kernels(report(options.nvcc, source, options.flags))):
            lines.append(f"{name}: {registers} registers, {shared} bytes shared, {spilled} bytes spilled")
            wrong += [lines[-1]] if spilled or registers > _MOST_REGISTERS else []
    if len(lines) == 1:
        sys.exit("the compiler has told of no kernel")
    text = "\n".join(lines) + "\n"
    if options.update:
        _GOLDEN.write_text(text)
    print(text, end="")
    if wrong:
        sys.exit("these kernels spill registers, or take too many:\n" + "\n".join(wrong))
    golden = _GOLDEN.read_text()
    if golden.splitlines()[0] == lines[0] and golden != text:
        sys.exit("\n".join(difflib.unified_diff(golden.splitlines(), text.splitlines(), "golden", "now", lineterm="")))


if __name__ == "__main__":
    main()
