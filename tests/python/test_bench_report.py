"""The report of the benchmark: figures, verdicts on the targets, tables, the page and the picture."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import bench_chart
import bench_page
import bench_tables
import figures
import pytest
import rounds
import targets
from step import MLP_OVER_EAGER
from subjects import SUBJECTS
from trial_process import Measurement, Trial

ROOT = Path(__file__).parents[2]
PARTS = {"forward": 0.4, "backward": 0.5, "optimizer": 0.1}


def record(subject: str, number: int = 0, model: str = "bert", **changed) -> dict:
    """A record of round numbers, as a process in which a step takes eager's time leaves it."""
    found = {
        "start_seconds": 4.0,
        "startup": dict.fromkeys(figures.STARTUP, 0.1),
        "first_step_seconds": 2.0,
        "steps_seconds": 50.0,
        "step_seconds": 1.0,
        "step_ratio": 1.0,
        "parts": PARTS,
        "peak_mib": 1000.0,
        "sources": sorted(SUBJECTS[subject].expects),
        "eager_steps": 0,
        "reasons": [],
        "torch": "2.0",
    }
    if subject == "export":
        found = {"export_seconds": 5.0}
    return {"model": model, "threads": 1, "round": number, "subject": subject, **found, **changed}


def result(*records: dict, overhead: dict | None = None, absent: list | None = None) -> dict:
    plan = rounds.Plan(models=["bert"], subjects=[*SUBJECTS], threads=[1])
    return {
        "date": "2001-02-03",
        "command": "./scripts/bench",
        "machine": {"cpu": "one_of [two]"},
        "settings": dataclasses.asdict(plan),
        "absent": absent or [],
        "records": list(records),
        "overhead": overhead,
    }


def verdict(figure: str, *records: dict, model: str = "bert", **others) -> targets.Verdict:
    found = targets.verdicts(result(*records, **others))
    (one,) = (verdict for verdict in found if verdict.figure.startswith(figure) and verdict.model == model)
    return one


def test_what_is_absent_is_in_the_report():
    plan = rounds.Plan(models=["mlp", "bert"], subjects=["eager", "ortmodule"], threads=[1])
    absent = plan.absent()
    assert [(entry["model"], entry["subject"]) for entry in absent] == [("mlp", "ortmodule"), ("bert", "ortmodule")]
    found = result(record("eager"), absent=absent) | {"settings": dataclasses.asdict(plan)}
    assert "ortmodule is not available: --ortmodule PYTHON" in bench_tables.as_text(found)
    assert "ortmodule is not available: --ortmodule PYTHON" in bench_page.page(found)


def measurement(variant: str, **changed) -> Measurement:
    trial = Trial(variant, variant, "mlp", 2, Path("unused"))
    first = {"construct": 1.0, "wrap": 0.5, "forward": 5.0, "backward": 1.5, "optimizer": 0.5}
    status = {"source": "export", "phases": {"export": 3.0, "plan": 0.5}, "reasons": []} if variant == "rekindle" else None
    found = {"first_step_seconds": 8.5, "first_step": first, "peak_mib": 9.0, "peak_growth_mib": 4.0, "status": status}
    return Measurement(trial, import_seconds=1.5, start_seconds=10.0, ready={"torch": "2.0"}, result=found | changed)


def steps(*seconds: float, **others) -> list[dict]:
    return [{"seconds": time, **{part: time * share for part, share in PARTS.items()}, **others} for time in seconds]


def test_the_parts_of_a_start_sum_up_to_it():
    parts = figures.startup(measurement("rekindle"))
    assert [*parts] == [*figures.STARTUP]
    assert sum(parts.values()) == pytest.approx(10.0)
    assert (parts["export"], parts["plan"], parts["first forward"]) == (3.0, 0.5, 1.5)


def test_the_figures_of_a_process():
    turns = [figures.Turn(steps(1.0, 3.0, 2.0, source="local"), steps(4.0, 4.0, 4.0))]
    found = figures.figures(measurement("rekindle"), steps(5.0, 2.0, source="eager"), turns)
    assert found["first_step_seconds"] == 7.5  # without the model's construction
    assert found["steps_seconds"] == 7.0
    assert (found["step_seconds"], found["step_ratio"]) == (2.0, 0.5)
    assert found["parts"] == pytest.approx({"forward": 0.8, "backward": 1.0, "optimizer": 0.2})
    assert (found["sources"], found["eager_steps"]) == (["eager", "local"], 2)
    assert figures.figures(measurement("export"), steps(3.0), []) == {"export_seconds": 3.0}


def test_ratios_pair_the_rounds():
    """A machine that slows down between rounds must not show up as a ratio."""
    records = [record("eager", 0, start_seconds=1.0), record("rekindle-warm", 0, start_seconds=2.0)]
    records += [record("eager", 1, start_seconds=10.0), record("rekindle-warm", 1, start_seconds=20.0)]
    records += [record("eager", 2, start_seconds=7.0)]  # of a round in which the other one failed
    ((_, found),) = figures.by_cell(records).items()
    assert figures.ratios(found, "rekindle-warm", "start_seconds") == [2.0, 2.0]


