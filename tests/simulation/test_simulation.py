"""Simulations: whatever goes wrong, every execution ends as it should, and nothing is left.

A seed that fails prints its document, what happened, and the command that plays it again. More of them, and
all mutants, are played by `scripts/simulate`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from effort import IS_FULL, count, sample
from processes import run_module
from simulation.command import main
from simulation.faults import NOW_AND_THEN, ON_THE_LINE
from simulation.simulation import Stage
from simulation.small_redis import SmallRedis
from simulation.surroundings import TIMED

ROOT = Path(__file__).resolve().parents[2]
CHUNK = 40
EVENTFUL = 40
"""From this seed on, a chunk of seeds has every kind of fault."""
FIRSTS = range(0, 2_000, CHUNK) if IS_FULL else [EVENTFUL]


def played(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Play in a process of its own."""
    return run_module(["simulation.command", *arguments], environment(), ROOT, 1800)


def story_of(seed: int, hash_seed: str) -> str:
    """What happens in a process that orders hashes by its own seed."""
    command = [sys.executable, "-m", "simulation.command", "--from", str(seed), "--seeds", "1", "--story"]
    return subprocess.run(
        command, cwd=ROOT, env=environment(hash_seed), capture_output=True, text=True, timeout=1800
    ).stdout


def environment(hash_seed: str = "0") -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": hash_seed}


@cache
def report_from(first: int) -> Any:
    """Play a chunk of seeds and return the report; two tests read that of the eventful chunk."""
    found = played("--from", str(first), "--seeds", str(CHUNK), "--json")
    assert found.returncode == 0, found.stdout + found.stderr
    return json.loads(found.stdout)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", FIRSTS)
def test_whatever_goes_wrong_every_execution_ends_as_it_should(first: int) -> None:
    report = report_from(first)

    assert report["seeds"] == CHUNK
    assert report["executions"] >= CHUNK


@pytest.mark.timeout(700)
def test_over_a_redis_that_others_wrote_nothing_else_happens() -> None:
    found = played("--seeds", str(count(4, 25)), "--level", "redis")

    assert found.returncode == 0, found.stdout + found.stderr


def test_every_kind_of_fault_happens() -> None:
    report = report_from(EVENTFUL)

    wanted = {*ON_THE_LINE, *NOW_AND_THEN, "declined", "script error"} - {
        "snapshot"
    }  # which a roll-back goes back to
    assert {kind for kind in wanted if not report["faults"].get(kind)} == set()
    assert report["counters"]["stale"] > 0
    assert report["counters"]["lost"] > 0


@pytest.mark.parametrize("seed", sample([5, 29, 275], 1))
def test_the_same_seed_is_the_same_story_whatever_the_order_of_hashes(seed: int) -> None:
    told = [story_of(seed, hash_seed) for hash_seed in ("1", "2")]

    assert told[0] == told[1]
    assert "commit" in told[0]


def test_no_module_under_simulation_uses_the_real_clock() -> None:
    elsewhere = {"orchestrator.backend.ids", "orchestrator.redis_rq.pinned_connection"}
    elsewhere |= {"orchestrator.worker.heartbeat_watchdog", "orchestrator.backend.sqlite.database"}
    elsewhere |= {
        f"orchestrator.local.{name}" for name in ("workflow", "run_loop", "run_progress", "job_run")
    }
    elsewhere |= {f"orchestrator.local.{name}" for name in ("job_pool", "lease_renewal")}
    elsewhere.add("orchestrator.redis_rq.runner")  # only in programs that call Workflow.run()
    elsewhere |= {f"orchestrator.testing.contracts.{name}" for name in ("runner", "shared_values")}
    asked = "import sys, time, simulation.simulation\nprint(*(name for name, module in sys.modules.items()"
    asked += " if name.startswith('orchestrator') and getattr(module, 'time', None) is time))"
    named = subprocess.run(
        [sys.executable, "-c", asked], env=environment(), capture_output=True, text=True, check=True
    )
    assert set(named.stdout.split()) - elsewhere == {*TIMED}


def test_another_seed_is_another_story() -> None:
    stories = [Stage(seed, SmallRedis) for seed in (5, 6)]
    for stage in stories:
        stage.play()

    assert stories[0].world.traced != stories[1].world.traced


def test_a_failure_says_which_seed_it_was_and_how_to_see_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    found = played("--mutant", "split dispatch", "--seeds", "100")
    again = int(found.stdout.partition("seed ")[2].partition(":")[0])

    assert found.returncode == 0, "the mutant is noticed"
    assert main(["--mutant", "split dispatch", "--from", str(again), "--seeds", "1", "--whole"]) == 0
    shown = capsys.readouterr().out
    assert '{"steps":' in shown
    assert "commit" in shown
    assert f"again: scripts/simulate --from {again} --seeds 1 --level memory" in shown
