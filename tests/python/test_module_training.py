"""Training a wrapped module gives eager's losses, gradients, masks and parameters."""

from __future__ import annotations

import copy
import functools

import pytest
import rekindle
import torch
from module_support import Twins, mlp, rows, tiny_gpt, tokens, train

# The gradient of an attention's key bias is zero but for rounding; Adam's epsilon has to be larger than that.
ADAMW = functools.partial(torch.optim.AdamW, lr=3e-4, eps=1e-6)


def gpt_step(model: torch.nn.Module, step: int) -> torch.Tensor:
    inputs = tokens(step % 4)
    return model(inputs, inputs.roll(-1, 1))


@pytest.mark.parametrize(
    ("dropout", "dtype", "error"), [(0.0, torch.float32, 1e-5), (0.1, torch.float32, 1e-5), (0.1, torch.float64, 1e-11)]
)
def test_two_hundred_steps_give_the_losses_and_parameters_of_eager(dropout: float, dtype: torch.dtype, error: float) -> None:
    twins = Twins(tiny_gpt(dropout).to(dtype), fallback="error")
    theirs = train(twins.eager, 200, ADAMW, gpt_step)
    ours = train(twins.wrapped, 200, ADAMW, gpt_step)
    assert theirs[-1] < theirs[0] - 0.3
    # With dropout this holds only if every mask is the one that eager draws.
    for mine, other in zip(ours, theirs, strict=True):
        assert abs(mine - other) <= error * abs(other)
    for (name, mine), other in zip(twins.module.named_parameters(), twins.eager.parameters(), strict=True):
        assert torch.linalg.vector_norm(mine - other) <= 10 * error * torch.linalg.vector_norm(other), name
    assert twins.status.exports == 1
    assert twins.status.eager_calls == 0


def test_gradients_err_at_most_twice_as_much_as_those_of_eager() -> None:
    exact = tiny_gpt().double()
    single = Twins(tiny_gpt(), fallback="error")
    double = Twins(tiny_gpt().double(), fallback="error")
    for model in (exact, single.eager, single.wrapped, double.wrapped):
        gpt_step(model, 0).backward()
    found = zip(
        exact.named_parameters(), single.eager.parameters(), single.module.parameters(), double.module.parameters(), strict=True
    )
    for (name, true), eager, ours, ours_double in found:
        size = torch.linalg.vector_norm(true.grad)
        error_of_eager = torch.linalg.vector_norm(eager.grad - true.grad)
        error = torch.linalg.vector_norm(ours.grad - true.grad)
        assert error <= 2 * error_of_eager + 1e-7 * size, name
        assert torch.linalg.vector_norm(ours_double.grad - true.grad) <= 1e-12 * size, name


@pytest.mark.parametrize("optimizer", [ADAMW, functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)])
def test_optimizers_and_clipping_see_the_parameters(optimizer: functools.partial[torch.optim.Optimizer]) -> None:
    def step(model: torch.nn.Module, number: int) -> torch.Tensor:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        return model(rows(number)).square().mean()

    twins = Twins(mlp(), fallback="error")
    theirs, ours = (train(model, 10, optimizer, step) for model in (twins.eager, twins.wrapped))
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert theirs[-1] < theirs[0]
    twins.compare()


def test_training_and_evaluation_take_turns() -> None:
    twins = Twins(tiny_gpt(0.2), fallback="error")
    for round_number in range(2):
        twins.wrapped.train()
        twins.eager.train()
        train_result = twins.call(tokens(round_number))
        twins.wrapped.eval()
        twins.eager.eval()
        eval_result = twins.call(tokens(round_number))
        assert not torch.allclose(train_result, eval_result), "dropout must be off in evaluation"
        with torch.no_grad():
            assert not twins.call(tokens(round_number)).requires_grad
    assert twins.status.exports == 3  # train, eval with gradients, eval without
    assert twins.wrapped.module.training is False


def test_no_grad_in_train_mode_drops_out_and_records_nothing() -> None:
    twins = Twins(tiny_gpt(0.2), fallback="error")
    with torch.no_grad():
        first, second = twins.call(tokens()), twins.call(tokens())
    assert not first.requires_grad
    assert not torch.equal(first, second)


def test_one_directory_serves_each_mode_its_own_graph() -> None:
    model = tiny_gpt(0.2)
    for _ in range(2):
        twins = Twins(copy.deepcopy(model), fallback="error")
        for training in (True, False, True):
            twins.eager.train(training)
            twins.wrapped.train(training)
            twins.call(tokens())
        rekindle.cache.stats()  # waits until everything is stored
    assert twins.status.source == "local"
    stats = rekindle.cache.stats()
    assert (stats["entries"], stats["hits"], stats["misses"]) == (2, 2, 2)
