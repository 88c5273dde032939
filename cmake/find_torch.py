"""Prints "directory;version;CUDA version" of the installed torch package, read from its files."""

import importlib.util
import pathlib
import runpy
import sys

spec = importlib.util.find_spec("torch")
if spec is None or spec.origin is None:
    sys.exit(f"torch is not installed for {sys.executable}; run scripts/setup, or pip install torch there")
directory = pathlib.Path(spec.origin).parent
facts = runpy.run_path(str(directory / "version.py"))
print(directory, facts["__version__"], facts.get("cuda") or "none", sep=";")
