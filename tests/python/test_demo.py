"""The demo and the examples: real data, checks that can fail, and a real run in fresh processes."""

import math
import subprocess
import sys
from pathlib import Path

import demo
import demo_chart
import demo_table
import pytest
import text
import torch
from gpt import GPT, GPTConfig
from trial_process import PHASES, Measurement, Trial, TrialError, TrialProcess
from workloads import WORKLOADS

DEMO = Path(__file__).parents[2] / "benchmarks" / "demo.py"


def measurement(variant: str, losses: list[float], source: str | None = None, reasons=()) -> Measurement:
    """A measurement of round numbers, as one of a run with two starts would be."""
    status = None
    if source is not None:
        phases = dict.fromkeys(PHASES, 0.0) | {"lookup": 0.25, "plan": 0.5}
        if source == "export":
            phases |= {"export": 4.0, "build": 0.3, "verify": 0.2}
        status = {"source": source, "phases": phases, "reasons": list(reasons)}
    result = {
        "first_step_seconds": 8.0,
        "first_step": {"construct": 0.5, "wrap": 0.5, "forward": 5.0, "backward": 1.5, "optimizer": 0.5},
        "step_seconds": 0.3,
        "peak_mib": 900.0,
        "peak_growth_mib": 400.0,
        "losses": losses,
        "status": status,
    }
    trial = Trial(f"{variant} {source}", variant, "gpt", len(losses), Path("unused"))
    return Measurement(trial, import_seconds=1.5, start_seconds=10.0, result=result)


def run_demo(*arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DEMO), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def test_gpt_is_causal():
    torch.manual_seed(0)
    model = GPT(GPTConfig(context=16, layers=2, heads=2, width=32)).eval()
    tokens = torch.randint(256, (2, 16))
    changed = tokens.clone()
    changed[:, 10] = (changed[:, 10] + 1) % 256
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :10], after[:, :10])
    assert not torch.allclose(before[:, 10:], after[:, 10:])


