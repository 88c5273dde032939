"""The benchmark: what it compares, its floor, its command line, and a small run of it."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import bench
import floor
import pytest
import rounds
import subjects
import torch
from subjects import SUBJECTS
from trial_process import Trial, TrialError, TrialProcess
from workloads import WORKLOADS

BENCH = Path(__file__).parents[2] / "benchmarks" / "bench.py"


def run_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(BENCH), *arguments], capture_output=True, text=True, timeout=300, check=False)


def test_a_choice_brings_eager_and_what_fills_the_caches():
    assert subjects.with_needed(["rekindle-warm"]) == ["eager", "rekindle-cold", "rekindle-warm"]
    assert subjects.with_needed(["rekindle-replayed"]) == ["eager", "rekindle-cold", "rekindle-warm", "rekindle-replayed"]
    assert subjects.with_needed(["precompile-warm", "floor"]) == ["eager", "precompile-cold", "precompile-warm", "floor"]


def test_another_subject_goes_first_in_each_round_and_a_cache_is_filled_before_it_is_used():
    names = subjects.with_needed([*SUBJECTS])
    orders = [subjects.in_order(names, number) for number in range(4)]
    assert len({order[0] for order in orders}) == 4
    for order in orders:
        assert sorted(order) == sorted(names)
        for name in order:
            before = SUBJECTS[name].after
            assert before is None or order.index(before) < order.index(name)
            assert before is None or SUBJECTS[before].directory == SUBJECTS[name].directory


def test_subjects_that_share_no_cache_have_directories_of_their_own():
    cold = [
        subject.directory for subject in SUBJECTS.values() if subject.variant in ("compile", "rekindle") and not subject.after
    ]
    assert len(cold) == len(set(cold)) == 4


def test_an_allocator_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subjects.ctypes.util, "find_library", lambda name: None)
    assert "no libjemalloc" in subjects.why_absent("eager-jemalloc", "mlp", None)
    monkeypatch.setattr(subjects.ctypes.util, "find_library", lambda name: f"lib{name}.so.9" if name == "tcmalloc" else None)
    assert subjects.why_absent("eager-tcmalloc", "mlp", None) is None
    assert subjects.preloaded(SUBJECTS["eager-tcmalloc"]) == {"LD_PRELOAD": "libtcmalloc.so.9"}


def test_what_a_subject_needs_is_named(monkeypatch: pytest.MonkeyPatch):
    assert "--ortmodule PYTHON" in subjects.why_absent("ortmodule", "mlp", None)
    assert "cannot import onnxruntime" in subjects.why_absent("ortmodule", "mlp", sys.executable)
    monkeypatch.setattr(subjects.shutil, "which", lambda name: None)
    assert "no C++ compiler" in subjects.why_absent("compile-cold", "mlp", None)
    assert subjects.why_absent("eager", "bert", None) is None
    monkeypatch.setattr(subjects.importlib.util, "find_spec", lambda name: None)
    assert "has no transformers" in subjects.why_absent("eager", "bert", None)
    assert "has no torchvision" in subjects.why_absent("floor", "vit", None)


def test_the_floor_of_a_perceptron_is_its_products():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.GELU(), torch.nn.Linear(5, 2))
    x = torch.randn(4, 3)
    ahead, back = floor.record(lambda: layers(x).sum())
    assert [str(operator) for operator, _, _ in ahead.calls] == ["aten.addmm.default"] * 2
    assert [str(operator) for operator, _, _ in back.calls] == ["aten.mm.default"] * 3  # none for x
    assert [[tuple(t.shape) for t in args] for _, args, _ in ahead.calls] == [[(5,), (4, 3), (3, 5)], [(2,), (4, 5), (5, 2)]]
    assert ahead.calls[0][1][2].data_ptr() == layers[0].weight.data_ptr()  # no copy: the same memory is read


def test_the_floor_has_convolutions_and_attention():
    images = torch.randn(1, 3, 8, 8)
    convolution = torch.nn.Conv2d(3, 4, 3)
    ahead, back = floor.record(lambda: convolution(images).sum())
    names = [str(operator) for calls in (ahead, back) for operator, _, _ in calls.calls]
    assert names == ["aten.convolution.default", "aten.convolution_backward.default"]
    query = torch.randn(1, 2, 16, 8, requires_grad=True)
    attention = torch.nn.functional.scaled_dot_product_attention
    ahead, back = floor.record(lambda: attention(query, query, query, is_causal=True).sum())
    assert len(ahead.calls) == len(back.calls) == 1


def test_a_replay_makes_the_same_calls_again():
    weight = torch.randn(3, 3, requires_grad=True)
    ahead, _ = floor.record(lambda: (weight @ weight).exp().sum())
    again = floor.ProductCalls()
    with again:
        ahead.replay()
    assert [operator for operator, _, _ in again.calls] == [operator for operator, _, _ in ahead.calls]
    assert len(ahead.calls) == 1


def test_the_time_left_is_that_of_the_processes_seen():
    progress = rounds.Progress(5)
    assert progress.seconds_left([("mlp", 1, "eager")]) == 0.0
    progress.finished(("mlp", 1, "eager"), 10.0)
    progress.finished(("mlp", 1, "floor"), 20.0)
    assert progress.done == 2
    assert progress.seconds_left([("mlp", 1, "eager"), ("bert", 1, "eager")]) == 25.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models", "mlp,resnet"], "'resnet' is unknown: choose from gpt, mlp"),
        (["--subjects", "inductor"], "'inductor' is unknown: choose from eager"),
        (["--subjects", ","], "',' is unknown"),
        (["--threads", "1,0"], "0 is not a whole number of at least 1"),
        (["--rounds", "none"], "none is not a whole number"),
        (["--pin", "a"], "a is no list of CPUs such as 0,1 or 0-3"),
        (["--pin", "1000000"], "1000000 has CPUs that this process may not use"),
        (["--dropout", "1"], "--dropout is 1.0: it must be"),
        (["--device", "gpu"], "--device is gpu: "),
        (["--autocast", "float32"], "invalid choice: 'float32'"),
        (["--ortmodule", "/no/python"], "/no/python is no program"),
        (["--json", "/no/such/file.json"], "there is no directory /no/such"),
        (["--read", "/no/such/file.json"], "there is no such file"),
    ],
)
def test_a_wrong_argument_is_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        bench.parse_arguments(arguments)
    assert message in " ".join(capsys.readouterr().err.split())


def test_arguments_have_defaults():
    options = bench.parse_arguments(["--threads", "1,2,1", "--models", "vit,mlp", "--pin", str(min(os.sched_getaffinity(0)))])
    assert (options.threads, options.models, options.subjects) == ([1, 2], ["vit", "mlp"], [*SUBJECTS])
    assert bench.parse_arguments(["--pin", str(min(os.sched_getaffinity(0)))]).threads == [1]


def test_a_process_has_the_settings_of_its_subject_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "environ", {**os.environ, "REKINDLE_FALLBACK": "error", "MALLOC_ARENA_MAX": "1"})
    rounds.drop_settings()
    trial = Trial("x", "rekindle", "mlp", 1, Path("unused"), settings={"REKINDLE_START": "background"}, threads=3)
    environment = trial.environment()
    assert environment["REKINDLE_START"] == "background" and environment["OMP_NUM_THREADS"] == "3"
    assert "REKINDLE_FALLBACK" not in environment and "MALLOC_ARENA_MAX" not in environment


def test_an_allocator_that_was_not_loaded_ends_the_trial(tmp_path: Path):
    trial = Trial("x", "eager", "mlp", 1, tmp_path, settings={"LD_PRELOAD": "libnot-there.so.1"})
    message = "libnot-there.so.1 was to be preloaded and is not loaded"
    with pytest.raises(TrialError, match=message), TrialProcess(trial, tmp_path / "log") as process:
        process.steps(1)


def test_steps_of_a_process_that_died_are_a_failure(tmp_path: Path):
    with TrialProcess(Trial("gone", "eager", "mlp", 1, tmp_path), tmp_path / "log") as process:
        process.steps(1)
        process._process.kill()
        process._process.wait()
        with pytest.raises(TrialError, match="'gone' ended with code -9"):
            process.request(1)


def test_a_failure_of_one_subject_leaves_the_others(monkeypatch: pytest.MonkeyPatch):
    """Nothing fills the cache of the one that is after it; the processes are not started."""

    def subject(self: rounds.Rounds, trial: Trial, reference: object, log: Path) -> dict:
        if trial.label == "compile-cold":
            raise TrialError("the end of its log:\nMemoryError: no")
        return {"step_seconds": 1.0, "step_ratio": 1.0}

    class Reference(TrialProcess):
        def __init__(self, trial: Trial, log: Path) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

        def steps(self, count: int) -> list:
            return []

    monkeypatch.setattr(rounds.Rounds, "_subject", subject)
    monkeypatch.setattr(rounds, "TrialProcess", Reference)
    names = ["eager", "compile-cold", "compile-warm", "floor"]
    lines, kept = [], []
    found = rounds.Rounds(rounds.Plan(["mlp"], names, [1], rounds=1), lines.append, kept.append).measure()
    failures = {one["subject"]: one.get("failed") for one in found}
    why = "compile-cold, which fills its cache, failed"
    assert failures == {"eager": None, "compile-cold": "MemoryError: no", "compile-warm": why, "floor": None}
    assert kept == [found] and any("MemoryError: no" in line for line in lines)


def test_ortmodule_runs_in_the_interpreter_that_has_it(tmp_path: Path):
    """A package of that name which trains in eager shows that the interpreter is used; the real one needs another torch."""
    package = tmp_path / "packages" / "onnxruntime" / "training" / "ortmodule"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import sys\ndef ORTModule(model):\n    print('wrapped', file=sys.stderr)\n    return model\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/packages:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert subjects.why_absent("ortmodule", "mlp", str(python)) is None
    trial = Trial("ortmodule", "ortmodule", "mlp", 2, tmp_path, python=str(python))
    with TrialProcess(trial, tmp_path / "log") as process:
        assert len(process.steps(2)) == 2
        assert len(process.finish().losses) == 2
    assert "wrapped" in (tmp_path / "log").read_text()


def test_a_forward_may_run_in_autocast(tmp_path: Path):
    losses = {}
    for dtype in (None, "bfloat16"):
        trial = Trial("mlp", "eager", "mlp", 1, tmp_path, autocast=dtype)
        with TrialProcess(trial, tmp_path / "log") as process:
            losses[dtype] = process.steps(1)[0]["loss"]
    assert losses[None] != losses["bfloat16"] and abs(losses[None] - losses["bfloat16"]) < 0.1


def test_batches_for_a_gpu_are_larger_ones_of_the_same_model():
    larger = [name for name in WORKLOADS if name.endswith("-gpu")]
    assert "gpt2-12-gpu" in larger and "resnet50-gpu" in larger
    for name in larger:
        own, other = WORKLOADS[name], WORKLOADS[name.removesuffix("-gpu")]
        assert own.make_model is other.make_model and own.about != other.about
        batch, less = (next(workload.batches(0)) for workload in (own, other))
        assert batch.keys() == less.keys() and all(batch[key].numel() > less[key].numel() for key in batch)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "gpt2-12", "llama", "resnet50", "t5", "vit"])
def test_every_model_has_a_loss_with_gradients(name: str):
    torch.manual_seed(0)
    workload = WORKLOADS[name]
    loss = workload.loss((model := workload.make_model(0.1))(**next(workload.batches(0))))
    loss.backward()
    assert math.isfinite(loss.item())
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.slow
def test_a_small_run_from_end_to_end(tmp_path: Path):
    files = {name: tmp_path / f"bench.{name}" for name in ("json", "png", "md")}
    chosen = "rekindle-warm,rekindle-background,ortmodule,floor,export"
    sizes = ["--threads", "1", "--rounds", "1", "--steps", "3", "--turns", "1", "--turn-steps", "2"]
    outputs = ["--json", str(files["json"]), "--picture", str(files["png"]), "--write", str(files["md"])]
    run = run_bench("--models", "mlp", "--subjects", chosen, *sizes, *outputs)
    assert run.returncode == 0, run.stderr
    found = json.loads(files["json"].read_text())
    records = {one["subject"]: one for one in found["records"]}
    names = ["eager", "rekindle-cold", "rekindle-background", "rekindle-warm", "floor", "export"]
    assert sorted(records) == sorted(names) and not [one for one in records.values() if "failed" in one]
    assert (records["rekindle-cold"]["sources"], records["rekindle-warm"]["sources"]) == (["export"], ["local"])
    assert records["floor"]["products"] == 8  # three layers; the first one's input needs no gradient
    assert [entry["subject"] for entry in found["absent"]] == ["ortmodule"]
    assert {one["outcome"] for one in found["verdicts"]} <= {"kept", "missed"}
    assert "[6/6, 0 min left]" in run.stderr and "ortmodule is not available" in run.stdout
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    again = run_bench("--read", str(files["json"]), "--write", str(tmp_path / "again.md"))
    assert again.stdout == run.stdout and (tmp_path / "again.md").read_text() == files["md"].read_text()


def test_what_a_subscription_costs_is_printed_in_pairs():
    run = run_bench("observed", "--model", "mlp", "--turns", "1", "--steps", "1", "--json")
    assert run.returncode == 0, run.stderr
    costs = json.loads(run.stdout)["costs"]
    observed, without = (costs[name]["median"] for name in ("step with a subscription, ms", "step, ms"))
    assert costs["ratio"]["median"] == pytest.approx(observed / without)


def test_the_kernels_of_a_step_are_listed():
    done = run_bench("kernels", "--model", "mlp", "--steps", "2", "--top", "3")
    assert done.returncode == 0, done.stderr
    eager, graph = (part.splitlines() for part in done.stdout.split("graph: "))
    assert eager[0].startswith("eager: forward, host") and len(eager) == len(graph) == 4
    assert any("mm" in line for line in graph)
