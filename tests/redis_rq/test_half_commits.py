"""An error inside a script leaves an execution as it was, or written whole, or written and repaired.

Every write command of the scripts that coordinators run fails in turn. Afterwards the system must reach the
same end as without the error, and the reply to the producer must be true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from effort import sample
from orchestrator.application.errors import RecordNotFound, Unavailable
from orchestrator.application.spec.validation import check_spec
from orchestrator.redis_rq.verify.partial_commits import PartialCommits
from orchestrator.redis_rq.verify.verifier import Verifier
from worlds.documents import Json
from worlds.redis_world import RedisWorld
from worlds.script_faults import EXHAUSTED, NO_PERMISSION, OUT_OF_MEMORY, WRONG_TYPE, failing_positions

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
DESK: Json = {**CHILD, "concurrency": {"key": "desk", "limit": 1}}
EVENTS = 8
"""How many turns with an event an execution of FAMILY takes, its child included."""
PUBLISHES = (0, 2, 4, 6)
"""The turns whose commit adds an event to a stream."""


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


def failing_turns(world: RedisWorld, error: tuple[str, str], prepare: Callable[[], object]) -> Iterator[int]:
    """For each write command of commit.lua, a turn in which it fails, and then what follows."""
    text, only = error

    def act() -> None:
        turn(world, "faulty", work=False)

    for position in failing_positions(world.client, "commit", text, prepare, act, only):
        run_to_its_end(world)
        yield position


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
@pytest.mark.parametrize(("number", "error"), sample([*product(range(EVENTS), ERRORS)], 7))
def test_an_error_at_any_command_of_a_script_leaves_no_half_commit(
    world: RedisWorld, number: int, error: str
) -> None:
    entries: list[str] = []
    tried = 0

    for _ in failing_turns(world, ERRORS[error], lambda: entries.append(at_event(world, number))):
        check_end(world, entries[-1])
        tried += 1

    if error == "exhausted":
        assert (tried > 0) is (number in PUBLISHES)
    else:
        assert tried > 3


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_at_any_command_of_an_end_leaves_no_waiter_behind(world: RedisWorld, error: str) -> None:
    """The end of one execution gives its slot to another, which no other commit may ever look at."""
    tried = 0

    def prepare() -> None:
        one = world.coordinator("before")
        for name in ("x0", "x1"):
            world.start(DESK, execution_id=name)
        while not world.work():
            one.run_once()
        world.killed("before")

    for _ in failing_turns(world, ERRORS[error], prepare):
        assert [world.record(name).status for name in ("x0", "x1")] == ["complete", "complete"]
        assert not world.client.keys(f"{world.keys.prefix}:concurrency:*")
        assert not world.client.exists(world.keys.partial)
        tried += 1

    assert tried > (0 if error == "exhausted" else 4)


def test_an_execution_that_changes_after_its_check_stays_listed(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit that changed it may have been written in part as well."""
    weid, verify = world.begin(world.coordinator(), CHILD), Verifier._verify_cases
    world.client.sadd(world.keys.partial, weid)
    repair = PartialCommits(world.client, world.keys).repair

    def changed(verifier: Verifier, cases: Any) -> None:
        verify(verifier, cases)
        world.client.hset(world.keys.workflow(weid), "version", "99-x")

    with monkeypatch.context() as patched:
        patched.setattr(Verifier, "_verify_cases", changed)
        repair()
    listed = world.client.smembers(world.keys.partial)
    repair()

    assert listed == {weid}
    assert not world.client.exists(world.keys.partial)


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
