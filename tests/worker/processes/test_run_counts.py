"""The counts of the runs of a worker, as its children send them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from orchestrator.worker.processes.run_counts import RunCounter, RunCounts


def test_runs_count_by_their_outcome() -> None:
    counter = RunCounter()
    for outcome in ("complete", "complete", "exception", "timeout", "declined", "superseded"):
        counter.add(outcome, 1.5)

    found = RunCounts.parse(json.loads(json.dumps(counter.as_message())))

    assert found == RunCounts(succeeded=2, failed=2, working_s=7.5)
    assert found.rq_fields() == {
        "successful_job_count": 2,
        "failed_job_count": 2,
        "total_working_time": 7.5,
    }


@pytest.mark.parametrize(
    "message", [None, 7, [], [1, 2], ["1", 2, 3], [1, 2, math.nan], [1, 2, math.inf], {"0": 1}, [1, 2, 3, 4]]
)
def test_a_message_of_another_shape_counts_nothing(message: Any) -> None:
    assert RunCounts.parse(message) == RunCounts()


def test_negative_numbers_count_nothing() -> None:
    assert RunCounts.parse([-1, -1, -1]) == RunCounts()