def test_gpt_learns_and_its_head_shares_the_embedding():
    torch.manual_seed(0)
    model = GPT(GPTConfig(context=32, layers=1, heads=2, width=64, dropout=0.0))
    assert model.head.weight is model.token.weight
    tokens, targets = next(text.Batches(text.load(), batch=4, length=32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first = model(tokens, targets).item()
    for _ in range(20):
        optimizer.zero_grad()
        model(tokens, targets).backward()
        optimizer.step()
    assert abs(first - math.log(256)) < 0.2
    assert model(tokens, targets).item() < 0.7 * first


def test_gpt_refuses_a_width_its_heads_do_not_divide():
    with pytest.raises(ValueError, match="width 30 is not a multiple of heads 4"):
        GPT(GPTConfig(width=30))


def test_batches_depend_on_the_seed_alone():
    corpus = text.load()
    first = next(text.Batches(corpus, 4, 16, seed=3))
    torch.manual_seed(99)
    again = next(text.Batches(corpus, 4, 16, seed=3))
    other = next(text.Batches(corpus, 4, 16, seed=4))
    assert torch.equal(first[0], again[0]) and not torch.equal(first[0], other[0])
    assert torch.equal(first[0][:, 1:], first[1][:, :-1])


def test_the_text_is_split_without_overlap_or_loss():
    corpus = text.load()
    train, validation = text.split(corpus, 0.25)
    assert torch.equal(torch.cat([train, validation]), corpus)
    assert len(validation) == pytest.approx(len(corpus) / 4, abs=1)


@pytest.mark.parametrize("name", ["gpt", "gpt2-4", "mlp"])
def test_every_workload_has_a_loss_with_gradients(name: str):
    torch.manual_seed(0)
    workload = WORKLOADS[name]
    model = workload.make_model(0.1)
    loss = workload.loss(model(**next(workload.batches(0))))
    loss.backward()
    assert math.isfinite(loss.item())
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize(("losses", "expected"), [([2.0, 1.0], 0.0), ([2.0, 1.1], 0.1), ([2.0, math.nan], math.inf)])
def test_relative_difference(losses: list[float], expected: float):
    assert demo.relative_difference(losses, [2.0, 1.0]) == pytest.approx(expected)


def test_curves_that_differ_fail_the_demo():
    eager = measurement("eager", [2.0, 1.0])
    assert demo.check_agreement([eager, measurement("rekindle", [2.0, 1.0], "local")], 1e-4) == []
    for wrong in (1.001, math.nan):
        problems = demo.check_agreement([eager, measurement("rekindle", [2.0, wrong], "local")], 1e-4)
        assert len(problems) == 1 and "differ" in problems[0]


def test_a_graph_from_the_wrong_place_fails_the_demo():
    cold = measurement("rekindle", [1.0], "export")
    assert demo.check_sources([cold, measurement("rekindle", [1.0], "local")]) == []
    fell_back = measurement("rekindle", [1.0], "eager", ["unsupported_op: no lowering for FooBar"])
    (problem,) = demo.check_sources([cold, fell_back])
    assert "came from eager, not local" in problem and "FooBar" in problem


def test_the_parts_of_a_start_sum_up_to_it():
    parts = demo_table.startup_parts(measurement("rekindle", [1.0], "export"))
    assert sum(parts.values()) == pytest.approx(10.0)
    assert parts["first run"] == pytest.approx(10.0 - 2.0 - 1.0 - 0.25 - 4.0 - 0.3 - 0.2 - 0.5)


def test_the_table_has_a_column_per_run():
    lines = demo_table.table([measurement("eager", [2.0]), measurement("rekindle", [2.0], "local")]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert next(line for line in lines if line.startswith("graph came from")).split()[-2:] == ["-", "local"]


def test_the_picture_is_drawn(tmp_path: Path):
    runs = [measurement("eager", [3.0, 2.0]), measurement("rekindle", [3.0, 2.0], "export")]
    runs.append(measurement("rekindle", [math.nan, math.nan], "local"))  # failed runs are worth a picture too
    demo_chart.draw(runs, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_trial_takes_the_steps_it_is_asked_for(tmp_path: Path):
    trial = Trial("eager", "eager", "mlp", 2, tmp_path)
    with TrialProcess(trial, tmp_path / "log") as process:
        assert len(process.steps(2)) == 2
        process.request(3)
        assert len(process.steps(3)) == 3
        result = process.finish()
    assert len(result.losses) == 5
    assert 0 < result.first_step_seconds < result.start_seconds
    assert 0 < result.peak_growth_mib < result.peak_mib


def test_a_trial_that_dies_tells_its_log(tmp_path: Path):
    trial = Trial("broken", "eager", "mlp", 1, tmp_path, dropout=7.0)
    message = r"'broken' ended with code 1(.|\n)*dropout probability"
    with pytest.raises(TrialError, match=message), TrialProcess(trial, tmp_path / "log") as process:
        process.steps(1)


def test_demo_trains_in_a_fresh_process(tmp_path: Path):
    run = run_demo("--variant", "eager", "--steps", "2", "--output", str(tmp_path))
    assert run.returncode == 0, run.stderr
    assert "time to first step" in run.stdout
    assert (tmp_path / "demo.png").exists()


def test_demo_without_rekindle_names_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"cannot import rekindle.*\./scripts/setup"):
        demo.require_rekindle()


def test_demo_refuses_zero_steps():
    run = run_demo("--steps", "0")
    assert run.returncode == 2 and "at least one step" in run.stderr


@pytest.mark.slow
def test_demo_hits_the_cache_on_its_second_start(tmp_path: Path):
    run = run_demo("--steps", "8", "--output", str(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr
    sources = next(line for line in run.stdout.splitlines() if line.startswith("graph came from"))
    assert sources.split()[-2:] == ["export", "local"]
