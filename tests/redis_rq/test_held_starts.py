"""Full queues: starts that need one are held and counted, and start in order when it has room. No other start
waits for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from redis.exceptions import ResponseError

from effort import sample
from orchestrator.application.errors import Busy, Unavailable
from orchestrator.client import NoReply, RequestLost
from orchestrator.coordinator.loop import Coordinator
from orchestrator.diagnosis import run_checks, why
from orchestrator.redis_rq import backlog
from orchestrator.redis_rq.backlog import count_waiting_starts
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import GROUP
from orchestrator.redis_rq.verify.verifier import Verifier
from processes import PatientClient
from servers.redis_server import RedisServer, require_redis_version
from torture.proxy import Proxy
from worlds.documents import document, step
from worlds.redis_world import RedisWorld
from worlds.script_faults import EXHAUSTED, NO_PERMISSION, OUT_OF_MEMORY, WRONG_TYPE, failing_positions

ONE = document(step("a"))
OTHER = document(step("b", queue="other"))
BOTH = document(step("a"), step("b", queue="other"))
PARENT = document(step("a"), {"id": "kid", "workflow": ONE, "depends_on": ["a"]})


@pytest.fixture
def full(world: RedisWorld) -> RedisWorld:
    """A world whose queue `default` has two jobs, without workers, and is full."""
    world.max_queued = 2
    flood(world)
    return world


def flood(world: RedisWorld, queue: str = "default") -> None:
    """Fill a queue with jobs that are not ours."""
    name = world.keys.queue(queue)
    world.client.hsetnx(world.keys.sequences, name, 0)
    world.client.rpush(world.keys.rq_queue(name), "x", "y")


def drain(world: RedisWorld, queue: str = "default") -> None:
    for job in ("x", "y"):
        world.client.lrem(world.keys.rq_queue(world.keys.queue(queue)), 0, job)


def held(world: RedisWorld, queue: str = "default") -> list[str]:
    """The execution ids of the held starts of a queue, in order."""
    entries: Any = world.client.xrange(world.keys.held(world.keys.queue(queue)))
    return [fields["execution_id"] for _, fields in entries]


def created(world: RedisWorld) -> list[str]:
    """The execution ids of the jobs in the queue `default`, in order."""
    return [payload["execution"].partition("#")[2] for payload in world.payloads()]


def turns(coordinator: Coordinator, count: int = 3) -> None:
    for _ in range(count):
        coordinator.run_once()


# ---- other queues


def test_a_full_queue_does_not_delay_starts_for_other_queues(full: RedisWorld) -> None:
    world, one = full, full.coordinator()
    stuck = [world.start(ONE, execution_id=f"a{n}") for n in range(3)]
    free = [world.start(OTHER, execution_id=f"b{n}") for n in range(3)]

    one.run_once()

    assert [world.answer(entry)["ok"] for entry in free] == [True] * 3
    assert held(world) == ["a0", "a1", "a2"]
    assert not any(world.client.exists(world.keys.reply(entry)) for entry in stuck)
    assert world.pending() == [], "a start that stays pending is dead-lettered after five deliveries"


def test_priorities_of_a_queue_are_queues_of_their_own(full: RedisWorld) -> None:
    world, one = full, full.coordinator()
    world.start(ONE, execution_id="normal")

    urgent = world.begin(one, ONE, execution_id="urgent", priority="1")

    assert world.status(urgent) == "in_progress"
    assert held(world) == ["normal"]


def test_a_start_without_first_jobs_is_not_held(full: RedisWorld) -> None:
    one = full.coordinator()

    weid = full.begin(one, document({"id": "nap", "delay": "1h"}, step("a", "nap")))

    assert full.status(weid) == "in_progress"


def test_running_executions_and_their_children_are_not_held(full: RedisWorld) -> None:
    world, one = full, full.coordinator()
    drain(world)
    parent = world.begin(one, PARENT)
    world.work()
    flood(world)
    late = world.start(ONE)

    turns(one, 5)

    assert world.record(parent).steps["a"].status == "complete"
    assert world.record(parent.partition("#")[2] + ":kid:0").steps["a"].status == "in_progress"
    assert not world.client.exists(world.keys.reply(late))


def test_an_invalid_start_is_rejected_at_once(full: RedisWorld) -> None:
    one, entry = full.coordinator(), full.start("unknown")

    one.run_once()

    assert full.answer(entry)["ok"] is False


# ---- order


def test_held_starts_start_in_order_as_far_as_there_is_room(full: RedisWorld) -> None:
    world, one = full, full.coordinator()
    entries = [world.start(ONE, execution_id=f"a{n}") for n in range(5)]
    turns(one)
    drain(world)

    turns(one)

    assert (created(world), held(world)) == (["a0", "a1"], ["a2", "a3", "a4"])
    world.settle(one)
    assert all(world.answer(entry)["ok"] for entry in entries)
    records = [world.record(f"a{n}") for n in range(5)]
    assert [record.start_event for record in records] == entries
    assert {record.status.value for record in records} == {"complete"}
    assert not world.client.exists(world.keys.held_queues)
    assert not world.client.exists(world.keys.intake_paused)


def test_a_new_start_waits_behind_the_held_ones(world: RedisWorld) -> None:
    world.max_queued = 10
    for _ in range(5):
        flood(world)
    one = world.coordinator(batch=1)
    for n in range(4):
        world.start(ONE, execution_id=f"a{n}")
    turns(one, 4)
    assert held(world) == ["a0", "a1", "a2", "a3"]
    drain(world)
    world.start(ONE, execution_id="late")

    turns(one, 1)

    assert created(world) == ["a0", "a1"], "two at a time, with a batch of one"
    assert held(world) == ["a2", "a3", "late"]
    turns(one, 3)
    assert created(world) == ["a0", "a1", "a2", "a3", "late"]
    world.start(ONE, execution_id="next")
    turns(one, 1)
    assert (created(world)[-1], held(world)) == ("next", [])


def test_two_coordinators_share_held_starts(full: RedisWorld) -> None:
    world, pair = full, [full.coordinator("one"), full.coordinator("two")]
    entries = [world.start(ONE, execution_id=f"a{n}") for n in range(9)]
    for coordinator in pair:
        turns(coordinator)
    drain(world)

    world.settle(*pair)

    assert [world.record(f"a{n}").start_event for n in range(9)] == entries
    assert world.client.zcard(world.keys.index("complete")) == 9
    assert (world.dead(), held(world)) == ([], [])


def test_a_start_that_needs_two_full_queues_waits_for_both(full: RedisWorld) -> None:
    world, one = full, full.coordinator()
    flood(world, "other")
    entry = world.start(BOTH, execution_id="x")
    turns(one)
    assert held(world) == ["x"]

    drain(world)
    turns(one)

    assert (held(world), held(world, "other")) == ([], ["x"])
    assert not world.client.exists(world.keys.reply(entry))
    drain(world, "other")
    turns(one)
    assert world.answer(entry)["ok"]
    assert world.record("x").start_event == entry
    assert not world.client.exists(world.keys.held_queues)


# ---- the entry id


def test_a_held_start_keeps_the_entry_id_under_which_it_was_sent(full: RedisWorld) -> None:
    world, one = full, full.coordinator()
    entry, twin = world.start(ONE), world.send(world.keys.starts, {"spec": json.dumps(ONE)})
    turns(one)
    drain(world)
    world.settle(one)

    weid = world.answer(entry)["workflow_execution_id"]

    assert world.record(weid).start_event == entry
    assert {one["cause"] for one in world.history(weid)} > {entry}
    milliseconds, _, sequence = entry.partition("-")
    assert weid.endswith(f"-{int(milliseconds) % 1000:03x}{int(sequence):x}")
    assert world.record(world.answer(twin)["workflow_execution_id"]).start_event == twin
    assert why(world.client, world.keys, entry).workflow_execution_id == weid


def test_a_held_start_that_is_rejected_leaves_a_letter_that_can_be_replayed(full: RedisWorld) -> None:
    """Its execution id was taken while it was held."""
    world, one = full, full.coordinator()
    entry = world.start(ONE, execution_id="x")
    turns(one)
    world.begin(one, OTHER, execution_id="x")
    drain(world)

    turns(one)

    assert world.answer(entry)["ok"] is False
    [letter] = world.dead()
    assert (letter["stream"], letter["entry"]) == (world.keys.starts, entry)
    assert json.loads(letter["event"]) == {"spec": json.dumps(ONE), "execution_id": "x"}
    assert (held(world), world.client.exists(world.keys.held_queues)) == ([], 0)


@pytest.mark.parametrize("policy", ["use_existing", "terminate_existing"])
def test_conflict_policies_apply_when_a_held_start_is_created(full: RedisWorld, policy: str) -> None:
    world, one = full, full.coordinator()
    first = world.start(ONE, execution_id="x")
    second = world.start(ONE, execution_id="x", conflict_policy=policy)
    turns(one)
    drain(world)

    world.settle(one)

    assert world.record("x").start_event == (second if policy == "terminate_existing" else first)
    assert [world.answer(entry)["ok"] for entry in (first, second)] == [True, True]
    assert ("existing" in world.answer(second)) == (policy == "use_existing")


def test_of_two_held_starts_with_one_idempotency_root_the_first_creates_the_execution(
    full: RedisWorld,
) -> None:
    world, one = full, full.coordinator()
    entries = [world.start(ONE, idempotency_root="r") for _ in range(2)]
    turns(one)
    drain(world)

    world.settle(one)

    first, second = map(world.answer, entries)
    assert first["workflow_execution_id"] == second["workflow_execution_id"]
    assert second["existing"] is True
    assert world.client.zcard(world.keys.index("complete")) == 1


def test_a_signal_that_arrives_while_a_start_is_held_is_kept_for_it(full: RedisWorld) -> None:
    world, one = full, full.coordinator()
    world.start(document(step("a"), {"id": "go", "wait": {"signal": "go"}}), execution_id="x")
    turns(one)
    world.send(world.keys.events(0), {"type": "signal", "execution": "x", "name": "go"})
    turns(one)
    drain(world)

    world.settle(one)

    assert world.record("x").status == "complete"


def test_a_scheduled_execution_whose_start_is_held_is_open(full: RedisWorld) -> None:
    """Its schedule must not start the next slot beside it."""
    world, one = full, full.coordinator()
    execution = "nightly-1"
    entry = world.send(
        world.keys.starts, {"spec": json.dumps(ONE), "execution_id": execution, "schedule": "nightly"}
    )
    world.client.hset(world.keys.scheduled, execution, entry)
    turns(one)
    assert held(world) == [execution]

    assert world.store.schedules.find_open([execution]) == {execution}

    drain(world)
    world.settle(one)
    assert world.record(execution).start_event == entry
    assert world.store.schedules.find_open([execution]) == set()


# ---- counting and explaining


def test_held_starts_count_in_the_backlog(full: RedisWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    require_redis_version((7, 0), "older servers do not know how many entries of a stream are unread")
    monkeypatch.setattr(backlog, "CHECK_INTERVAL_S", 0.0)
    world, one = full, full.coordinator()
    for n in range(3):
        world.start(ONE, execution_id=f"a{n}")
    turns(one)

    assert count_waiting_starts(world.client, world.keys) == 3
    with pytest.raises(Busy, match="3 starts wait"):
        PatientClient(world.connect(), world.keys, max_backlog=3).send_start(OTHER, {})
    drain(world)
    world.settle(one)
    assert count_waiting_starts(world.client, world.keys) == 0


def test_explain_and_doctor_name_the_full_queue(full: RedisWorld) -> None:
    world, one = full, full.coordinator()
    entries = [world.start(ONE, execution_id=f"x{n}") for n in range(3)]
    turns(one)

    for name in ("x2", entries[2]):
        waits, because = why(world.client, world.keys, name).reasons
        assert waits.code == "start_waits"
        assert waits.words.startswith(f"its start event {entries[2]} has waited for ")
        assert waits.words.endswith("it is held in orchestrator:held:default")
        assert because.code == "full"
        assert because.words.startswith("its first steps need the queue orchestrator.default, which is full")
        assert because.words.endswith("jobs that wait for workers: 2, starts that are held: 3")
        assert because.advice == "start more workers: orchestrator worker default"
    [queues] = [check for check in run_checks(world.client, world.keys) if check.name == "queues"]
    assert (queues.level, queues.advice) == ("problem", "start more workers: orchestrator worker default")
    assert queues.found == "starts are held for orchestrator.default (2 jobs wait, 3 starts held)"
    assert world.client.get(world.keys.intake_paused) == "default (2 of 2)"
    drain(world)
    world.settle(one)
    assert not [check for check in run_checks(world.client, world.keys) if "held" in check.found]


def test_doctor_reports_a_full_queue_before_a_start_needs_it(full: RedisWorld) -> None:
    turns(full.coordinator())

    [queues] = [check for check in run_checks(full.client, full.keys) if check.name == "queues"]

    assert (queues.level, queues.found) == ("problem", "full: default (2 of 2); starts for it are held")


def test_a_client_that_waits_for_a_held_start_does_not_take_it_for_lost(full: RedisWorld) -> None:
    world, one = full, full.coordinator()
    entry = world.start(ONE, execution_id="x")
    world.start(OTHER)
    turns(one)
    assert world.client.xrange(world.keys.starts, entry, entry) == [], "it was acknowledged and trimmed"
    client = PatientClient(world.connect(), world.keys)

    with pytest.raises(NoReply, match="the queue 'default' is full, and the start is held") as raised:
        client._replies.wait(entry, 0.0)

    assert not isinstance(raised.value, RequestLost)


# ---- costs


def test_a_start_costs_no_further_command_while_no_queue_is_full(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ONE)
    calls: list[str] = []
    held_keys = (world.keys.held_queues, world.keys.held(""))
    one._log.sweep()
    with world.connect().monitor() as monitor:  # type: ignore[no-untyped-call]
        for n in range(5):
            world.start(ONE, execution_id=f"x{n}")
        deliveries = one._log.read(10, 0)
        one.handle(deliveries)
        world.client.set("tests:end", 1)
        for command in monitor.listen():
            calls.append(command["command"])
            if "tests:end" in command["command"]:
                break

    assert world.client.zcard(world.keys.index("in_progress")) == 6
    assert [call for call in calls if any(key in call for key in held_keys)] == []


# ---- crashes


@pytest.fixture(scope="module")
def lines(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.socket) as proxy:
        yield proxy


NAMES = ["a0", "a1", "a2"]


def hold_and_release(world: RedisWorld, coordinator: Coordinator) -> None:
    """A full queue with starts, which then has room again."""
    turns(coordinator, 2)
    drain(world)
    turns(coordinator, 2)


def mortal_run(world: RedisWorld, lines: Proxy, number: int | None) -> tuple[list[str], int]:
    """Send starts to a coordinator that dies at its nth message; returns their entries, and the messages."""
    world.client.flushall()
    flood(world)
    entries = [world.start(ONE, execution_id=name) for name in NAMES]
    line = lines.line("mortal")
    client = connect(line.url)
    if number is not None:
        line.die_at(number)
    with suppress(Unavailable):
        hold_and_release(world, world.coordinator("mortal", client))
    client.close()
    return entries, line.commands


def held_pending(world: RedisWorld) -> int:
    """How many held starts were read and not acknowledged."""
    with suppress(ResponseError):  # no start was ever held
        return int(world.client.xpending(world.keys.held(world.keys.queue("default")), GROUP)["pending"])
    return 0


def check_all_started_once(world: RedisWorld, entries: list[str], when: str) -> None:
    assert [world.answer(entry)["ok"] for entry in entries] == [True] * len(entries), when
    assert [world.record(name).start_event for name in NAMES] == entries, when
    for name in NAMES:
        assert world.moves(world.store.full_id(name), "complete") == ["a"], when
    assert world.client.zcard(world.keys.index("complete")) == len(NAMES), when
    assert (world.pending(), world.dead(), held(world)) == ([], [], []), when
    assert held_pending(world) == 0, when
    assert not world.client.exists(world.keys.held_queues), when
    assert Verifier(world.client, world.keys).verify_all().found == [], when


def test_a_coordinator_that_dies_with_any_of_its_messages_loses_no_held_start(
    world: RedisWorld, lines: Proxy
) -> None:
    world.max_queued = 2
    entries, messages = mortal_run(world, lines, None)
    assert held(world) == ["a2"]

    for number in sample(range(1, messages + 1), 12):
        entries, _ = mortal_run(world, lines, number)
        world.killed("mortal")
        heir = world.coordinator("heir", world.connect(), reclaim_after_ms=0)
        drain(world)
        world.settle(heir)
        world.settle(heir)
        check_all_started_once(world, entries, f"cut at message {number}")


def test_held_starts_survive_a_restart_of_all_coordinators(full: RedisWorld) -> None:
    world = full
    entries = [world.start(ONE, execution_id=name) for name in NAMES]
    turns(world.coordinator("old"))
    world.killed("old")
    assert held(world) == NAMES

    drain(world)
    new = world.coordinator("new", world.connect())
    turns(new)

    assert created(world) == ["a0", "a1"]
    world.settle(new)
    check_all_started_once(world, entries, "after the restart")


def test_a_held_start_that_a_dead_coordinator_has_read_is_taken_over(full: RedisWorld) -> None:
    world, one = full, full.coordinator("dead")
    entries = [world.start(ONE, execution_id=name) for name in NAMES]
    turns(one)
    drain(world)
    one._log.sweep()
    assert [delivery.sent_as.entry_id for delivery in one._log.read(10, 0)] == entries[:2]
    world.killed("dead")

    heir = world.coordinator("heir", world.connect(), reclaim_after_ms=0)
    world.settle(heir)

    check_all_started_once(world, entries, "after the takeover")


@pytest.mark.parametrize("error", [WRONG_TYPE, NO_PERMISSION, OUT_OF_MEMORY, EXHAUSTED])
def test_an_error_at_any_command_of_the_script_loses_and_doubles_nothing(
    world: RedisWorld, error: str
) -> None:
    world.max_queued, tried, entries = 2, 0, list[str]()

    def prepare() -> None:
        flood(world)
        entries[:] = [world.start(ONE, execution_id=name) for name in NAMES]

    def act() -> None:
        with suppress(Unavailable):
            turns(world.coordinator("faulty"), 1)

    for position in failing_positions(world.client, "hold_start", error, prepare, act):
        world.killed("faulty")
        drain(world)
        healer = world.coordinator("healer", world.connect(), reclaim_after_ms=0)
        world.settle(healer)
        world.settle(healer)
        check_all_started_once(world, entries, f"command {position}: {error}")
        tried = position
    assert tried >= 4, "four commands were to fail"


def test_a_start_is_not_held_for_a_queue_that_redis_has_forgotten(full: RedisWorld) -> None:
    """No sweep would find the start again: it looks at the queues that ever had a job."""
    world, one = full, full.coordinator()
    turns(one)
    world.client.flushall()
    world.coordinator("opener")
    entry = world.start(ONE, execution_id="x")

    one.handle(one._log.read(10, 0))

    assert world.answer(entry)["ok"] is True
    assert held(world) == []


def test_a_start_that_cannot_be_held_is_created(full: RedisWorld) -> None:
    full.client.set(full.keys.held(full.keys.queue("default")), "not a stream")

    weid = full.begin(full.coordinator(), ONE)

    assert full.status(weid) == "in_progress"


def test_a_stream_of_held_starts_that_takes_no_more_entries_is_repaired(full: RedisWorld) -> None:
    world, one = full, full.coordinator()
    stream = world.keys.held(world.keys.queue("default"))
    world.start(ONE, execution_id="held")
    turns(one)
    world.send(stream, {"nonsense": "1"}, f"{2**64 - 1}-{2**64 - 1}")

    world.start(ONE, execution_id="next")
    turns(one)
    drain(world)
    world.settle(one)
    flood(world)
    world.start(ONE, execution_id="again")
    turns(one)

    assert held(world) == ["again"]
    assert (world.record("held").status, world.record("next").status) == ("complete", "complete")
    assert len(world.dead()) == 1


def test_an_entry_that_no_coordinator_wrote_is_dead_lettered(full: RedisWorld) -> None:
    world, one = full, full.coordinator()
    world.start(ONE, execution_id="x")
    turns(one)
    world.send(world.keys.held(world.keys.queue("default")), {"start_event": "?", "workflow": "w"})
    drain(world)

    world.settle(one)

    [letter] = world.dead()
    assert letter["reason"].startswith("unknown field 'start_event'")
    assert (world.record("x").status, held_count(world)) == ("complete", 0)


def held_count(world: RedisWorld) -> int:
    return int(world.client.xlen(world.keys.held(world.keys.queue("default"))))