def test_a_cold_start_is_held_against_eager_and_an_export():
    records = [record("eager"), record("export"), record("rekindle-cold", first_step_seconds=8.5)]
    kept = verdict("cold", *records)
    assert (kept.outcome, kept.numbers["median"]) == ("kept", 1.3)
    assert verdict("cold", *records[:2], record("rekindle-cold", first_step_seconds=8.6)).outcome == "missed"
    unknown = verdict("cold", records[0], records[2])
    assert (unknown.outcome, unknown.numbers) == ("not measured", None)
    assert "export" in unknown.note


@pytest.mark.parametrize(("seconds", "outcome"), [(3.9, "kept"), (4.0, "missed")])
def test_a_warm_start_has_to_be_below_eagers(seconds: float, outcome: str):
    records = [record("eager"), record("rekindle-warm", start_seconds=seconds)]
    assert verdict("warm: process start", *records).outcome == outcome


def test_a_start_in_the_background_may_run_in_eager_for_its_helper_only():
    waits = record("rekindle-background", reasons=["background: a helper makes it"])
    assert verdict("background: sum", record("eager"), waits).outcome == "kept"
    bypassed = record("rekindle-background", reasons=["unsupported_op: no FooBar"])
    found = verdict("background: sum", record("eager"), bypassed)
    assert found.outcome == "missed" and "FooBar" in found.note


def test_a_graph_from_elsewhere_keeps_no_target():
    found = verdict("warm: first step", record("eager"), record("rekindle-warm", sources=["export"]))
    assert found.outcome == "missed" and found.note.endswith("came from: export")


def test_steps_are_held_against_the_fastest_peer():
    records = [record("eager"), record("compile-warm", step_ratio=0.8), record("compile-cold", step_ratio=0.1)]
    kept = verdict("step / that", *records, record("rekindle-warm", step_ratio=0.76))
    assert (kept.outcome, kept.note) == ("kept", "compile-warm")
    assert verdict("step / that", *records, record("rekindle-warm", step_ratio=0.77)).outcome == "missed"


def test_the_floor_is_a_target_of_some_models_only():
    records = [record("eager"), record("floor", step_ratio=0.5), record("rekindle-warm", step_ratio=0.55)]
    assert verdict("step / the floor", *records).outcome == "kept"
    others = [one | {"model": "mlp"} for one in records]
    assert not [one for one in targets.verdicts(result(*others)) if one.figure == "step / the floor"]


def test_peak_memory_counts_cold_starts():
    found = verdict("peak memory / eager's, cold", record("eager"), record("rekindle-cold", peak_mib=1001.0))
    assert found.outcome == "missed"


def test_a_failed_subject_is_told():
    failed = {"model": "bert", "threads": 1, "round": 0, "subject": "rekindle-warm", "failed": "ValueError: no"}
    found = verdict("warm: first step", record("eager"), failed)
    assert (found.outcome, found.note) == ("not measured", "rekindle-warm failed: ValueError: no")
    assert "rekindle-warm failed: ValueError: no" in bench_tables.as_text(result(record("eager"), failed))


def test_a_subject_of_another_torch_is_told():
    text = bench_tables.as_text(result(record("eager"), record("floor"), record("ortmodule", torch="1.9")))
    assert "ortmodule ran with torch 1.9." in text and text.count("ran with torch") == 1


@pytest.mark.parametrize(("microseconds", "outcome"), [(12.0, "kept"), (12.1, "missed")])
def test_the_overhead_of_a_step_has_a_limit(microseconds: float, outcome: str):
    cost = dict.fromkeys(("median", "low", "high"), microseconds)
    assert verdict("step of a two-layer MLP", model="mlp", overhead={MLP_OVER_EAGER: cost}).outcome == outcome
    assert verdict("step of a two-layer MLP", model="mlp").outcome == "not measured"


def test_the_page_is_as_the_formatter_leaves_it(tmp_path: Path):
    records = [record(name, number) for name in SUBJECTS for number in range(2)]
    page = bench_page.page(result(*records))
    written = tmp_path / "page.md"
    written.write_text(page)
    (tmp_path / ".mdformat.toml").write_text((ROOT / ".mdformat.toml").read_text())
    assert subprocess.run([sys.executable, "-m", "mdformat", "--check", str(written)], check=False).returncode == 0
    assert page.count("\n## ") == 3
    for expected in ("2001-02-03", "./scripts/bench", "one_of [two]", "| target |", "## bert, threads: 1", "rekindle-warm"):
        assert expected in page


def test_the_picture_is_drawn(tmp_path: Path):
    bench_chart.draw(result(*(record(name) for name in SUBJECTS)), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="no picture"):
        bench_chart.draw(result(), tmp_path / "none.png")
