"""An error inside a script leaves an execution as it was, or written whole, or written and repaired.

Every write command of the scripts that coordinators run fails in turn. Afterwards the system must reach the
same end as without the error, and the reply to the producer must be true.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from effort import count
from orchestrator.application.errors import RecordNotFound, Unavailable
from orchestrator.application.spec.validation import check_spec
from orchestrator.redis_rq.verify.verifier import Verifier
from worlds.documents import Json
from worlds.redis_world import RedisWorld
from worlds.script_faults import EXHAUSTED, HIT, NO_PERMISSION, OUT_OF_MEMORY, WRONG_TYPE, failing_command

CHILD: Json = {"name": "child", "steps": [{"id": "work", "fn": "work"}]}
FAMILY: Json = {
    "name": "family",
    "timeout": "10h",
    "concurrency": {"key": "desk", "limit": 1},
    "steps": [
        {"id": "a", "fn": "a", "timeout": "1h"},
        {
            "id": "b",
            "fn": "b",
            "queue": "other",
            "depends_on": ["a"],
            "concurrency": {"key": "seat", "limit": 1},
        },
        {"id": "kid", "workflow": CHILD, "depends_on": ["b"]},
        {"id": "late", "delay": "1ms", "depends_on": ["a"]},
    ],
}
EVENTS = 9
"""How many turns with an event an execution of FAMILY takes at most, its child included."""


def turn(world: RedisWorld, name: str, work: bool = True) -> None:
    """One turn of a new coordinator: the one before has died, and its events are old."""
    world.age_pending(60_000)
    with suppress(Unavailable):
        world.coordinator(name).run_once()
    world.killed(name)
    if work:
        world.work()


def run_to_its_end(world: RedisWorld) -> None:
    """Turns and work until no execution is open."""
    for n in range(60):
        turn(world, f"healer-{n}")
        world.age_leases(60_000)
        if not is_open(world):
            turn(world, "last")
            return
    raise AssertionError(
        f"open: {world.client.keys(world.keys.workflow('*'))}, {world.timers()}, {world.dead()}"
    )


def is_open(world: RedisWorld) -> bool:
    records: list[str] = world.client.keys(world.keys.workflow("*"))  # type: ignore[assignment]
    statuses = [world.status(key.removeprefix(world.keys.workflow(""))) for key in records]
    return bool(world.pending()) or any(status not in ("complete", "failed") for status in statuses)


def check_end(world: RedisWorld, entry: str) -> None:
    """The execution has ended as it should, or was never created and the producer knows; no key is wrong. The
    reply may be missing, if its own command was the one that failed."""
    assert world.pending() == []
    has_reply = world.client.llen(world.keys.reply(entry)) == 1
    if not has_reply or world.answer(entry)["ok"]:
        record = world.record("x1")
        assert record.status == "complete", (record.error, world.dead())
        for step in ("a", "b", "kid", "late"):
            assert world.moves(record.workflow_execution_id, "complete").count(step) <= 1
        assert world.dead() == []
    else:
        with pytest.raises(RecordNotFound):
            world.record("x1")
        assert [letter["entry"] for letter in world.dead()] == [entry]
    report = Verifier(world.client, world.keys).verify_all()
    assert [one for one in report.found if one.finding.code != "count"] == []
    assert world.leases() == {}
    assert world.timers() == {}
    assert not world.client.exists(world.keys.partial)
    assert not world.client.keys(f"{world.keys.prefix}:concurrency:*")


def fail_at_every_command(world: RedisWorld, error: str, only: str, prepared: Callable[[], str]) -> int:
    """Prepare an execution, let the n-th command fail in one turn, and check its end; for each n."""
    position = 0
    while True:
        position += 1
        world.client.flushall()
        entry = prepared()
        with failing_command("commit", position, error, only):
            turn(world, "faulty", work=False)
        if not world.client.exists(HIT):
            if only and position < 40:
                continue
            return position - 1
        world.client.delete(HIT)
        run_to_its_end(world)
        check_end(world, entry)


def at_event(world: RedisWorld, number: int) -> str:
    """An execution of FAMILY before the turn that handles its event with this number; 0 is its start."""
    world.coordinator("opener")
    world.killed("opener")
    entry = world.start(FAMILY, execution_id="x1")
    for n in range(number):
        turn(world, f"before-{n}")
    return entry


ERRORS = {
    "wrong type": (WRONG_TYPE, ""),
    "no permission": (NO_PERMISSION, ""),
    "out of memory": (OUT_OF_MEMORY, ""),
    "exhausted": (EXHAUSTED, "XADD"),
}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(count(3, EVENTS)))
@pytest.mark.parametrize("error", ERRORS)
def test_an_error_at_any_command_of_a_script_leaves_no_half_commit(
    world: RedisWorld, error: str, number: int
) -> None:
    text, only = ERRORS[error]

    tried = fail_at_every_command(world, text, only, lambda: at_event(world, number))

    assert tried > (0 if only else 3)


# ---- keys of a wrong type, on a running system


def test_a_start_whose_history_has_a_wrong_type_is_rejected_and_nothing_of_it_stays(
    world: RedisWorld,
) -> None:
    one = world.coordinator()
    entry, weid = world.start(CHILD, execution_id="x1"), f"{check_spec(CHILD).workflow_id}#x1"
    world.client.set(world.keys.history(weid), "taken")

    one.run_once()

    assert world.answer(entry)["ok"] is False
    assert "WRONGTYPE" in world.answer(entry)["reason"]
    assert world.keys.history(weid) in world.answer(entry)["reason"]
    assert [letter["entry"] for letter in world.dead()] == [entry]
    assert world.work() == 0
    assert not world.client.exists(world.keys.workflow(weid), world.keys.execution("x1"))
    world.client.delete(world.keys.history(weid))
    world.begin(one, CHILD, execution_id="x1")
    world.settle(one)
    assert world.status(weid) == "complete"


def test_a_start_whose_queue_has_a_wrong_type_leaves_no_job_behind(world: RedisWorld) -> None:
    one = world.coordinator()
    queue = world.keys.rq_queue(world.keys.queue("default"))
    world.client.set(queue, "taken")
    entry = world.start(CHILD, execution_id="x1")

    one.run_once()

    assert world.answer(entry)["ok"] is False
    assert queue in world.answer(entry)["reason"]
    assert world.client.keys("rq:job:*") == []
    assert world.leases() == {}


def test_of_two_starts_in_a_batch_only_the_one_with_the_wrong_key_is_rejected(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = f"{check_spec(CHILD).workflow_id}#x2"
    world.client.set(world.keys.history(weid), "taken")
    entries = [world.start(CHILD, execution_id=name) for name in ("x1", "x2", "x3")]

    one.run_once()

    assert [world.answer(entry)["ok"] for entry in entries] == [True, False, True]
    world.settle(one)
    assert [world.record(name).status for name in ("x1", "x3")] == ["complete", "complete"]


@pytest.mark.parametrize("key", ["index", "timers", "counters", "concurrency"])
def test_an_execution_with_a_key_of_a_wrong_type_goes_on_and_is_repaired_later(
    world: RedisWorld, key: str
) -> None:
    keys = {
        "index": world.keys.index("in_progress"),
        "timers": world.keys.timers,
        "counters": world.keys.counters,
        "concurrency": world.keys.slot_holders("seat"),
    }
    one = world.coordinator()
    world.client.set(keys[key], "taken")
    entry = world.start({**FAMILY, "concurrency": None}, execution_id="x1")
    one.run_once()
    world.work()
    one.run_once()
    assert world.answer(entry)["ok"] is True

    world.client.delete(keys[key])
    world.killed("one")
    run_to_its_end(world)

    check_end(world, entry)


def test_a_result_that_cannot_be_written_is_handled_when_the_key_is_right_again(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, CHILD, execution_id="x1")
    before = world.record(weid)
    history = world.client.lrange(world.keys.history(weid), 0, -1)
    world.client.delete(world.keys.history(weid))
    world.client.set(world.keys.history(weid), "taken")
    world.work()
    one.run_once()
    assert world.record(weid) == before
    assert len(world.pending()) == 1

    world.client.delete(world.keys.history(weid))
    world.client.rpush(world.keys.history(weid), *history)
    world.killed("one")
    run_to_its_end(world)

    assert world.status(weid) == "complete"
    assert world.dead() == []
