"""Why an execution makes no progress, with what Redis shows: the tests create each situation for real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestrator.application.errors import RecordNotFound
from orchestrator.application.explain.reasons import Reason, ReasonCode
from orchestrator.application.records.events import iso
from orchestrator.cli import main
from orchestrator.diagnosis import Explanation, UnknownStep, why
from orchestrator.diagnosis.snapshot import RedisReasonCode
from orchestrator.diagnosis.why import MAX_CHILD_DEPTH
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import slot_member
from processes import stack, wait_until
from worlds.documents import Json, document, step
from worlds.families import child_of, control, decide_all, parent_of
from worlds.redis_world import RedisWorld

ONE = document(step("a"))
QUEUE = "orchestrator.default"


def explained(world: RedisWorld, execution: str, step_id: str = "") -> Explanation:
    return why(world.client, world.keys, execution, step_id)


def codes(found: Explanation) -> list[str]:
    return [reason.code for reason in found.reasons]


def reason_of(found: Explanation, code: RedisReasonCode | ReasonCode) -> Reason:
    [reason] = [one for one in found.reasons if one.code == code]
    return reason


# ---- what is not shown


def test_secrets_are_redacted_in_the_reasons(world: RedisWorld) -> None:
    def reject(inputs: Json) -> Json:
        raise ValueError("the token tok-17-5 is not valid here")

    one = world.coordinator()
    world.begin(one, ONE, inputs={"api_token": "tok-17-5"}, execution_id="x")
    world.settle(one, executors={"a": reject})

    for step_id in ("", "a"):
        reasons = [reason.words for reason in explained(world, "x", step_id).reasons]
        assert reasons
        assert all(words.endswith("ValueError: the token <redacted> is not valid here") for words in reasons)


# ---- concurrency keys


LIMITED = document(step("a", concurrency={"key": "printer", "limit": 1}))


def test_a_waiter_sees_the_holders_of_the_key_and_the_waiters_ahead_of_it(world: RedisWorld) -> None:
    one = world.coordinator()
    for name in ("x1", "x2", "x3"):
        world.begin(one, LIMITED, execution_id=name)
    decide_all(world, one)

    holders = reason_of(explained(world, "x3"), RedisReasonCode.HOLDERS)

    assert holders.step == "a"
    assert holders.words.startswith("the key 'printer' of step a is held by step a of x1 (for ")
    assert holders.words.endswith("; waiters ahead of it: 1, first step a of x2")
    assert reason_of(explained(world, "x2"), RedisReasonCode.HOLDERS).words.endswith(
        "; waiters ahead of it: 0"
    )
    assert codes(explained(world, "x2"))[:2] == ["in_line", "holders"]


def test_an_execution_that_waits_for_a_slot_sees_the_same(world: RedisWorld) -> None:
    one = world.coordinator()
    for name in ("x1", "x2"):
        world.begin(one, document(step("a"), concurrency={"key": "k", "limit": 1}), execution_id=name)
    decide_all(world, one)

    found = explained(world, "x2")

    assert codes(found)[:3] == ["in_line", "holders", "in_line"]
    assert reason_of(found, RedisReasonCode.HOLDERS).words.startswith(
        "the key 'k' of the execution is held by x1 ("
    )


@pytest.mark.parametrize("fate", ["gone", "final", "forgotten"])
def test_a_holder_that_will_not_release_its_slot_is_named(world: RedisWorld, fate: str) -> None:
    one = world.coordinator()
    first, _ = (world.begin(one, LIMITED, execution_id=name) for name in ("x1", "x2"))
    decide_all(world, one)
    key = world.keys.workflow(first)
    match fate:
        case "gone":
            world.client.delete(key)
        case "final":
            world.client.hset(key, "status", "failed")
        case "forgotten":
            world.client.hset(key, "step:a", '{"status": "ready", "run_id": 1, "attempt": 1}')

    gone = reason_of(explained(world, "x2"), RedisReasonCode.HOLDER_GONE)

    assert "is held by step a of x1, which has ended or no longer exists" in gone.words
    assert gone.advice == "repair it: orchestrator check-consistency --repair"


def test_a_slot_that_was_granted_but_not_handled_yet_is_not_a_wait_for_others(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, LIMITED, execution_id="x1")

    found = explained(world, "x1")

    assert "place_given" in codes(found)
    decide_all(world, one)
    assert "place_given" not in codes(explained(world, "x1"))


def test_a_lost_waiter_and_a_free_slot_that_is_not_granted_need_repair(world: RedisWorld) -> None:
    one = world.coordinator()
    for name in ("x1", "x2"):
        world.begin(one, LIMITED, execution_id=name)
    decide_all(world, one)

    world.client.delete(world.keys.slot_holders("printer"))
    free = reason_of(explained(world, "x2"), RedisReasonCode.SLOT_LOST)
    world.client.delete(world.keys.slot_waiters("printer"))
    lost = reason_of(explained(world, "x2"), RedisReasonCode.SLOT_LOST)

    assert free.words == (
        "only 0 of 1 slots of 'printer' are taken, but step a, the first waiter, was not granted one"
    )
    assert lost.words == (
        "step a is not registered as a waiter of the key 'printer', so it would wait forever"
    )
    assert free.advice == lost.advice == "repair it: orchestrator check-consistency --repair"


def test_a_child_that_needs_the_key_of_its_parent_is_reported_as_a_deadlock(world: RedisWorld) -> None:
    one = world.coordinator()
    inner = document(step("work"), concurrency={"key": "k", "limit": 1})
    world.begin(one, {**parent_of(inner), "concurrency": {"key": "k", "limit": 1}}, execution_id="p")
    decide_all(world, one)

    [child] = explained(world, "p").children

    dead = reason_of(child, RedisReasonCode.DEADLOCK)
    assert "is held by p, which waits for this execution to end: this is a deadlock" in dead.words
    assert "different keys" in dead.advice


def test_a_key_that_another_execution_holds_too_is_no_deadlock(world: RedisWorld) -> None:
    one = world.coordinator()
    whole = {"concurrency": {"key": "k", "limit": 2}}
    world.begin(one, {**document(step("a")), **whole}, execution_id="other")
    world.begin(one, {**parent_of({**document(step("work")), **whole}), **whole}, execution_id="p")
    decide_all(world, one)

    [child] = explained(world, "p").children

    assert "holders" in codes(child)
    assert "deadlock" not in codes(child)


def test_foreign_members_of_a_key_are_ignored(world: RedisWorld) -> None:
    one = world.coordinator()
    for name in ("x1", "x2"):
        world.begin(one, LIMITED, execution_id=name)
    decide_all(world, one)
    world.client.zadd(world.keys.slot_holders("printer"), {"a foreign member": 1})
    world.client.zadd(
        world.keys.slot_holders("printer"), {slot_member(1, "s", "w#broken", "a", "t"): world.now_ms()}
    )
    world.client.set(world.keys.workflow("w#broken"), "not a hash")

    gone = reason_of(explained(world, "x2"), RedisReasonCode.HOLDER_GONE)

    assert "step a of broken" in gone.words


# ---- queues and workers


def test_a_queued_job_shows_its_position_and_that_no_worker_serves_its_queue(world: RedisWorld) -> None:
    one = world.coordinator()
    for name in ("x1", "x2", "x3"):
        world.begin(one, ONE, execution_id=name)

    found = explained(world, "x3")

    assert codes(found) == ["dispatched", "queued", "no_worker"]
    assert reason_of(found, RedisReasonCode.QUEUED).words == (
        f"the job of step a is in the queue {QUEUE}; jobs ahead of it: 2"
    )
    no_worker = reason_of(found, RedisReasonCode.NO_WORKER)
    assert no_worker.words == f"no worker serves the queue {QUEUE} of step a; no workers are running"
    assert no_worker.advice == "start one: orchestrator worker default"


def registered(world: RedisWorld, name: str, *queues: str, state: str = "idle", ttl_s: int = 120) -> None:
    """Register a worker as RQ does."""
    key = f"rq:worker:{name}"
    world.client.sadd("rq:workers", key)
    world.client.hset(
        key,
        mapping={
            "queues": ",".join(queues),
            "state": state,
            "hostname": "h1",
            "pid": "7",
            "version": "2.12.0",
        },
    )
    world.client.expire(key, ttl_s)


def test_workers_of_other_queues_and_workers_that_are_gone_are_told_apart(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ONE, execution_id="x1")
    registered(world, "dead", QUEUE)
    registered(world, "other", "orchestrator.gpu")
    with connected(world, "other"):
        no_worker = reason_of(explained(world, "x1"), RedisReasonCode.NO_WORKER)

    assert no_worker.words == (
        f"no worker serves the queue {QUEUE} of step a (registered but no longer running: 1);"
        " running workers serve orchestrator.gpu"
    )


def test_when_all_workers_of_its_queue_are_busy_a_job_says_so(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ONE, execution_id="x1")
    registered(world, "w1", QUEUE, state="busy")
    registered(world, "w2", QUEUE, state="busy")
    with connected(world, "w1", "w2"):
        busy = reason_of(explained(world, "x1"), RedisReasonCode.WORKERS_BUSY)
        world.client.hset("rq:worker:w2", "state", "idle")
        free = explained(world, "x1")

    assert busy.words == f"all 2 workers of the queue {QUEUE} of step a are busy: w1 and w2"
    assert busy.advice == "wait, or start more: orchestrator worker default"
    assert codes(free) == ["dispatched", "queued"]


@contextmanager
def connected(world: RedisWorld, *names: str) -> Iterator[None]:
    """Connections as RQ's workers hold them while they run."""
    channel = world.client.pubsub()  # type: ignore[no-untyped-call]
    for name in names:
        channel.subscribe(f"rq:pubsub:{name}")
    try:
        wait_until(
            lambda: all(count for _, count in world.client.pubsub_numsub(*(f"rq:pubsub:{n}" for n in names)))
        )
        yield
    finally:
        channel.close()


