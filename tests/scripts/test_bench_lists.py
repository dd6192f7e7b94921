"""What a page of a list costs does not grow with the number of executions: counts of commands, no times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench-lists"


@pytest.mark.slow
def test_a_page_costs_no_more_commands_of_many_than_of_few() -> None:
    command = [sys.executable, str(BENCH), "--json", "200", "5000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    rows = json.loads(done.stdout)
    few, many = ({row["what"]: row for row in rows if row["executions"] == n} for n in (200, 5000))
    assert list(few) == list(many)
    for what in few:
        assert many[what]["commands"] / many[what]["pages"] < 51 + 8 + 12
        assert many[what]["round_trips"] / many[what]["pages"] <= 4
        # The last page of the few has no entry behind it, and so one command less.
        assert few[what]["commands"] == pytest.approx(many[what]["commands"], rel=0.02)
