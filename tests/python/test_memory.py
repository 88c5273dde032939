"""rekindle.memory, against figures that do not come from it: the tensors themselves, eager, and the process."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import rekindle
import torch
from memory_support import ROWS, Net, wrapped
from rekindle import _native
from rekindle.account.live import bytes_of
from torch import nn


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.second = nn.Linear(32, 32)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x))).sum()


class Prints(nn.Module):
    """Cannot be one graph; its two halves can."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64))
        self.decoder = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(x)
        if hidden.sum() > 1e9:
            hidden = hidden * 2
        return self.decoder(hidden).sum()


def sizes(tensors: object) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def test_what_is_alive_is_counted_as_its_tensors_say() -> None:
    model, x = wrapped(Net()), torch.randn(ROWS)
    optimizer = torch.optim.AdamW(model.parameters())
    before = rekindle.memory(model, x, optimizer=optimizer)
    assert (before.source, before.reason, before.trains) == ("graph", None, True)
    assert before.parameters == sizes(model.parameters())
    assert before.buffers == sizes(model.buffers()) == 32 * 4
    assert before.inputs == sizes([x])
    assert before.gradients == 0
    assert before.optimizer_state is None and before.optimizer is None  # AdamW makes it at its first step
    assert before.gradients_made == sizes(model.parameters())
    model(x).backward()
    optimizer.step()
    after = rekindle.memory(model, x, optimizer=optimizer)
    assert after.gradients == sizes(parameter.grad for parameter in model.parameters())
    state = [value for each in optimizer.state.values() for value in each.values()]
    assert after.optimizer_state == sizes(state) > 2 * after.parameters
    held = after.parameters + after.buffers + after.inputs + after.optimizer_state + after.constants
    assert after.optimizer.held == held + after.gradients_made
    assert after.forward.held == after.backward.held == held


@pytest.mark.parametrize("trains", [True, False])
def test_the_arena_is_to_the_byte_what_the_call_takes(trains: bool) -> None:
    model, x = wrapped(Net()), torch.randn(ROWS)
    with torch.set_grad_enabled(trains):
        account = rekindle.memory(model, x)
        assert account.arena > 0
        _native.release_idle_arenas()
        result = model(x)
        if trains:
            result.backward()
        taken = _native.release_idle_arenas()
        assert rekindle.status(model).arena_bytes == account.arena == taken
        assert account.live_peak <= account.arena
        assert account.fragmentation >= 1.0


def test_no_forward_runs_and_no_step_is_counted() -> None:
    model, x = wrapped(Net()), torch.randn(ROWS)
    model(x).backward()
    states, grads = torch.get_rng_state(), [p.grad.clone() for p in model.parameters()]
    _native.release_idle_arenas()
    rekindle.memory(model, x)
    assert _native.release_idle_arenas() == 0  # none was taken
    assert torch.equal(states, torch.get_rng_state())
    assert all(torch.equal(p.grad, grad) for p, grad in zip(model.parameters(), grads, strict=True))


def test_what_is_saved_is_no_more_than_what_eager_saves() -> None:
    net, x = Net(), torch.randn(ROWS)
    kept = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        net(x)
    own = {tensor.untyped_storage()._cdata for tensor in (x, *net.parameters(), *net.buffers())}
    by_eager = bytes_of(tensor for storage, tensor in kept.items() if storage not in own)
    account = rekindle.memory(wrapped(net), x)
    assert 0 < account.saved <= by_eager
    assert account.saved >= 512 * 64 * 4  # the result of the sigmoid


def test_what_is_saved_is_told_by_line_of_python() -> None:
    account = rekindle.memory(wrapped(Net()), torch.randn(ROWS))
    lines = account.saved_by_line
    assert sum(line.bytes for line in lines) == account.saved
    assert [line.bytes for line in lines] == sorted((line.bytes for line in lines), reverse=True)
    text = pathlib.Path(__file__).with_name("memory_support.py").read_text().splitlines()
    number = next(i for i, line in enumerate(text, start=1) if "torch.sigmoid(self.first" in line)
    assert lines[0].where == f"memory_support.py:{number} in forward"
    assert lines[0].where in str(account)


def test_shared_parameters_count_once() -> None:
    model, x = wrapped(Tied()), torch.randn(ROWS)
    account = rekindle.memory(model, x)
    assert account.parameters == (32 * 32 + 2 * 32) * 4
    assert account.gradients_made == account.parameters


def test_views_of_one_storage_count_once() -> None:
    flat = torch.randn(32 * 32 + 32)
    net = nn.Linear(32, 32)
    net.weight = nn.Parameter(flat[: 32 * 32].view(32, 32))
    net.bias = nn.Parameter(flat[32 * 32 :])
    net.register_buffer("whole", flat)
    x = torch.randn(ROWS)
    assert bytes_of([net.weight, net.bias, flat, flat[3:9], flat.view(2, -1)]) == flat.nbytes
    assert bytes_of([x[:4], x[2:6]]) == 6 * 32 * 4
    assert bytes_of([torch.ones(4).expand(1000, 4), torch.empty(0, 7)]) == 16
    account = rekindle.memory(wrapped(net), x)
    assert account.parameters == sizes([net.weight, net.bias])
    assert account.buffers == flat.nbytes


def test_sparse_tensors_count_what_they_consist_of() -> None:
    sparse = torch.eye(10).to_sparse()
    assert bytes_of([sparse]) == sizes([sparse._indices(), sparse._values()])
    rows = torch.eye(10).to_sparse_csr()
    assert bytes_of([rows]) == sizes([rows.crow_indices(), rows.col_indices(), rows.values()])


