"""The kill points of orchestrator.testing are what really happens: one workflow, killed and rehearsed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.records.record import WorkflowRecord
from orchestrator.client import Client
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import GROUP, Keys
from orchestrator.testing import WorkflowTest
from processes import PatientClient, Stack, stack, wait_until
from worlds.waiting import at_some_pace

KEYS = Keys()
QUEUE = KEYS.rq_queue(KEYS.queue("default"))
DOCUMENT: dict[str, Any] = {
    "name": "payment",
    "steps": [
        {
            "id": "pay",
            "fn": "charge",
            "input": {
                "order": {"var": "ctx.workflow.execution_id"},
                "ledger": {"var": "input.ledger"},
                "dies": {"var": "input.dies"},
            },
        },
        {"id": "thank", "fn": "nothing", "depends_on": ["pay"]},
    ],
    "outputs": {"receipt": {"var": "steps.pay.output.receipt"}},
}
DIFFERENT = ("dispatched_at", "started_at", "ended_at", "token", "worker", "reason")


def essence(record: WorkflowRecord) -> dict[str, Any]:
    """What must be the same, whoever was killed and however it was noticed."""
    return {
        "status": record.status,
        "outcome": record.outcome,
        "state": record.state,
        "steps": {
            step_id: {key: value for key, value in step.as_dict().items() if key not in DIFFERENT}
            for step_id, step in record.steps.items()
        },
    }


def moves(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in entry.items() if key not in ("at", "cause", "reason")}
        for entry in history
    ]


class Killing:
    """The system in which somebody is killed."""

    def __init__(self, world: Stack, redis: RedisClient, client: Client) -> None:
        self.world, self.redis, self.client = world, redis, client

    def start(self, ledger: Path, *, dies: bool = False) -> None:
        self.client.start(DOCUMENT, {"ledger": str(ledger), "dies": dies}, execution_id="order-1")

    def wait_for_the_job(self) -> None:
        wait_until(lambda: self.redis.llen(QUEUE) == 1, what=self.world.log())


def at_the_result(killing: Killing, ledger: Path) -> None:
    """The work-horse kills itself when its executor has done its work, and before it returns."""
    killing.world.coordinator()
    killing.world.worker()
    killing.start(ledger, dies=True)


def at_the_result_of_a_stock_worker(killing: Killing, ledger: Path) -> None:
    killing.world.coordinator()
    killing.world.rq_worker()
    killing.start(ledger, dies=True)


def at_the_start(killing: Killing, ledger: Path) -> None:
    """A job leaves its queue, and is never heard of again."""
    killing.world.coordinator()
    killing.start(ledger)
    killing.wait_for_the_job()
    killing.redis.lpop(QUEUE)
    killing.wait_for_the_job()
    killing.world.worker()


def at_the_dispatch(killing: Killing, ledger: Path) -> None:
    coordinator = killing.world.coordinator()
    killing.start(ledger)
    killing.wait_for_the_job()
    killing.world.kill(coordinator)
    killing.world.coordinator()
    killing.world.worker()


def at_the_commit(killing: Killing, ledger: Path) -> None:
    """A coordinator has read the result when it dies, and has not acknowledged it."""
    redis, coordinator = killing.redis, killing.world.coordinator()
    killing.start(ledger)
    killing.wait_for_the_job()
    coordinator.send_signal(signal.SIGSTOP)
    killing.world.worker()
    events = KEYS.events_of(str(redis.get(KEYS.execution("order-1"))))
    wait_until(lambda: redis.xlen(events) == 1, what=killing.world.log())
    names: Any = redis.zrange(KEYS.coordinators, 0, -1)
    redis.xreadgroup(GROUP, names[0], {events: ">"})
    killing.world.kill(coordinator)
    killing.world.coordinator()


KILLINGS: list[tuple[Any, Callable[[Killing, Path], None]]] = [
    ("worker.result", at_the_result),
    ("worker.result", at_the_result_of_a_stock_worker),
    ("worker.start", at_the_start),
    ("coordinator.commit", at_the_commit),
    ("coordinator.dispatch", at_the_dispatch),
]


@pytest.mark.slow
@pytest.mark.parametrize(("point", "kill"), KILLINGS)
def test_what_is_rehearsed_is_what_happens(
    point: Any, kill: Callable[[Killing, Path], None], redis_url: str, tmp_path: Path
) -> None:
    at_some_pace(lambda pace: is_the_same(point, kill, redis_url, tmp_path / f"{pace}", pace))


def is_the_same(
    point: Any, kill: Callable[[Killing, Path], None], redis_url: str, folder: Path, pace: int
) -> None:
    ledger, rehearsed = folder / "ledger", folder / "rehearsed"
    # Only a job that was taken and never begun is missed after the grace.
    grace_ms = 500 * pace if kill is at_the_start else 600_000
    environment = {"ORCHESTRATOR_GRACE_MS": f"{grace_ms}"}
    with connect(redis_url) as redis:
        redis.flushall()
        client = PatientClient(redis)
        with stack(redis_url, "step_functions", folder / "logs", **environment) as world:
            kill(Killing(world, redis, client), ledger)
            client.wait("order-1", timeout_s=180)

        inputs = {"ledger": str(rehearsed), "dies": False}
        play = WorkflowTest(DOCUMENT, inputs, executors="step_functions", execution_id="order-1")
        play.kill(point, step="pay")
        play.run().check_kills()

        assert ledger.read_text() == rehearsed.read_text() == "order-1\n" * play.executed("pay")
        assert essence(client.record("order-1")) == essence(play.record)
        assert moves(client.history("order-1")) == moves(play.history)
