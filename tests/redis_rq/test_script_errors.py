"""Errors inside scripts: every write command fails in turn, and nothing is lost or half done.

Commits are in test_half_commits.py, held starts in test_held_starts.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from redis.exceptions import ResponseError

from orchestrator.application.engine.schedules import slot_execution_id
from orchestrator.application.errors import Unavailable
from orchestrator.application.spec.validation import check_spec
from orchestrator.redis_rq.dead_letters import DeadLetters
from orchestrator.redis_rq.keys import schedule_member
from orchestrator.redis_rq.verify.verifier import Verifier
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld
from worlds.script_faults import EXHAUSTED, NO_PERMISSION, OUT_OF_MEMORY, WRONG_TYPE, failing_positions

ERRORS = [WRONG_TYPE, NO_PERMISSION, OUT_OF_MEMORY, EXHAUSTED]
WAIT: Json = {"steps": [{"id": "w", "wait": {"signal": "go"}}]}
HOURLY: Json = {"name": "hourly", "schedule": {"cron": "0 * * * *"}, "steps": [{"id": "a", "fn": "a"}]}
RECHECKED_MS = 120_000
"""A schedule whose event was rejected is checked again within this time."""
LATE: Json = {"name": "late", "steps": [{"id": "d", "delay": "1ms"}, {"id": "a", "fn": "a"}]}


def positions(world: RedisWorld, script: str, error: str, prepare: Callable[[], object]) -> Iterator[int]:
    """For each write command of a script: an empty Redis, what is prepared, and a turn in which it fails."""

    def opened() -> None:
        world.coordinator("opener")
        world.killed("opener")
        prepare()

    def turn() -> None:
        with suppress(Unavailable, ResponseError):
            world.coordinator("faulty").run_once()
        world.killed("faulty")

    has_failed = False
    for position in failing_positions(world.client, script, error, opened, turn):
        has_failed = True
        yield position
    assert has_failed, "no command of the script has failed"


def heal(world: RedisWorld) -> None:
    """Turns of new coordinators, to which the events of those before are old, until nothing is left to do."""
    for n in range(3):
        world.age_pending(60_000)
        one = world.coordinator(f"healer-{n}")
        world.settle(one)
        world.killed(f"healer-{n}")
    assert world.pending() == []


@pytest.mark.parametrize("error", ERRORS)
def test_an_event_that_cannot_be_rejected_is_rejected_later(world: RedisWorld, error: str) -> None:
    entries: list[str] = []

    def prepare() -> None:
        entries[:] = [world.send(world.keys.starts, {"workflow": "unknown"})]

    for position in positions(world, "acknowledge", error, prepare):
        heal(world)

        # The dead letter is missing if it is the command that fails. An event that cannot become a dead
        # letter must not come again for ever, and its sender knows from the reply.
        is_dead = {letter["entry"] for letter in world.dead()} == {*entries}
        assert is_dead or not world.answer(entries[0])["ok"], position


@pytest.mark.parametrize("error", ERRORS)
def test_an_early_signal_is_kept_once_or_a_dead_letter(world: RedisWorld, error: str) -> None:
    def prepare() -> None:
        signal = {"type": "signal", "execution": "x", "name": "go", "payload": "{}"}
        world.send(world.keys.events_of("x"), signal)

    for position in positions(world, "keep_signal", error, prepare):
        heal(world)

        kept = world.client.llen(world.keys.signals("x"))
        assert [kept, len(world.dead())] in ([1, 0], [0, 1]), position
        weid = world.begin(world.coordinator("last"), WAIT, execution_id="x")
        assert world.status(weid) == ("complete" if kept else "in_progress")
        world.killed("last")


@pytest.mark.parametrize("error", ERRORS)
def test_a_slot_of_a_schedule_starts_once_whatever_fails(world: RedisWorld, error: str) -> None:
    slots: list[str] = []

    def prepare() -> None:
        world.store.register("hourly", check_spec(HOURLY))
        schedule = json.loads(str(world.client.hget(world.keys.schedules, "hourly")))
        due_ms = world.now_ms() // 1000 * 1000
        slots[:] = [slot_execution_id("hourly", due_ms)]
        world.client.hset(world.keys.schedules, "hourly", json.dumps({**schedule, "next_ms": due_ms}))
        world.client.zadd(world.keys.timers, {schedule_member("hourly"): due_ms})

    for position in positions(world, "commit_schedule", error, prepare):
        heal(world)
        world.age_timers(RECHECKED_MS)
        heal(world)

        started = [key.rpartition("#")[2] for key in world.client.scan_iter(world.keys.workflow("*"))]
        assert started == slots, position
        assert world.record(slots[0]).status == "complete"
        assert world.client.hlen(world.keys.scheduled) == 0
        assert list(world.timers()) == [schedule_member("hourly")]
        assert len(world.dead()) <= 1


@pytest.mark.parametrize("error", ERRORS)
def test_a_sweep_that_fails_loses_no_timer_and_no_lost_step(world: RedisWorld, error: str) -> None:
    def prepare() -> None:
        one = world.coordinator("before")
        world.begin(one, LATE, execution_id="x1")
        world.begin(one, document(step("a")), execution_id="x2")
        world.pop()
        world.age_timers(60_000)
        world.age_leases(60_000)
        world.killed("before")

    for position in positions(world, "sweep", error, prepare):
        for _ in range(3):
            world.age_leases(60_000)
            heal(world)

        statuses = [world.record(name).status for name in ("x1", "x2")]
        assert statuses == ["complete", "complete"], position
        assert (world.leases(), world.timers(), world.dead()) == ({}, {}, [])
        report = Verifier(world.client, world.keys).verify_all()
        assert [one for one in report.found if one.finding.code != "count"] == []


# ---- keys of a wrong type, in scripts of clients


@pytest.mark.parametrize("key", ["schedules", "timers", "scheduled", "definitions", "spec", "old spec"])
def test_a_name_is_registered_whole_or_not_at_all(world: RedisWorld, key: str) -> None:
    before, after = check_spec({**HOURLY, "description": "before"}), check_spec(HOURLY)
    world.store.register("hourly", before)
    name = {
        "schedules": world.keys.schedules,
        "timers": world.keys.timers,
        "scheduled": world.keys.scheduled,
        "definitions": world.keys.definitions,
        "spec": world.keys.spec(after.workflow_id),
        "old spec": world.keys.spec(before.workflow_id),
    }[key]
    saved = world.client.dump(name)
    world.client.delete(name)
    world.client.set(name, "not what it should be")

    with suppress(Exception):
        world.store.register("hourly", after)
    world.client.delete(name)
    if saved is not None:
        world.client.restore(name, 0, saved)
    world.store.register("hourly", after)

    assert world.store.definitions() == {"hourly": after.workflow_id}
    counts = [world.client.hget(world.keys.spec(one.workflow_id), "registered") for one in (before, after)]
    assert counts == ["0", "1"]
    assert list(world.timers()) == [schedule_member("hourly")]


def test_a_dead_letter_is_replayed_or_stays(world: RedisWorld) -> None:
    one = world.coordinator()
    world.send(world.keys.starts, {"workflow": "unknown"})
    one.run_once()
    letters = DeadLetters(world.client, world.keys)
    [letter] = letters.newest()
    world.client.delete(world.keys.starts)
    world.client.set(world.keys.starts, "not a stream")

    with pytest.raises(ResponseError):
        letters.replay(letter)

    assert [one.entry for one in letters.newest()] == [letter.entry]
