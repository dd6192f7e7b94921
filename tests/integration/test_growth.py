"""What a step costs does not grow with its workflow: counts of Redis commands and round trips, no times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GROWTH = Path(__file__).parents[2] / "scripts" / "growth"


@pytest.mark.slow
def test_the_cost_of_a_step_does_not_grow_with_its_workflow() -> None:
    done = subprocess.run(
        [sys.executable, str(GROWTH), "--json", "chain=50", "chain=500", "fan=50", "fan=1500"],
        capture_output=True,
        text=True,
        check=True,
    )
    small_chain, large_chain, small_fan, large_fan = map(per_step, json.loads(done.stdout))

    for what in ("commands", "round_trips"):
        assert large_chain[what] <= 1.05 * small_chain[what], (small_chain, large_chain)
        assert large_fan[what] <= 1.05 * small_fan[what], (small_fan, large_fan)
    assert large_chain["commands"] < 21
    assert large_fan["commands"] < 9


def per_step(run: dict[str, Any]) -> dict[str, float]:
    return {
        what: (run["coordinator"][what] + run["harness"][what]) / run["steps"]
        for what in ("commands", "round_trips")
    }
