"""Workers with different executors on one queue, as real processes: no step fails because of a worker that
lacks its executor."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.engine.declines import declined_wait_ms
from orchestrator.application.records.decisions import Complete
from orchestrator.application.records.events import parse_iso_ms
from orchestrator.redis_rq.connection import Client, clock_ms, connect
from processes import PATIENCE_S, PatientClient, Stack, stack, wait_until

EXECUTIONS = 30
SPEC = {"name": "sum", "steps": [{"id": "a", "fn": "add", "input": {"a": 1, "b": 2}}]}
LACKING = "async_functions"
"""A module of executors without `add`."""
WORKERS: dict[str, Callable[[Stack], subprocess.Popen[bytes]]] = {
    "rq worker": lambda processes: processes.rq_worker(),
    "orchestrator worker": lambda processes: processes.worker(),
    "orchestrator worker --concurrency 4": lambda processes: processes.worker(
        "default", "--concurrency", "4"
    ),
}


@pytest.fixture
def redis(redis_url: str) -> Client:
    return connect(redis_url)


def registered(redis: Client) -> int:
    return int(redis.scard("rq:workers"))


@pytest.mark.parametrize("worker", WORKERS)
def test_every_execution_completes_beside_two_workers_that_lack_the_executor(
    worker: str, redis: Client, redis_url: str, tmp_path: Path
) -> None:
    client = PatientClient(redis_url)
    with (
        stack(redis_url, LACKING, tmp_path / "lacking") as lacking,
        stack(redis_url, "step_functions", tmp_path / "able") as able,
    ):
        able.coordinator()
        for _ in range(2):
            WORKERS[worker](lacking)
        wait_until(lambda: registered(redis) == 2, what=lacking.log())
        ids = [client.start(SPEC).execution_id for _ in range(EXECUTIONS)]

        able.worker()
        for execution_id in ids:
            client.wait(execution_id, PATIENCE_S)

        ended = [client.record(execution_id) for execution_id in ids]
        assert Counter(str(record.status) for record in ended) == {"complete": EXECUTIONS}
        assert {record.steps["a"].attempt for record in ended} == {1}


def test_an_unservable_step_does_not_spin_and_other_steps_pass_it(redis_url: str, tmp_path: Path) -> None:
    client = PatientClient(redis_url)
    with stack(redis_url, "step_functions", tmp_path) as processes:
        processes.coordinator()
        processes.worker()
        unservable = client.start({"steps": [{"id": "a", "fn": "nobody_has_it"}]}).execution_id
        wait_until(lambda: client.record(unservable).steps["a"].declined, what=processes.log())

        ids = [client.start(SPEC).execution_id for _ in range(EXECUTIONS)]
        for execution_id in ids:
            client.wait(execution_id, PATIENCE_S)
        wait_until(lambda: client.record(unservable).steps["a"].declined >= 5, what=processes.log())

        passed = {str(client.record(execution_id).status) for execution_id in ids}
        waiting, now_ms = client.record(unservable), clock_ms(client._redis)
        assert passed == {"complete"}
        assert waiting.status == "in_progress"
        waits = sum(declined_wait_ms(n) for n in range(1, waiting.steps["a"].dispatches))
        assert waits <= now_ms - parse_iso_ms(waiting.created_at), "it was dispatched before its time"
        assert [entry for entry in client.history(unservable) if "step" in entry][2:] == []


def test_a_worker_with_the_executor_wakes_the_step_when_it_starts(redis_url: str, tmp_path: Path) -> None:
    client = PatientClient(redis_url)
    with (
        stack(redis_url, LACKING, tmp_path / "lacking") as lacking,
        stack(redis_url, "step_functions", tmp_path / "able") as able,
    ):
        able.coordinator()
        lacking.worker()
        waiting = client.start(SPEC).execution_id
        wait_until(lambda: client.record(waiting).steps["a"].declined >= 3, what=lacking.log())

        able.worker()

        assert isinstance(client.wait(waiting, PATIENCE_S), Complete)
        wait_until(lambda: "wait for an executor of this worker" in able.log())


def test_a_worker_that_waits_in_line_leaves_at_sigterm(redis: Client, redis_url: str, tmp_path: Path) -> None:
    client = PatientClient(redis_url)
    with stack(redis_url, "step_functions", tmp_path) as processes:
        processes.coordinator()
        workers = [processes.worker(), processes.worker("default", "--concurrency", "4")]
        waiting = client.start({"steps": [{"id": "a", "fn": "nobody_has_it"}]}).execution_id
        wait_until(lambda: client.record(waiting).steps["a"].declined >= 4, what=processes.log())
        wait_until(lambda: blocked(redis) >= 2, what=processes.log())

        for worker in workers:
            worker.terminate()

        assert [worker.wait(PATIENCE_S) for worker in workers] == [0, 0]


def blocked(redis: Client) -> int:
    """How many connections wait for a job."""
    clients: Any = redis.client_list()
    return sum(1 for one in clients if one["cmd"] == "blpop")