def test_frozen_parameters_make_no_gradients() -> None:
    model, x = wrapped(Net()), torch.randn(ROWS)
    rekindle.unwrap(model).first.requires_grad_(False)
    account = rekindle.memory(model, x)
    assert account.parameters == sizes(model.parameters())
    assert account.gradients_made == sizes(p for p in model.parameters() if p.requires_grad)
    model(x).backward()
    assert rekindle.memory(model, x).gradients == account.gradients_made


def test_a_call_without_gradients_saves_nothing() -> None:
    model, x = wrapped(Net()), torch.randn(ROWS)
    trained = rekindle.memory(model, x)
    with torch.no_grad():
        evaluated = rekindle.memory(model.eval(), x)
    assert (evaluated.saved, evaluated.gradients_made, evaluated.backward) == (None, None, None)
    assert evaluated.trains is False
    assert evaluated.arena < trained.arena
    assert "a forward without gradients" in str(evaluated)


def test_buffers_that_the_forward_writes_are_copied() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(32, 32)
            self.register_buffer("total", torch.zeros(512, 32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total += x
            return self.layer(x).sum()

    model = wrapped(Counts())
    account = rekindle.memory(model, torch.ones(ROWS))
    assert account.written == 512 * 32 * 4
    assert model.total.count_nonzero() == 0  # nothing ran


def test_a_module_without_arguments_and_without_parameters() -> None:
    class Constant(nn.Module):
        def forward(self) -> torch.Tensor:
            return torch.ones(16).cumsum(0)

    account = rekindle.memory(wrapped(Constant()))
    assert (account.parameters, account.inputs, account.gradients) == (0, 0, 0)
    assert str(account).startswith("memory of ")


def test_a_module_in_parts_has_an_account_of_each() -> None:
    net = Prints()
    model, x = wrapped(net), torch.randn(ROWS)
    account = rekindle.memory(model, x)
    assert account.source == "parts"
    assert account.reason.startswith("value_specialized: test_memory.py:")
    assert [part.source for part in account.parts] == ["graph", "graph"]
    assert [part.model for part in account.parts] == ["encoder (Sequential)", "decoder (Sequential)"]
    assert account.arena == sum(part.arena for part in account.parts)
    assert account.gradients_made == sum(part.gradients_made for part in account.parts)
    assert account.saved == sum(line.bytes for line in account.saved_by_line)
    assert account.parameters == sum(part.parameters for part in account.parts) == sizes(net.parameters())
    assert account.live_peak is None and account.growth is None  # what runs between them is not known
    _native.release_idle_arenas()
    model(x).backward()
    assert _native.release_idle_arenas() == account.arena
    assert account.text_picture().count("arena of") == 2


def test_a_module_in_eager_says_why_and_tells_what_can_be_told() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) if x.sum() > 0 else self.layer(x) * 2

    model, x = wrapped(Branches()), torch.randn(ROWS)
    account = rekindle.memory(model, x)
    code, message = rekindle.status(model).bypass[0]
    assert account.source == "eager"
    assert code in account.reason and message in account.reason
    assert account.parameters == sizes(model.parameters())
    assert account.inputs == sizes([x])
    unknown = (account.arena, account.saved, account.gradients_made, account.results, account.scratch, account.growth)
    assert unknown == (None,) * 6
    assert code in str(account) and "arena" not in str(account)
    with pytest.raises(ValueError, match=f"has no arena to draw; it runs in eager: .*{code}"):
        account.text_picture()


def test_wrong_arguments_are_errors_that_say_what_to_do() -> None:
    model, x = wrapped(Net()), torch.randn(ROWS)
    with pytest.raises(TypeError, match=r"rekindle.memory takes a rekindle.Module, not a Net"):
        rekindle.memory(Net(), x)
    with pytest.raises(TypeError, match=r"arguments of a call of Net.*missing a required argument: 'x'"):
        rekindle.memory(model)
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        rekindle.memory(model, x, y=1)
    with pytest.raises(TypeError, match="optimizer is a list, which has no mapping `state`"):
        rekindle.memory(model, x, optimizer=[])
    with pytest.raises(RuntimeError, match="must match"):
        rekindle.memory(model, torch.randn(512, 31))


def test_what_depends_on_data_is_named() -> None:
    class Selects(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)[x[:, 0] > 0].sum()

    account = rekindle.memory(wrapped(Selects()), torch.randn(ROWS))
    assert account.source == "graph"
    assert any(value.op == "aten.index.Tensor" and "test_memory.py:" in value.source for value in account.uncounted)
    assert account.at_least >= {"gradients_made", "results"}
    assert account.gradients_made is None and account.growth is None  # not 0
    assert "in no figure" in str(account)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "budget"), [("perceptron", ""), ("transformer", ""), ("perceptron", "0.4")])
def test_a_process_grows_by_what_is_predicted(model: str, budget: str) -> None:
    script = pathlib.Path(__file__).with_name("memory_growth.py")
    # Lets glibc give back what is freed at once: its own threshold moves, and what it keeps would count as growth.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1", "REKINDLE_MEMORY_BUDGET": budget}
    for _ in range(2):  # the first exports
        run = subprocess.run([sys.executable, script, model], env=environment, capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    assert found["taken"] == found["arena"]
    assert abs(found["grown"] / found["growth"] - 1) < 0.03
