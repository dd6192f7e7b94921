"""What a step costs in memory: counts of Python calls, which do not depend on the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_step_in_memory_takes_no_more_calls_than_before_it_had_threads() -> None:
    command = [sys.executable, "-m", "scripts.benchmarks.step_cost", "--calls"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)

    calls = json.loads(done.stdout)
    assert set(calls) == {f"{case}, {n}" for case in ("chain", "diamond") for n in ("1 thread", "4 threads")}
    assert calls["chain, 1 thread"] < 275
    assert calls["chain, 4 threads"] < 275
    assert calls["diamond, 1 thread"] < 288
