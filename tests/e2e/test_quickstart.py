"""scripts/quickstart takes a newcomer from a clone to a finished workflow, and leaves nothing running."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_quickstart_finishes_an_order_and_shows_what_redis_holds() -> None:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ORCHESTRATOR_")}

    run = subprocess.run(["./scripts/quickstart"], cwd=ROOT, env=ours, capture_output=True, text=True)

    assert run.returncode == 0, run.stdout + run.stderr
    said = run.stdout
    assert ": complete in " in said
    assert "attempt 2" in said
    assert 'outcome: {"total": 29.9, "shelf": "shelf-a1"}' in said
    assert "$ redis-cli HGETALL 'orchestrator:workflow:" in said
    assert "$ redis-cli LRANGE 'orchestrator:history:" in said
    assert '"workflow":"complete"}' in said
    assert 'outcome: {"reason": "we do not sell \'z9\'"}' in said
    assert "exit code 3" in said
