"""Schedules on Redis: coordinators, outages and kills; every slot starts once."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from effort import count
from orchestrator.application.engine.schedules import Schedule, slot_execution_id
from orchestrator.application.errors import StoreError, Unavailable
from orchestrator.application.spec.validation import check_spec
from orchestrator.backend.ports import Committed, Delivery, EventRef, StoredSchedule
from orchestrator.coordinator.loop import Coordinator
from orchestrator.coordinator.schedules import MAX_CONFLICTS, Schedules
from orchestrator.redis_rq.connection import Client
from orchestrator.redis_rq.keys import schedule_member
from orchestrator.redis_rq.queries.definitions import definitions
from orchestrator.settings import RETENTION_MARGIN_S
from servers.proxy import Proxy
from worlds.documents import Json
from worlds.redis_world import RedisWorld
from worlds.waiting import at_some_pace, wait_until

HOUR_MS = 3_600_000
NAME = "hourly report"


def spec(*, cron: str = "0 * * * *", steps: Sequence[Json] = ({"op": "count"},), **policy: str) -> Json:
    return {"name": NAME, "schedule": {"cron": cron, **policy}, "steps": list(steps)}


def register(world: RedisWorld, document: Json, name: str = NAME) -> None:
    world.store.register(name, check_spec(document))


def kept(world: RedisWorld, name: str = NAME) -> Schedule:
    found = world.store.schedules.find(name)
    assert found is not None
    return found.schedule


def put_back(world: RedisWorld, slots: int, late_ms: int = 0, name: str = NAME) -> list[str]:
    """As if so many slots, one each hour, had not been handled, and the last was due `late_ms` ago; returns
    their executions. A single one that is not late has come this second: no minute can end in between."""
    changed = json.loads(str(world.client.hget(world.keys.schedules, name)))
    now_ms = world.now_ms()
    if slots == 1 and not late_ms:
        next_ms = now_ms // 1000 * 1000
    else:
        last_ms = (now_ms - late_ms) // 60_000 * 60_000
        next_ms = last_ms - (slots - 1) * HOUR_MS
        changed["cron"] = f"{last_ms // 60_000 % 60} * * * *"
    world.client.hset(world.keys.schedules, name, json.dumps({**changed, "next_ms": next_ms}))
    world.client.zadd(world.keys.timers, {schedule_member(name): next_ms})
    return [slot_execution_id(name, next_ms + n * HOUR_MS) for n in range(slots)]


def timer(world: RedisWorld, name: str = NAME) -> float | None:
    found = world.client.zscore(world.keys.timers, schedule_member(name))
    return None if found is None else float(str(found))


def executions(world: RedisWorld) -> list[str]:
    return sorted(key.rpartition(f"{world.keys.execution('')}")[2] for key in _execution_keys(world))


def _execution_keys(world: RedisWorld) -> list[str]:
    return [str(key) for key in world.client.scan_iter(f"{world.keys.execution('')}*")]


def statuses(world: RedisWorld) -> dict[str, str]:
    return {one: world.status(world.store.full_id(one)) for one in executions(world)}


def at_rest(world: RedisWorld) -> None:
    """Nothing is left over: no event, no dead letter, no open execution that is not one."""
    assert world.pending() == []
    assert world.dead() == []
    assert world.client.hgetall(world.keys.scheduled) == {}


# ---- registering


def test_a_registration_arms_the_next_slot(world: RedisWorld) -> None:
    register(world, spec(timezone="Asia/Kathmandu"))

    found, now = kept(world), world.now_ms()
    assert timer(world) == found.next_ms
    assert now < found.next_ms <= now + HOUR_MS
    assert found.next_ms % HOUR_MS == HOUR_MS // 4
    assert not found.is_paused


def test_the_same_schedule_again_keeps_its_next_slot(world: RedisWorld) -> None:
    register(world, spec())
    put_back(world, 3)
    before = kept(world)

    register(world, spec(cron=before.cron, overlap="queue", steps=[{"op": "other"}]))

    assert kept(world) == replace(before, overlap="queue")
    assert timer(world) == before.next_ms


def test_another_schedule_replaces_the_one_before(world: RedisWorld) -> None:
    register(world, spec(cron="0 0 1 1 *"))
    before = kept(world)

    register(world, spec(cron="0 0 1 7 *"))

    assert kept(world).next_ms != before.next_ms
    assert timer(world) == kept(world).next_ms
    assert len(world.timers()) == 1


def test_a_document_without_a_schedule_ends_it(world: RedisWorld) -> None:
    register(world, spec(overlap="skip"))
    one = world.coordinator()
    put_back(world, 1)
    one.run_once()
    one.run_once()
    assert len(kept(world).open) == 1

    register(world, {"name": NAME, "steps": [{"op": "count"}]})

    assert world.store.schedules.find(NAME) is None
    assert (world.timers(), world.client.hgetall(world.keys.scheduled)) == ({}, {})
    world.settle(one)
    assert set(statuses(world).values()) == {"complete"}
    at_rest(world)


def test_a_damaged_schedule_is_repaired_by_a_registration(world: RedisWorld) -> None:
    register(world, spec())
    world.client.hset(world.keys.schedules, NAME, "{")
    with pytest.raises(StoreError, match="register it again"):
        world.store.schedules.all()

    register(world, spec())

    assert [one.name for one in world.store.schedules.all()] == [NAME]


def test_a_name_that_is_removed_takes_its_schedule_along_and_leaves_its_executions(world: RedisWorld) -> None:
    register(world, spec(overlap="skip"))
    one = world.coordinator()
    put_back(world, 1)
    one.run_once()
    one.run_once()

    world.store.unregister(NAME)

    assert (world.store.definitions(), world.store.schedules.all(), world.timers()) == ({}, [], {})
    world.settle(one)
    assert set(statuses(world).values()) == {"complete"}
    at_rest(world)
    with pytest.raises(KeyError):
        world.store.unregister(NAME)


def test_a_version_that_is_no_longer_needed_expires_and_another_is_kept(world: RedisWorld) -> None:
    first, second = check_spec(spec()), check_spec(spec(overlap="skip"))
    world.store.register(NAME, first)
    world.store.register("other", second)
    world.store.register(NAME, second)
    world.store.unregister(NAME)

    assert (
        0
        < int(str(world.client.ttl(world.keys.spec(first.workflow_id))))
        <= world.retention_s + RETENTION_MARGIN_S
    )
    assert world.client.ttl(world.keys.spec(second.workflow_id)) == -1
    assert world.store.definitions() == {"other": second.workflow_id}


def test_definitions_are_told_with_the_executions_of_each_version(world: RedisWorld) -> None:
    one = world.coordinator()
    before = check_spec({"name": NAME, "steps": [{"op": "count"}]})
    world.store.register(NAME, before)
    world.begin(one, NAME)
    world.begin(one, NAME)
    world.store.register("nameless", check_spec({"steps": []}))
    world.begin(one, {"steps": [{"op": "count"}]})
    after = check_spec(spec())
    world.store.register(NAME, after)
    world.begin(one, NAME)

    [hourly, nameless] = definitions(world.client, world.keys)

    assert (hourly.name, hourly.workflow_id, hourly.is_scheduled) == (NAME, after.workflow_id, True)
    assert hourly.open == {after.workflow_id: 1, before.workflow_id: 2}
    assert hourly.registered_at is not None
    assert (nameless.is_scheduled, nameless.open) == (False, {nameless.workflow_id: 0})
    world.client.hdel(world.keys.spec(after.workflow_id), "registered_ms")
    assert definitions(world.client, world.keys)[0].registered_at is None


# ---- firing


def test_a_slot_starts_an_execution_of_the_registered_workflow(world: RedisWorld) -> None:
    register(world, spec())
    one, two = world.coordinator("one"), world.coordinator("two")
    [expected] = put_back(world, 1)

    world.settle(one, two)

    assert statuses(world) == {expected: "complete"}
    record = world.record(expected)
    assert (record.schedule, record.inputs, record.spec.name) == (NAME, {}, NAME)
    assert (kept(world).started, kept(world).last) == (1, expected)
    assert timer(world) == kept(world).next_ms > world.now_ms()
    at_rest(world)


def test_declared_defaults_are_the_inputs_of_a_slot(world: RedisWorld) -> None:
    register(world, {**spec(), "inputs": {"region": {"default": "eu"}, "note": {}}})
    [expected] = put_back(world, 1)

    world.settle(world.coordinator())

    assert world.record(expected).inputs == {"region": "eu"}


@pytest.mark.parametrize("name", ["a|b|c", "täglich / 6:00 %7C #1", "plain"])
def test_any_name_can_be_scheduled(world: RedisWorld, name: str) -> None:
    register(world, spec(overlap="queue"), name)
    [expected] = put_back(world, 1, name=name)

    world.settle(world.coordinator())

    assert statuses(world) == {expected: "complete"}
    assert (kept(world, name).open, world.record(expected).schedule) == ((), name)
    at_rest(world)


def test_a_hint_to_look_at_nothing_is_dropped(world: RedisWorld) -> None:
    one = world.coordinator()
    world.send(world.keys.events(0), {"type": "schedule", "execution": "missing"})
    world.start({"steps": [{"op": "a"}]}, execution_id="x", schedule="missing")

    world.settle(one)

    assert statuses(world) == {"x": "complete"}
    at_rest(world)


def test_an_event_from_the_future_does_not_start_what_is_yet_to_come(world: RedisWorld) -> None:
    register(world, spec())
    one = world.coordinator()
    ahead = kept(world).next_ms + 60_000
    for stream in world.streams()[1:]:
        world.send(stream, {"type": "schedule", "execution": "hourly%20report"}, f"{ahead}-0")

    world.settle(one)

    assert executions(world) == []
    assert timer(world) == kept(world).next_ms
    at_rest(world)


# ---- kills: between any two arrows


def test_a_slot_whose_event_is_unread_is_started_by_the_next_coordinator(world: RedisWorld) -> None:
    register(world, spec())
    [expected] = put_back(world, 1)
    world.coordinator("one")  # as it begins it raises what is due, and then it dies
    assert timer(world) is None
    world.killed("one")

    world.settle(world.coordinator("two"))

    assert statuses(world) == {expected: "complete"}
    at_rest(world)


def test_a_slot_whose_coordinator_died_with_the_event_is_started_by_another(world: RedisWorld) -> None:
    register(world, spec(overlap="queue"))
    [expected] = put_back(world, 1)
    log = world.log("one")
    log.open()
    log.sweep()
    assert len(log.read(10, 0)) == 1
    world.killed("one")
    world.age_pending(10_000)

    world.settle(world.coordinator("two"))

    assert statuses(world) == {expected: "complete"}
    at_rest(world)


def test_two_coordinators_that_hold_the_same_event_start_its_slot_once(world: RedisWorld) -> None:
    register(world, spec(overlap="queue"))
    [expected] = put_back(world, 1)
    one, two = world.coordinator("one"), world.coordinator("two")
    deliveries = _read_as(world, "one", "two")

    one.handle(deliveries)
    two.handle(deliveries)

    entries: Any = world.client.xrange(world.keys.starts)
    assert [fields["execution_id"] for _, fields in entries] == [expected]
    world.age_pending(10_000)
    world.settle(one, two)
    assert (statuses(world), kept(world).started) == ({expected: "complete"}, 1)
    at_rest(world)


def _read_as(world: RedisWorld, *names: str) -> list[Delivery]:
    """What is due, raised and read by one of these coordinators."""
    found: list[Delivery] = []
    for name in names:
        log = world.log(name)
        log.sweep()
        found += log.read(10, 0)
    assert len(found) == 1
    return found


def test_an_event_that_comes_again_after_its_commit_does_nothing(world: RedisWorld) -> None:
    register(world, spec())
    put_back(world, 1)
    one = world.coordinator("one")
    [delivery] = _read_as(world, "one")
    one.handle([delivery])
    before = kept(world)

    world.send(delivery.ref.stream, delivery.fields)
    world.settle(one)

    assert kept(world) == before
    assert len(executions(world)) == 1


def test_a_lost_reply_to_the_commit_of_a_slot_neither_doubles_nor_loses_it(
    world: RedisWorld, proxy: Proxy, proxied: Client
) -> None:
    register(world, spec(overlap="queue"))
    [expected] = put_back(world, 1)
    one = world.coordinator("one", proxied)
    log = world.log("one", proxied)
    [delivery] = log.read(10, 0)

    proxy.drop_reply_of("EVALSHA")
    with pytest.raises(Unavailable):
        one.handle([delivery])
    assert (proxy.dropped, kept(world).open) == (1, (expected,)), "it was written, and its reply was lost"
    one.resume_unfinished()
    world.settle(one)

    assert statuses(world) == {expected: "complete"}
    assert (kept(world).started, kept(world).open) == (1, ())
    at_rest(world)


@pytest.mark.parametrize("seed", range(count(2, 6)))
def test_coordinators_that_die_at_any_moment_neither_double_nor_lose_a_slot(
    world: RedisWorld, seed: int
) -> None:
    chance = random.Random(seed)
    register(world, spec(catch_up="all", overlap="queue" if seed % 2 else "allow"))
    expected = put_back(world, 12)
    alive = {"one": world.coordinator("one"), "two": world.coordinator("two")}

    def kill_one() -> None:
        """Either with a batch in its hands, or between two."""
        name = chance.choice(sorted(alive))
        if chance.random() < 0.7:
            world.log(name).read(chance.randint(1, 4), 0)
        del alive[name]
        world.killed(name)
        world.age_pending(10_000, reader=name)
        alive[f"{name}'"] = world.coordinator(f"{name}'")

    for _ in range(60):
        chance.choice([kill_one, *(coordinator.run_once for coordinator in alive.values())])()
        if chance.random() < 0.5:
            world.work(most=1)
    world.age_pending(10_000)
    world.settle(*alive.values())

    assert statuses(world) == dict.fromkeys(expected, "complete")
    assert (kept(world).started, kept(world).missed, kept(world).skipped) == (12, 0, 0)
    begun = sorted(expected, key=lambda one: world.record(one).created_at)
    assert begun == expected or seed % 2 == 0
    at_rest(world)


# ---- outages


@pytest.mark.parametrize(("catch_up", "made_up", "missed"), [("none", 0, 5), ("one", 1, 4), ("all", 5, 0)])
def test_slots_of_an_outage_are_caught_up_on(
    world: RedisWorld, catch_up: str, made_up: int, missed: int
) -> None:
    register(world, spec(catch_up=catch_up))
    expected = put_back(world, 5, late_ms=10 * 60_000)

    world.settle(world.coordinator("one"), world.coordinator("two"))

    assert executions(world) == expected[5 - made_up :]
    assert (kept(world).started, kept(world).missed) == (made_up, missed)
    assert timer(world) == kept(world).next_ms > world.now_ms()


def test_a_slot_whose_event_was_raised_in_time_is_in_time_however_late_it_is_handled(
    world: RedisWorld,
) -> None:
    register(world, spec(catch_up="none"))
    [expected] = put_back(world, 1, late_ms=10 * 60_000)
    found = world.store.schedules.find(NAME)
    assert found is not None
    stream = world.keys.events(0)
    in_time = f"{found.schedule.next_ms + 100}-0"

    world.client.zrem(world.keys.timers, schedule_member(NAME))
    world.send(stream, {"type": "schedule", "execution": "hourly%20report"}, in_time)
    world.settle(world.coordinator())

    assert executions(world) == [expected]


# ---- overlaps


def test_a_slot_is_skipped_as_long_as_the_one_before_is_open(world: RedisWorld) -> None:
    register(world, spec(overlap="skip", catch_up="all"))
    one = world.coordinator()
    [first] = put_back(world, 1, late_ms=30 * 60_000)
    one.run_once()
    one.run_once()
    assert kept(world).open == (first,)

    put_back(world, 1, late_ms=20 * 60_000)
    one.run_once()
    assert (kept(world).open, kept(world).skipped) == ((first,), 1)
    world.settle(one)
    assert kept(world).open == ()
    [third] = put_back(world, 1, late_ms=10 * 60_000)
    world.settle(one)

    assert statuses(world) == {first: "complete", third: "complete"}
    assert (kept(world).started, kept(world).skipped) == (2, 1)
    at_rest(world)


def test_slots_wait_in_order_and_one_at_a_time(world: RedisWorld) -> None:
    register(world, spec(catch_up="all", overlap="queue"))
    one = world.coordinator()
    expected = put_back(world, 4)
    ended: list[str] = []

    for _ in range(4):
        while one.run_once():
            pass
        assert [found for found in executions(world) if found not in ended] == [expected[len(ended)]]
        assert len(kept(world).queued) == 3 - len(ended)
        ended.append(expected[len(ended)])
        world.work()
    world.settle(one)

    assert list(statuses(world).values()) == ["complete"] * 4
    assert (kept(world).open, kept(world).queued) == ((), ())
    at_rest(world)


def test_an_execution_that_fails_or_is_cancelled_lets_the_next_one_begin(world: RedisWorld) -> None:
    register(world, spec(catch_up="all", overlap="queue"))
    one = world.coordinator()
    first, second, third = put_back(world, 3)

    def break_once(inputs: Json) -> Json:
        raise ValueError("broken")

    while one.run_once():
        pass
    world.work({"count": break_once})
    while one.run_once():
        pass
    world.send(world.keys.events(0), {"type": "control", "execution": second, "action": "cancel"})
    world.settle(one)

    assert statuses(world) == {first: "failed", second: "cancelled", third: "complete"}
    at_rest(world)


def test_a_start_on_its_way_counts_as_open(world: RedisWorld) -> None:
    register(world, spec(overlap="skip"))
    put_back(world, 1)
    one = world.coordinator("one")
    one.handle(_read_as(world, "one"))  # it starts the slot, and no coordinator has handled that start
    [first] = kept(world).open
    schedules = world.store.schedules

    assert schedules.find_open([first, "never"]) == {first}
    world.log("one").read(10, 0)
    assert schedules.find_open([first]) == {first}, "its start is pending"
    world.age_pending(10_000)
    one.run_once()
    assert schedules.find_open([first]) == {first}, "it has begun"
    world.settle(one)
    assert schedules.find_open([first]) == set()


def test_before_any_coordinator_was_there_every_start_is_on_its_way(world: RedisWorld) -> None:
    world.client.hset(world.keys.scheduled, "x", "5-1")

    assert world.store.schedules.find_open(["x"]) == {"x"}
    world.send(world.keys.starts, {"workflow": "x"}, "5-1")
    assert world.store.schedules.find_open(["x"]) == {"x"}


def test_a_start_that_is_refused_gives_its_place_to_the_next(world: RedisWorld) -> None:
    register(world, spec(catch_up="all", overlap="queue"))
    one = world.coordinator()
    first, second = put_back(world, 2)
    definition = world.client.hget(world.keys.definitions, NAME)
    world.client.hdel(world.keys.definitions, NAME)
    while len(world.dead()) < 1:
        one.run_once()
    world.client.hset(world.keys.definitions, NAME, str(definition))

    world.settle(one)

    assert statuses(world) == {second: "complete"}
    [letter] = world.dead()
    assert first in letter["event"]
    assert (kept(world).open, world.client.hgetall(world.keys.scheduled)) == ((), {})


def test_a_slot_whose_execution_exists_already_is_no_error(world: RedisWorld) -> None:
    register(world, spec(overlap="queue", catch_up="all"))
    one = world.coordinator()
    first, second = put_back(world, 2)
    world.begin(one, {"steps": []}, execution_id=first)

    world.settle(one)

    assert statuses(world) == {first: "complete", second: "complete"}
    assert world.record(first).schedule is None
    at_rest(world)


def test_an_execution_that_vanished_does_not_block_its_schedule_for_ever(world: RedisWorld) -> None:
    register(world, spec(overlap="skip", catch_up="all"))
    one = world.coordinator()
    [first] = put_back(world, 1)
    one.run_once()
    one.run_once()
    assert kept(world).open == (first,)
    world.client.delete(world.keys.workflow(world.store.full_id(first)), world.keys.execution(first))
    world.pop()

    [expected] = put_back(world, 1, late_ms=10 * 60_000)
    world.settle(one)

    assert statuses(world) == {expected: "complete"}
    assert kept(world).skipped == 0
    at_rest(world)


# ---- pauses


def test_a_paused_schedule_starts_nothing_until_it_goes_on(world: RedisWorld) -> None:
    register(world, spec(catch_up="all", overlap="queue"))
    expected = put_back(world, 3)
    one = world.coordinator("one")
    assert world.store.schedules.pause(NAME)
    assert timer(world) is None

    world.settle(one)
    assert executions(world) == []
    register(world, spec(cron=kept(world).cron, catch_up="all", overlap="queue", timezone="UTC"))
    assert (kept(world).is_paused, timer(world)) == (True, None)
    assert world.store.schedules.unpause(NAME)
    world.settle(one)

    assert executions(world) == expected
    assert timer(world) == kept(world).next_ms
    at_rest(world)


def test_what_is_not_scheduled_can_be_neither_paused_nor_unpaused(world: RedisWorld) -> None:
    assert not world.store.schedules.pause(NAME)
    assert not world.store.schedules.unpause(NAME)


# ---- what goes wrong


def test_a_schedule_that_cannot_be_read_is_a_dead_letter_and_is_looked_at_again(world: RedisWorld) -> None:
    register(world, spec())
    one = world.coordinator()
    put_back(world, 1)
    world.client.hset(world.keys.schedules, NAME, "[]")

    world.settle(one)

    [letter] = world.dead()
    assert "StoreError: the schedule 'hourly report' cannot be read" in letter["reason"]
    again = timer(world)
    assert again is not None
    assert world.now_ms() < again <= world.now_ms() + 61_000
    register(world, spec())
    put_back(world, 1)
    world.settle(one)
    assert list(statuses(world).values()) == ["complete"]


def test_an_event_that_kills_coordinators_does_not_end_its_schedule(world: RedisWorld) -> None:
    register(world, spec())
    [expected] = put_back(world, 1)
    log = world.log("one")
    log.open()
    log.sweep()
    for _ in range(6):
        log.read(10, 0)
        world.age_pending(10_000)
        list(log.reclaim(5_000, 10))  # and dies
    world.killed("one")
    world.age_pending(10_000)
    two = world.coordinator("two")
    two.run_once()
    assert "never completed" in world.dead()[0]["reason"]

    world.age_timers(61_000)
    world.settle(two)

    assert statuses(world) == {expected: "complete"}


class Rival:
    """Another client that changes a schedule whenever it was just loaded."""

    def __init__(self, world: RedisWorld, times: int) -> None:
        self._store, self._times = world.store.schedules, times

    def find(self, name: str) -> StoredSchedule | None:
        return self._store.find(name)

    def find_open(self, execution_ids: Sequence[str]) -> set[str]:
        if self._times:
            self._times -= 1
            self._store.unpause(NAME) if self._times % 2 else self._store.pause(NAME)
        return self._store.find_open(execution_ids)

    def commit(
        self,
        before: StoredSchedule,
        after: Schedule,
        starts: Sequence[str],
        wake_ms: int | None,
        event: EventRef,
    ) -> Committed:
        return self._store.commit(before, after, starts, wake_ms, event)


def test_a_decision_upon_a_schedule_that_changed_meanwhile_is_made_again(world: RedisWorld) -> None:
    register(world, spec())
    put_back(world, 1)
    world.coordinator("one")
    [delivery] = _read_as(world, "one")

    Schedules(Rival(world, 3), world.log("one")).handle(delivery)

    assert (kept(world).started, kept(world).is_paused) == (0, True)
    at_rest(world)


def test_an_event_of_a_schedule_that_never_rests_is_left_to_others(world: RedisWorld) -> None:
    register(world, spec())
    [expected] = put_back(world, 1)
    one = world.coordinator("one")
    [delivery] = _read_as(world, "one")

    Schedules(Rival(world, MAX_CONFLICTS), world.log("one")).handle(delivery)

    assert world.pending() == [delivery.ref.entry_id]
    world.store.schedules.unpause(NAME)
    world.age_pending(10_000)
    world.settle(one)
    assert statuses(world) == {expected: "complete"}


# ---- clocks that go


def test_a_slot_starts_when_its_time_comes_and_not_before(world: RedisWorld) -> None:
    """The timer is set to a second from now: only that makes a coordinator check the schedule."""

    def scene(pace: int) -> None:
        world.client.flushall()
        register(world, spec())
        one: Coordinator = world.coordinator("one")
        soon = world.now_ms() + 1_000 * pace
        text = json.loads(str(world.client.hget(world.keys.schedules, NAME)))
        world.client.hset(world.keys.schedules, NAME, json.dumps({**text, "next_ms": soon}))
        world.client.zadd(world.keys.timers, {schedule_member(NAME): soon})
        one.run_once()
        assert executions(world) == []

        wait_until(lambda: one.run_once() and executions(world))

        entries: Any = world.client.xrange(world.keys.starts)
        assert int(entries[0][0].partition("-")[0]) >= soon

    at_some_pace(scene)