def test_a_job_that_left_its_queue_without_a_start_says_when_it_counts_as_lost(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ONE, execution_id="x1")
    world.client.lpop(world.keys.rq_queue(QUEUE))

    before = reason_of(explained(world, "x1"), RedisReasonCode.TAKEN)
    one.run_once()
    after = reason_of(explained(world, "x1"), RedisReasonCode.TAKEN)

    assert before.words == f"the job of step a has left the queue {QUEUE}, but no worker has started it"
    assert after.words.startswith(f"{before.words}; it counts as lost in ")


def test_a_running_step_has_a_lease_that_is_valid_or_overdue_or_missing(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")
    payload = world.pop()
    assert payload is not None
    [member] = world.leases()
    world.client.zadd(world.keys.leases, {member: world.now_ms() + 35_900})
    leased = reason_of(explained(world, "x1"), RedisReasonCode.LEASED)

    world.client.zadd(world.keys.leases, {member: world.now_ms() - 60_000})
    overdue = reason_of(explained(world, "x1"), RedisReasonCode.LEASE_OVERDUE)

    world.client.zrem(world.keys.leases, member)
    missing = reason_of(explained(world, weid), RedisReasonCode.LEASE_MISSING)

    assert leased.words.startswith("a worker is running step a: its lease is valid for another 3")
    assert overdue.words == "the worker of step a stopped sending heartbeats: its lease expired 1 m 0 s ago"
    assert "check that one is running" in overdue.advice
    assert missing.words.startswith("step a has no lease: ")
    assert missing.advice == "if this does not change, repair it: orchestrator check-consistency --repair"


def test_only_the_first_dispatches_of_many_are_looked_up(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, document(*(step(f"s{n}") for n in range(30))), execution_id="x1")

    found = explained(world, "x1")

    assert codes(found).count("dispatched") == 30
    assert codes(found).count("queued") == 20
    assert codes(found).count("no_worker") == 1, "once for each queue"


# ---- children


def test_a_child_has_its_own_reasons_below_its_parent(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, parent_of(document(step("work"))), execution_id="p")
    decide_all(world, one)

    found = explained(world, "p")

    [child] = found.children
    assert codes(found) == ["child"]
    assert child.execution_id == child_of(weid)
    assert codes(child) == ["dispatched", "queued", "no_worker"]


def test_a_child_that_has_not_begun_says_where_its_start_waits(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, parent_of(document(step("work"))), execution_id="p")
    for stream in world.streams()[1:]:
        world.send(stream, {"type": "signal", "execution_id": child_of(weid)})  # not a start

    waits = reason_of(explained(world, "p"), RedisReasonCode.CHILD_WAITS)
    itself = explained(world, child_of(weid))

    assert f"the child {child_of(weid)} of step kid does not exist yet: its start event " in waits.words
    assert codes(itself)[0] == "start_waits"


def test_a_child_whose_start_is_nowhere_says_so(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, parent_of(document(step("work"))), execution_id="p")
    for stream in world.streams():
        world.client.xtrim(stream, maxlen=0, approximate=False)

    waits = reason_of(explained(world, "p"), RedisReasonCode.CHILD_WAITS)

    assert waits.words.endswith("does not exist yet: its start event is in no stream")


def test_a_child_with_an_unregistered_name_is_reported_before_it_fails(world: RedisWorld) -> None:
    one = world.coordinator()
    spec = document(step("a"), {"id": "kid", "workflow": "missing", "depends_on": ["a"]})
    world.begin(one, spec, execution_id="p")

    missing = reason_of(explained(world, "p"), RedisReasonCode.CHILD_UNREGISTERED)

    assert missing.step == "kid"
    assert "step kid starts the workflow 'missing', which is not registered" in missing.words
    assert missing.advice == "register it: orchestrator register FILE --name missing"
    assert "child_unregistered" not in codes(explained(world, "p", "a"))


def test_an_execution_that_failed_with_its_child_leads_to_the_first_failure(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, parent_of(document(step("work"))), execution_id="p")

    def fails(inputs: Json) -> Json:
        raise ValueError("out of paper")

    world.settle(one, executors={"work": fails})
    found = explained(world, "p")

    [child] = found.children
    assert codes(found) == codes(child) == ["failed"]
    assert "step work: ValueError: out of paper" in child.reasons[0].words


def test_children_are_explained_down_to_a_depth(world: RedisWorld) -> None:
    one = world.coordinator()
    spec = document(step("work"))
    for _ in range(MAX_CHILD_DEPTH + 2):
        spec = parent_of(spec)
    world.begin(one, spec, execution_id="p")
    decide_all(world, one)

    found, depth = explained(world, "p"), 0
    while found.children:
        [found] = found.children
        depth += 1

    assert depth == MAX_CHILD_DEPTH
    assert codes(found) == ["child"]


def test_the_chain_of_parents_ends_where_a_record_is_gone(world: RedisWorld) -> None:
    one = world.coordinator()
    inner = document(step("work", concurrency={"key": "k", "limit": 1}))
    world.begin(one, document(step("a", concurrency={"key": "k", "limit": 1})), execution_id="first")
    weid = world.begin(one, parent_of(inner), execution_id="p")
    decide_all(world, one)
    world.client.delete(world.keys.workflow(weid))

    assert "holders" in codes(explained(world, child_of(weid)))


# ---- coordinators


def test_without_a_coordinator_the_last_heartbeat_and_the_lag_are_reported(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")
    world.client.zadd(world.keys.coordinators, {"one": world.now_ms() - 200_000})
    world.work()

    found = explained(world, "x1")
    missing, lag = reason_of(found, RedisReasonCode.NO_COORDINATOR), reason_of(found, RedisReasonCode.LAG)

    assert missing.words == ("no coordinator has sent a heartbeat within 5 s; the last was one, 3 m 20 s ago")
    assert missing.advice == "start one: orchestrator coordinator"
    assert lag.words.startswith(
        f"{world.keys.events_of(weid)} has 1 unread and 0 unacknowledged events"
        " (at least 1 of them for this execution); the oldest has waited for "
    )
    world.client.delete(world.keys.coordinators)
    assert reason_of(explained(world, "x1"), RedisReasonCode.NO_COORDINATOR).words == (
        "no coordinator has sent a heartbeat within 5 s"
    )


def test_coordinators_that_are_behind_are_a_reason(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")
    old = world.now_ms() - 90_000
    world.client.delete(world.keys.events_of(weid))
    world.send(world.keys.events_of(weid), {"type": "continue", "execution": weid}, f"{old}-0")

    lag = reason_of(explained(world, "x1"), RedisReasonCode.LAG)

    assert lag.words.endswith("the oldest has waited for 1 m 30 s")


def test_events_that_a_coordinator_read_but_did_not_acknowledge_are_counted(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")
    world.work()
    world.log("dead").read(10, 0)
    world.killed("one")

    lag = reason_of(explained(world, "x1"), RedisReasonCode.LAG)

    assert lag.words.startswith(
        f"{world.keys.events_of(weid)} has 0 unread and 1 unacknowledged events (at least 1 of"
    )


# ---- ids that no execution has


def test_a_start_that_waits_is_found_by_its_name_and_by_its_entry(world: RedisWorld) -> None:
    entry = world.start(ONE, execution_id="x1")

    for name in ("x1", entry, "w1#x1"):
        found = explained(world, name)
        assert found.status is None
        assert not found.is_unknown
        assert codes(found)[:2] == ["start_waits", "no_coordinator"]
        assert f"its start event {entry} has waited in orchestrator:starts for " in found.reasons[0].words


def test_a_start_that_a_coordinator_holds_waits_too(world: RedisWorld) -> None:
    world.coordinator("one")
    world.start(ONE, execution_id="x1")
    world.log("one").read(10, 0)

    assert codes(explained(world, "x1"))[0] == "start_waits"


def test_a_start_that_was_rejected_says_why(world: RedisWorld) -> None:
    one = world.coordinator()
    entry = world.start("missing", execution_id="x1")
    one.run_once()

    for name in ("x1", entry):
        rejected = reason_of(explained(world, name), RedisReasonCode.START_REJECTED)
        assert "no workflow is registered as 'missing'" in rejected.words
        assert explained(world, name).is_unknown


def test_an_entry_id_leads_to_the_execution_that_it_started(world: RedisWorld) -> None:
    one = world.coordinator()
    entry = world.start(ONE, execution_id="x1")
    one.run_once()

    assert explained(world, entry).execution_id == "x1"


def test_a_child_that_was_rejected_is_found_by_its_id(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, parent_of("missing"), execution_id="p")
    decide_all(world, one)

    rejected = reason_of(explained(world, child_of(weid)), RedisReasonCode.START_REJECTED)

    assert "no workflow is registered as 'missing'" in rejected.words


def test_signals_that_are_kept_for_a_missing_execution_are_reported(world: RedisWorld) -> None:
    one = world.coordinator()
    for name in ("approve", "approve", "reject"):
        world.send(
            world.keys.events_of("x1"),
            {"type": "signal", "execution": "x1", "name": name, "payload": "null"},
        )
    decide_all(world, one)
    world.client.rpush(world.keys.signals("x1"), "not JSON")
    world.client.expire(world.keys.signals("x1"), 7_100)

    kept = reason_of(explained(world, "x1"), RedisReasonCode.SIGNALS_KEPT)

    assert kept.words.startswith(
        "4 signals (approve and reject) are kept for its start, for another 1 h 58 m"
    )
    assert kept.advice == "start an execution with the id x1"
    assert explained(world, "x1").is_unknown


def test_an_id_that_points_to_a_missing_record_needs_repair(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")
    world.client.delete(world.keys.workflow(weid))

    gone = reason_of(explained(world, "x1"), RedisReasonCode.RECORD_GONE)

    assert gone.words == f"orchestrator:execution:x1 points to {weid}, but that record does not exist"
    with pytest.raises(RecordNotFound):
        explained(world, weid)


def test_an_unknown_id_is_not_found(world: RedisWorld) -> None:
    world.coordinator()
    world.send(world.keys.dead_letters, {"reason": "no JSON", "event": "{"})
    world.client.rpush(world.keys.reply("1-1"), "[]")

    for name in ("x1", "w1#x1", "1-1", "2-2"):
        with pytest.raises(RecordNotFound):
            explained(world, name)


# ---- steps


def test_one_step_is_explained_together_with_the_steps_it_waits_for(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, document(step("a"), step("b", after="a"), step("x")), execution_id="x1")

    found = explained(world, "x1", "b")

    assert [(one.step, one.code) for one in found.reasons[:2]] == [("b", "parents"), ("a", "dispatched")]
    assert "x" not in {one.step for one in found.reasons}


def test_an_unknown_step_is_rejected_with_a_suggestion(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, document(step("approve")), execution_id="x1")

    with pytest.raises(UnknownStep, match="no step 'aprove'; did you mean 'approve'"):
        explained(world, "x1", "aprove")
    with pytest.raises(UnknownStep, match=r"no step 'zzz'$"):
        explained(world, "x1", "zzz")


def test_a_paused_execution_says_since_when(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")
    control(world, "x1", "pause")
    decide_all(world, one)
    paused = explained(world, "x1").reasons[0]
    history = world.keys.history(weid)
    world.client.rpush(history, json.dumps({"at": iso(world.now_ms() - 200_500), "workflow": "paused"}))
    world.client.rpush(
        history, "not JSON", '{"at": "2026", "workflow": "in_progress"}', '{"workflow": "paused"}'
    )

    long_ago = explained(world, "x1").reasons[0]
    world.client.delete(history)
    unknown = explained(world, "x1").reasons[0]

    assert "paused for " in paused.words
    assert long_ago.words.startswith("the execution has been paused for 3 m 20 s: ")
    assert unknown.words.startswith("the execution has been paused: ")


# ---- the command


def orchestrator(world: RedisWorld, *arguments: str) -> Result:
    path = world.client.connection_pool.connection_kwargs["path"]
    return CliRunner().invoke(main, [*arguments, "--redis-url", f"unix://{path}"])


def test_the_command_prints_reasons_advice_and_children(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, parent_of(document(step("work"))), execution_id="p")
    decide_all(world, one)

    result = orchestrator(world, "explain", "p")

    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "p: in progress"
    assert lines[1].startswith(f"  step kid waits for its child {child_of(weid)}, requested ")
    assert lines[1].endswith(" ago [child]")
    assert lines[2] == f"  {child_of(weid)}: in progress"
    assert lines[-1] == "      -> start one: orchestrator worker default"


def test_the_command_prints_json(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")

    printed = json.loads(orchestrator(world, "explain", "x1", "a", "--json").output)

    assert printed["workflow_execution_id"] == weid
    assert printed["status"] == "in_progress"
    assert printed["children"] == []
    assert printed["reasons"][1] == {
        "code": "queued",
        "words": f"the job of step a is in the queue {QUEUE}; jobs ahead of it: 0",
        "step": "a",
        "until_ms": None,
        "advice": "",
    }


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_the_command_exits_with_2_for_an_unknown_id_or_step(world: RedisWorld, as_json: list[str]) -> None:
    one = world.coordinator()
    world.begin(one, ONE, execution_id="x1")
    world.start("missing", execution_id="rejected")
    one.run_once()
    world.start(ONE, execution_id="waits")

    ends = {
        name: orchestrator(world, "explain", *arguments, *as_json).exit_code
        for name, arguments in {
            "unknown": ["nothing"],
            "no step": ["x1", "b"],
            "rejected": ["rejected"],
            "waits": ["waits"],
            "known": ["x1"],
        }.items()
    }

    assert ends == {"unknown": 2, "no step": 2, "rejected": 2, "waits": 0, "known": 0}


def test_the_command_bounds_what_it_prints(world: RedisWorld) -> None:
    one = world.coordinator()
    last = [step(f"z{n}", after="a") for n in range(100)]
    world.begin(one, document(step("a"), *last), execution_id="x1")

    lines = orchestrator(world, "explain", "x1").output.splitlines()

    assert lines[-1] == "  and 43 more; --json shows all"
    assert len(lines) < 70


def test_an_execution_without_any_reason_says_so(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")
    for name in ("step:a",):
        stored = json.loads(str(world.client.hget(world.keys.workflow(weid), name)))
        stored["status"] = "complete"
        world.client.hset(world.keys.workflow(weid), name, json.dumps(stored))

    assert orchestrator(world, "explain", "x1").output.splitlines()[1] == "  nothing blocks it"


# ---- real processes


@pytest.mark.slow
def test_a_worker_that_is_killed_is_seen_to_be_gone_at_once(redis_url: str, tmp_path: Path) -> None:
    client = connect(redis_url)
    with stack(redis_url, "step_functions", tmp_path / "logs") as processes:
        world = RedisWorld(lambda: connect(redis_url))
        one = world.coordinator()
        worker = processes.worker()
        wait_until(lambda: client.scard("rq:workers") == 1, what=processes.log())
        wait_until(lambda: "no_worker" not in codes(explained_new(world, one)), what=processes.log())
        processes.freeze(worker)
        world.begin(one, document(step("nothing")))  # its blocking read may still take one job
        weid = world.begin(one, document(step("nothing")), execution_id="x1")
        assert codes(explained(world, weid))[:2] == ["dispatched", "queued"]

        processes.kill_with_horse(worker)

        wait_until(lambda: "no_worker" in codes(explained(world, weid)), what=str(explained(world, weid)))
        no_worker = reason_of(explained(world, weid), RedisReasonCode.NO_WORKER)
        assert "(registered but no longer running: 1)" in no_worker.words
        world.close()
    client.close()


def explained_new(world: RedisWorld, one: Any) -> Explanation:
    """The explanation of a new execution whose job waits, or has already run."""
    weid = world.begin(one, document(step("nothing")))
    return explained(world, weid)
