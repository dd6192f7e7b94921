"""What a start costs, in Redis commands and round trips: no times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench-starts"
COUNT = 300


@pytest.mark.slow
def test_a_start_is_one_command_and_many_are_few_round_trips() -> None:
    command = [sys.executable, str(BENCH), str(COUNT), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    rows = json.loads(done.stdout)["starts"]
    by_name, accepted, loaded, document, _, one_by_one, together, alone = rows
    for row in (by_name, loaded, document):
        assert row["commands"] == COUNT
        assert row["round_trips"] <= 5
    assert (one_by_one["commands"], one_by_one["round_trips"]) == (COUNT, COUNT)
    assert accepted["commands"] / COUNT < 30
    assert (together["what"], alone["what"]) == ("RQ enqueue_many", "RQ enqueue, one by one")
    assert by_name["commands"] < together["commands"] < alone["commands"]
