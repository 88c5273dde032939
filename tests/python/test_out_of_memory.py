"""A process that has no memory left for an export, or for a run, computes in eager, and gets its graph once it has."""

from __future__ import annotations

import json

import python_process

# argv[1]: how many bytes more the process may have at its first call.
_PROGRAM = """
import json, resource, sys
import rekindle, torch
from torch import nn
from rekindle.export.torchscript import adapter

def may_have(more):
    size = next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]
    resource.setrlimit(resource.RLIMIT_AS, (1024 * int(size) + more if more else resource.RLIM_INFINITY, resource.RLIM_INFINITY))

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 8))
wrapped = rekindle.Module(model, rekindle.Options(log="error"))
adapter.load_exporter()
x = torch.randn(20_000, 512)
model(x).sum().backward()  # threads, and what a first backward loads
expected = model(x)
may_have(int(sys.argv[1]))
found = [torch.equal(wrapped(x), expected), rekindle.status(wrapped).source]
may_have(0)
for count in (20_000, 300):
    torch.testing.assert_close(wrapped(x[:count]), expected[:count])
status = rekindle.status(wrapped)
print(json.dumps([*found, sorted({code for code, _ in status.bypass}), status.source, status.exports]))
"""


def test_a_call_without_memory_for_its_graph_is_eagers_and_the_next_one_has_it() -> None:
    done = python_process.run("-c", _PROGRAM, str(300 << 20), check=True)  # a quarter more than eager's needs
    assert json.loads(done.stdout) == [True, "eager", ["out_of_memory"], "memory", 1], done.stderr
    again = python_process.run("-c", _PROGRAM, "0", check=True)
    assert json.loads(again.stdout)[1:] == ["local", [], "memory", 0], again.stderr
