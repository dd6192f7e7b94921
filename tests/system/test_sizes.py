"""Large workflows on real processes: many steps side by side, and many in a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from effort import count
from orchestrator.application.records.decisions import Complete
from orchestrator.client import Client
from processes import stack

WIDE, LONG = count(300, 10_000), count(100, 2_000)


def fan(size: int) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"id": f"s{i}", "fn": "add", "input": {"n": i}} for i in range(size)]
    sums = {f"s{i}": {"var": f"steps.s{i}.output.sum"} for i in range(size)}
    steps.append({"id": "all", "fn": "add", "input": sums})
    return {"steps": steps, "outputs": {"sum": {"var": "steps.all.output.sum"}}}


def chain(size: int) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"id": "s0", "fn": "add", "input": {"n": 1}}]
    steps += [
        {"id": f"s{i}", "fn": "add", "input": {"n": {"var": f"steps.s{i - 1}.output.sum"}, "one": 1}}
        for i in range(1, size)
    ]
    return {"steps": steps, "outputs": {"sum": {"var": f"steps.s{size - 1}.output.sum"}}}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(fan(WIDE), sum(range(WIDE)), id=f"{WIDE} side by side"),
        pytest.param(chain(LONG), LONG, id=f"{LONG} in a row"),
    ],
)
def test_a_large_workflow_completes(
    document: dict[str, Any], expected: int, redis_url: str, tmp_path: Path
) -> None:
    client = Client(redis_url)
    with stack(redis_url, "step_functions", tmp_path) as world:
        world.coordinator()
        for _ in range(2):
            world.rq_worker(worker_class="rq.worker.SimpleWorker")  # without a fork for each of so many steps
        started = client.start(document, reply_timeout_s=300)

        assert client.wait(started.execution_id, 1500) == Complete({"sum": expected}), world.log()
