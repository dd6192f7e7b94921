"""Controls to all executions that match a filter: each gets one while it runs; rejections have reasons."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from effort import count
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.client import Client, ExecutionFilter, NoReply
from processes import PatientClient
from worlds.documents import document, step
from worlds.redis_world import RedisWorld, running
from worlds.waiting import in_thread, wait_until

COUNT = count(400, 2_000)
TWO = document(step("a"), step("b", after="a"), name="order")
OTHER = document(step("a"), name="bill")


@contextmanager
def working(world: RedisWorld) -> Iterator[None]:
    """Run jobs in a thread until the block ends."""
    stop, worker = threading.Event(), RedisWorld(world._connect)

    def work() -> None:
        while not stop.is_set():
            if not worker.work(most=20):
                stop.wait(0.005)

    with in_thread(work):
        try:
            yield
        finally:
            stop.set()
    worker.close()


def statuses(client: Client, wanted: ExecutionFilter | None = None) -> Counter[str]:
    return Counter(one.status.value for one in client.list_all(wanted))


@pytest.mark.slow
def test_two_thousand_executions_are_cancelled_and_retried_while_they_run(world: RedisWorld) -> None:
    client, order = PatientClient(world.connect(), world.keys), ExecutionFilter(name="order")
    one = world.coordinator("one", world.connect(), block_ms=20, sweep_every_s=0.1, trim_every_s=10)
    complete = world.keys.index("complete")
    with running(one):
        sent = client.start_many([TWO] * COUNT + [OTHER], [{}] * (COUNT + 1))
        assert client.wait_for_reply(sent[-1], 180)["ok"]
        with working(world):
            wait_until(lambda: world.client.zcard(complete) > 100)

            bulk = client.cancel_all(order, "too many", "ada")

        after = statuses(client, order)
        assert len(bulk.done) + len(bulk.rejected) == len({*bulk.done, *bulk.rejected}) == COUNT
        assert (after["cancelled"], after["complete"]) == (len(bulk.done), len(bulk.rejected))
        assert bulk.done, "some had not ended yet"
        assert bulk.rejected, "some were"
        assert all(reason.endswith("it is complete") for reason in bulk.rejected.values())
        assert {client.record(each).status for each in bulk.done[:50]} == {WorkflowStatus.CANCELLED}
        assert [entry for entry in client.history(bulk.done[0]) if entry.get("control") == "cancel"]

        with working(world):
            again = client.retry_all(order, by="ada")
            wait_until(lambda: world.client.zcard(complete) == COUNT + 1)

    assert sorted(again.done) == sorted(bulk.done)
    assert sorted(again.rejected) == sorted(bulk.rejected)
    assert all(reason.endswith("cannot be retried: it is complete") for reason in again.rejected.values())
    assert (statuses(client, order), statuses(client).total()) == ({"complete": COUNT}, COUNT + 1)
    assert (world.dead(), world.pending(), world.leases()) == ([], [], {})


def test_only_executions_that_match_the_filter_are_cancelled(world: RedisWorld) -> None:
    client = PatientClient(world.connect(), world.keys)
    with running(world.coordinator("one", world.connect(), block_ms=20)):
        for n in range(6):
            client.start(TWO, execution_id=f"x{n}", labels={"customer": "acme" if n % 2 else "zeta"})
        client.pause("x1")

        bulk = client.cancel_all(ExecutionFilter([WorkflowStatus.IN_PROGRESS], labels={"customer": "acme"}))

    assert [one.partition("#")[2] for one in bulk.done] == ["x5", "x3"]
    assert bulk.rejected == {}
    assert statuses(client) == {"cancelled": 2, "paused": 1, "in_progress": 3}


def test_a_child_names_the_execution_to_retry_instead(world: RedisWorld) -> None:
    client = PatientClient(world.connect(), world.keys)
    family = document({"id": "kid", "workflow": OTHER}, name="parent")
    with running(world.coordinator("one", world.connect(), block_ms=20)):
        client.start(family, execution_id="p")
        wait_until(lambda: statuses(client).total() == 2)
        cancelled = client.cancel_all(ExecutionFilter())
        wait_until(lambda: statuses(client) == {"cancelled": 2})

        retried = client.retry_all(ExecutionFilter([WorkflowStatus.CANCELLED]))

    assert len(cancelled.done) == 2
    [(child, reason)] = retried.rejected.items()
    assert child.endswith("#p:kid:0")
    assert "already has its result; retry that one" in reason
    assert [one.partition("#")[2] for one in retried.done] == ["p"]


def test_without_a_coordinator_there_is_no_reply_and_the_control_is_applied_later(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.client.client.REPLY_TIMEOUT_S", 0.05)
    monkeypatch.setattr("orchestrator.client.controls.CONTROL_BATCH_SIZE", 2)
    one = world.coordinator()
    for n in range(3):
        world.begin(one, TWO, execution_id=f"x{n}")
    client = PatientClient(world.connect(), world.keys)

    with pytest.raises(NoReply):
        client.cancel_all(ExecutionFilter())
    one.run_once()

    assert statuses(client) == {"cancelled": 2, "in_progress": 1}
