"""The benchmark runs every measurement to its right end, and counts what does not depend on the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from processes import is_running, wait_until
from scripts.benchmarks.documents import DIAMOND
from scripts.benchmarks.measuring import Run
from scripts.benchmarks.processes import OURS, EndListener, children_of, make_client, start_fleet
from scripts.benchmarks.results import Results
from scripts.benchmarks.targets import TARGETS, commands

BENCH = Path(__file__).parents[2] / "scripts" / "bench"
STARTS = 300


def bench(tmp_path: Path, *words: str) -> tuple[Results, str]:
    out = tmp_path / "runs.json"
    command = [sys.executable, str(BENCH), "--runs", "1", "--jobs", "20", "--json", str(out), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Results.read(out), done.stdout


def by_name(results: Results) -> dict[tuple[str, int, str], Run]:
    return {(run.workload, run.size, run.system): run for run in results.runs}


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_workflows_go_through_real_processes_and_are_counted(tmp_path: Path) -> None:
    results, printed = bench(tmp_path, "--aof", "chain=10", "fan=20", "many=10", "two=10", "cold")

    runs = by_name(results)
    many, bare = runs["many", 10, "orchestrator worker"], runs["jobs", 20, "rq SimpleWorker"]
    assert {run.system for run in results.runs} == {
        *("rq SimpleWorker", "rq Worker", "rq worker", "orchestrator worker"),
        *("1 coordinator", "2 coordinators"),
    }
    assert many.steps == 40
    assert many.commands_each < bare.commands_each / 2
    assert many.commands["xadd"] >= 10 + 40, "ten starts and forty results"
    assert "info" not in many.commands
    assert set(many.cpu_s) == {"coordinator", "workers", "redis", "client"}
    assert {run.workload for run in results.runs if run.aof} == {"chain", "fan", "many"}
    assert many.facts["commits"] >= 10 * 4, "a diamond begins, and has three layers"
    assert runs["cold", 1, "orchestrator worker"].seconds > 0
    assert "| many of 10 " in printed


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_what_a_step_and_a_start_cost_does_not_grow(tmp_path: Path) -> None:
    sizes = ["alone=50", f"starts={STARTS}", "memory=200", "in_memory=5", "growth=300", "open=500"]
    results, printed = bench(tmp_path, *sizes)

    runs = by_name(results)
    for shape, most in (("chain", 26), ("fan", 10)):
        small, large = (runs[f"growth: {shape}", size, "in one process"] for size in (100, 300))
        assert large.commands_each <= 1.05 * small.commands_each
        assert large.round_trips_each <= 1.05 * small.round_trips_each
        assert large.commands_each < most
    few, several = (runs["open", size, "coordinator"] for size in (100, 500))
    assert several.commands_each <= 1.1 * few.commands_each
    alone = runs["alone", 50, "coordinator"]
    assert alone.steps == 50 * 5, "a start and four results of each"
    assert alone.commands_each < 6
    for way in ("a registered name", "a loaded spec", "a document"):
        start = runs[f"start_many, {way}", STARTS, "client"]
        assert start.commands["xadd"] == STARTS
        assert sum(start.commands.values()) <= STARTS + 3, "and whether there is room for them"
        assert start.round_trips <= 5
    together, by_one = (runs[way, STARTS, "rq"] for way in ("enqueue_many", "enqueue, one by one"))
    assert STARTS < sum(together.commands.values()) < sum(by_one.commands.values())
    assert runs["start_many, a registered name", STARTS, "accepting coordinator"].commands_each < 12
    assert 0 < runs["memory", 200, "redis"].facts["settled_step"] < 1_200
    assert "| in memory: many of 5 " in printed


@pytest.mark.slow
def test_nothing_that_was_started_is_left() -> None:
    others = set(children_of(os.getpid()))
    with start_fleet() as fleet:
        fleet.coordinators(1)
        fleet.workers(1, OURS)
        fleet.get_ready()
        ends = EndListener(fleet)
        make_client(fleet).start(DIAMOND, {"n": 1})
        ends.wait(1)  # so that its work-horse has something to hand in again
        everyone = [pid for pid in children_of(os.getpid()) if pid not in others]
        everyone += [child for pid in everyone for child in children_of(pid)]

    assert len(everyone) >= 4, "Redis, a coordinator, a supervisor and its work-horse"
    wait_until(lambda: not any(map(is_running, everyone)), what=f"the end of {everyone}")


def test_a_kept_file_is_reported_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    runs = [Run("many", 500, "orchestrator worker", 2_000, s, {"xadd": 4_000}) for s in (1.0, 2.0, 8.0)]
    runs.append(Run("jobs", 2_000, "rq SimpleWorker", 2_000, 10.0, {"hset": 2_000}))
    rows = [{"config": name, "workload": "many", "steps": 100, "wall": s, "ok": True} for name, s in PEERS]
    Results({"Python": "3.11"}, runs, rows, ["cold, round 1: it never ended"]).write(kept)

    command = [sys.executable, str(BENCH), "--report", str(kept)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    lines = [" ".join(line.split()) for line in printed.splitlines()]
    assert "| many, steps/s beside jobs/s of RQ's SimpleWorker | 5.00 × | ≥ 4.00 × | yes |" in lines
    assert "| many, steps/s beside huey-process2 | 0.50 × | ≥ 1.00 × | **no** |" in lines
    assert "| fan, steps/s beside streaq-2w | not measured | ≥ 1.50 × | |" in lines
    assert "| huey-process2 | – | – | 200 | – | – | 0.50 |" in lines
    assert "- cold, round 1: it never ended" in lines


PEERS = (("orchestrator-2w", 1.0), ("huey-process2", 0.5))


def test_medians_are_of_one_size_and_targets_have_one_bound_each() -> None:
    found = [Run("fan", size, "orchestrator worker", 10, 1.0, {"xadd": 10 * n}) for size, n in SIZES]
    results = Results(runs=found)

    assert results.figure("fan", "orchestrator worker", commands) == 4
    assert results.figure("fan", "orchestrator worker", commands, smallest=True) == 9
    assert results.figure("fan", "rq worker", commands) is None
    assert all((target.minimum is None) != (target.maximum is None) for target in TARGETS)


SIZES = ((10, 9), (500, 3), (500, 4), (500, 7))


def test_a_measurement_that_does_not_exist_is_named() -> None:
    done = subprocess.run([sys.executable, str(BENCH), "fun=3"], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "no measurement 'fun'; there are chain, fan" in done.stderr
