"""Why an execution does not get on, with all that Redis knows: each reason is brought about for real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coreworld import document, step
from integration.families import child_of, control, decide_all, parent_of
from integration.world import Json, World
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

ONE = document(step("a"))
QUEUE = "orchestrator.default"


def asked(world: World, execution: str, step_id: str = "") -> Explanation:
    return why(world.client, world.keys, execution, step_id)


def codes(found: Explanation) -> list[str]:
    return [reason.code for reason in found.reasons]


def reason_of(found: Explanation, code: RedisReasonCode | ReasonCode) -> Reason:
    [reason] = [one for one in found.reasons if one.code == code]
    return reason


# ---- what is not shown


def test_what_names_a_secret_is_hidden_from_the_reasons(world: World) -> None:
    def refuse(inputs: Json) -> Json:
        raise ValueError("the token tok-17-5 is not valid here")

    one = world.coordinator()
    world.begin(one, ONE, inputs={"api_token": "tok-17-5"}, execution_id="x")
    world.settle(one, executors={"a": refuse})

    for step_id in ("", "a"):
        told = [reason.words for reason in asked(world, "x", step_id).reasons]
        assert told
        assert all(words.endswith("ValueError: the token <redacted> is not valid here") for words in told)


# ---- concurrency keys


LIMITED = document(step("a", concurrency={"key": "printer", "limit": 1}))


def test_who_stands_in_line_is_told_who_holds_the_key_and_who_is_before_it(world: World) -> None:
    one = world.coordinator()
    for name in ("x1", "x2", "x3"):
        world.begin(one, LIMITED, execution_id=name)
    decide_all(world, one)

    holders = reason_of(asked(world, "x3"), RedisReasonCode.HOLDERS)

    assert holders.step == "a"
    assert holders.words.startswith("the key 'printer' of step a is held by step a of x1 (for ")
    assert holders.words.endswith("; 1 stand before it in line, step a of x2 first")
    assert reason_of(asked(world, "x2"), RedisReasonCode.HOLDERS).words.endswith(
        "; 0 stand before it in line"
    )
    assert codes(asked(world, "x2"))[:2] == ["in_line", "holders"]


def test_a_whole_execution_in_line_is_told_the_same(world: World) -> None:
    one = world.coordinator()
    for name in ("x1", "x2"):
        world.begin(one, document(step("a"), concurrency={"key": "k", "limit": 1}), execution_id=name)
    decide_all(world, one)

    found = asked(world, "x2")

    assert codes(found)[:3] == ["in_line", "holders", "in_line"]
    assert reason_of(found, RedisReasonCode.HOLDERS).words.startswith(
        "the key 'k' of the execution is held by x1 ("
    )


@pytest.mark.parametrize("fate", ["gone", "final", "forgotten"])
def test_a_holder_that_gives_nothing_back_is_named(world: World, fate: str) -> None:
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

    gone = reason_of(asked(world, "x2"), RedisReasonCode.HOLDER_GONE)

    assert "is held by step a of x1, which ended or is gone" in gone.words
    assert gone.advice == "orchestrator verify --repair puts it right"


def test_a_place_that_was_given_and_not_heard_of_is_not_a_wait_for_others(world: World) -> None:
    one = world.coordinator()
    world.begin(one, LIMITED, execution_id="x1")

    found = asked(world, "x1")

    assert "place_given" in codes(found)
    decide_all(world, one)
    assert "place_given" not in codes(asked(world, "x1"))


def test_whoever_fell_out_of_the_line_or_is_not_called_is_told_to_repair(world: World) -> None:
    one = world.coordinator()
    for name in ("x1", "x2"):
        world.begin(one, LIMITED, execution_id=name)
    decide_all(world, one)

    world.client.delete(world.keys.places("printer"))
    free = reason_of(asked(world, "x2"), RedisReasonCode.SLOT_LOST)
    world.client.delete(world.keys.line("printer"))
    lost = reason_of(asked(world, "x2"), RedisReasonCode.SLOT_LOST)

    assert free.words == "0 of 1 places under 'printer' are taken, and step a gets none"
    assert lost.words == "step a does not stand in the line of 'printer', so it would wait for ever"
    assert free.advice == lost.advice == "orchestrator verify --repair puts it right"


def test_a_child_that_wants_the_key_of_its_parent_waits_for_ever_and_is_told_so(world: World) -> None:
    one = world.coordinator()
    inner = document(step("work"), concurrency={"key": "k", "limit": 1})
    world.begin(one, {**parent_of(inner), "concurrency": {"key": "k", "limit": 1}}, execution_id="p")
    decide_all(world, one)

    [child] = asked(world, "p").children

    dead = reason_of(child, RedisReasonCode.DEADLOCK)
    assert "is held by p, which waits for this execution to end: both wait for ever" in dead.words
    assert "different keys" in dead.advice


def test_a_key_that_somebody_else_holds_too_is_no_deadlock(world: World) -> None:
    one = world.coordinator()
    whole = {"concurrency": {"key": "k", "limit": 2}}
    world.begin(one, {**document(step("a")), **whole}, execution_id="other")
    world.begin(one, {**parent_of({**document(step("work")), **whole}), **whole}, execution_id="p")
    decide_all(world, one)

    [child] = asked(world, "p").children

    assert "holders" in codes(child)
    assert "deadlock" not in codes(child)


def test_what_else_stands_under_a_key_is_nobodys(world: World) -> None:
    one = world.coordinator()
    for name in ("x1", "x2"):
        world.begin(one, LIMITED, execution_id=name)
    decide_all(world, one)
    world.client.zadd(world.keys.places("printer"), {"somebody's own": 1})
    world.client.zadd(
        world.keys.places("printer"), {slot_member(1, "s", "w#broken", "a", "t"): world.now_ms()}
    )
    world.client.set(world.keys.workflow("w#broken"), "not a hash")

    gone = reason_of(asked(world, "x2"), RedisReasonCode.HOLDER_GONE)

    assert "step a of broken" in gone.words


# ---- queues and workers


def test_a_job_that_waits_is_told_its_place_and_that_nobody_listens(world: World) -> None:
    one = world.coordinator()
    for name in ("x1", "x2", "x3"):
        world.begin(one, ONE, execution_id=name)

    found = asked(world, "x3")

    assert codes(found) == ["dispatched", "queued", "no_worker"]
    assert reason_of(found, RedisReasonCode.QUEUED).words == (
        f"the job of step a waits in the queue {QUEUE}; 2 stand before it"
    )
    nobody = reason_of(found, RedisReasonCode.NO_WORKER)
    assert nobody.words == f"no worker listens to the queue {QUEUE} of step a; there is no worker at all"
    assert nobody.advice == "start one: orchestrator worker default"


def registered(world: World, name: str, *queues: str, state: str = "idle", ttl_s: int = 120) -> None:
    """A worker as RQ writes it down."""
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


def test_workers_of_other_queues_and_ones_that_are_gone_are_told_apart(world: World) -> None:
    one = world.coordinator()
    world.begin(one, ONE, execution_id="x1")
    registered(world, "dead", QUEUE)
    registered(world, "other", "orchestrator.gpu")
    with connected(world, "other"):
        nobody = reason_of(asked(world, "x1"), RedisReasonCode.NO_WORKER)

    assert nobody.words == (
        f"no worker listens to the queue {QUEUE} of step a (1 are registered, and gone);"
        " workers serve orchestrator.gpu"
    )


def test_when_all_workers_of_its_queue_are_busy_a_job_says_so(world: World) -> None:
    one = world.coordinator()
    world.begin(one, ONE, execution_id="x1")
    registered(world, "w1", QUEUE, state="busy")
    registered(world, "w2", QUEUE, state="busy")
    with connected(world, "w1", "w2"):
        busy = reason_of(asked(world, "x1"), RedisReasonCode.WORKERS_BUSY)
        world.client.hset("rq:worker:w2", "state", "idle")
        free = asked(world, "x1")

    assert busy.words == f"all 2 workers of the queue {QUEUE} of step a are busy: w1 and w2"
    assert busy.advice == "wait, or start more: orchestrator worker default"
    assert codes(free) == ["dispatched", "queued"]


@contextmanager
def connected(world: World, *names: str) -> Iterator[None]:
    """Connections as RQ's workers hold them for their whole life."""
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


def test_a_job_that_left_its_queue_and_that_nobody_began_says_when_it_counts_as_lost(world: World) -> None:
    one = world.coordinator()
    world.begin(one, ONE, execution_id="x1")
    world.client.lpop(world.keys.rq_queue(QUEUE))

    before = reason_of(asked(world, "x1"), RedisReasonCode.TAKEN)
    one.turn()
    after = reason_of(asked(world, "x1"), RedisReasonCode.TAKEN)

    assert before.words == f"the job of step a has left the queue {QUEUE}, and no worker has begun it"
    assert after.words.startswith(f"{before.words}; it counts as lost in ")


def test_a_step_that_runs_has_a_lease_that_holds_or_is_overdue_or_missing(world: World) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")
    payload = world.pop()
    assert payload is not None
    [member] = world.leases()
    world.client.zadd(world.keys.leases, {member: world.now_ms() + 35_900})
    leased = reason_of(asked(world, "x1"), RedisReasonCode.LEASED)

    world.client.zadd(world.keys.leases, {member: world.now_ms() - 60_000})
    overdue = reason_of(asked(world, "x1"), RedisReasonCode.LEASE_OVERDUE)

    world.client.zrem(world.keys.leases, member)
    missing = reason_of(asked(world, weid), RedisReasonCode.LEASE_MISSING)

    assert leased.words.startswith("a worker is at step a: its lease holds for another 3")
    assert overdue.words == "the worker of step a stopped beating: its lease ended 1 m 0 s ago"
    assert "is one running?" in overdue.advice
    assert missing.words.startswith("step a has no lease: ")
    assert missing.advice == "if that stays so, orchestrator verify --repair puts it right"


def test_only_the_first_dispatches_of_many_are_looked_for(world: World) -> None:
    one = world.coordinator()
    world.begin(one, document(*(step(f"s{n}") for n in range(30))), execution_id="x1")

    found = asked(world, "x1")

    assert codes(found).count("dispatched") == 30
    assert codes(found).count("queued") == 20
    assert codes(found).count("no_worker") == 1, "said once for each queue"


# ---- children


def test_a_child_tells_its_own_reasons_below_its_parent(world: World) -> None:
    one = world.coordinator()
    weid = world.begin(one, parent_of(document(step("work"))), execution_id="p")
    decide_all(world, one)

    found = asked(world, "p")

    [child] = found.children
    assert codes(found) == ["child"]
    assert child.execution_id == child_of(weid)
    assert codes(child) == ["dispatched", "queued", "no_worker"]


def test_a_child_that_has_not_begun_says_where_its_start_waits(world: World) -> None:
    one = world.coordinator()
    weid = world.begin(one, parent_of(document(step("work"))), execution_id="p")
    for stream in world.streams()[1:]:
        world.send(stream, {"type": "signal", "execution_id": child_of(weid)})  # no start of anybody

    waits = reason_of(asked(world, "p"), RedisReasonCode.CHILD_WAITS)
    itself = asked(world, child_of(weid))

    assert f"the child {child_of(weid)} of step kid does not exist yet: its start waits in" in waits.words
    assert codes(itself)[0] == "start_waits"


def test_a_child_whose_start_is_nowhere_says_so(world: World) -> None:
    one = world.coordinator()
    world.begin(one, parent_of(document(step("work"))), execution_id="p")
    for stream in world.streams():
        world.client.xtrim(stream, maxlen=0, approximate=False)

    waits = reason_of(asked(world, "p"), RedisReasonCode.CHILD_WAITS)

    assert waits.words.endswith("does not exist yet: nobody has begun it yet")


def test_a_child_by_a_name_that_nobody_registered_is_told_before_it_fails(world: World) -> None:
    one = world.coordinator()
    spec = document(step("a"), {"id": "kid", "workflow": "nobody", "depends_on": ["a"]})
    world.begin(one, spec, execution_id="p")

    missing = reason_of(asked(world, "p"), RedisReasonCode.CHILD_UNREGISTERED)

    assert missing.step == "kid"
    assert "the workflow 'nobody', and nobody has registered it" in missing.words
    assert missing.advice == "orchestrator register FILE --name nobody"
    assert "child_unregistered" not in codes(asked(world, "p", "a"))


def test_an_execution_that_failed_with_its_child_leads_to_the_first_failure(world: World) -> None:
    one = world.coordinator()
    world.begin(one, parent_of(document(step("work"))), execution_id="p")

    def fails(inputs: Json) -> Json:
        raise ValueError("out of paper")

    world.settle(one, executors={"work": fails})
    found = asked(world, "p")

    [child] = found.children
    assert codes(found) == codes(child) == ["failed"]
    assert "step work: ValueError: out of paper" in child.reasons[0].words


def test_generations_of_children_are_asked_up_to_a_depth(world: World) -> None:
    one = world.coordinator()
    spec = document(step("work"))
    for _ in range(MAX_CHILD_DEPTH + 2):
        spec = parent_of(spec)
    world.begin(one, spec, execution_id="p")
    decide_all(world, one)

    found, depth = asked(world, "p"), 0
    while found.children:
        [found] = found.children
        depth += 1

    assert depth == MAX_CHILD_DEPTH
    assert codes(found) == ["child"]


def test_the_chain_of_parents_ends_where_a_record_is_gone(world: World) -> None:
    one = world.coordinator()
    inner = document(step("work", concurrency={"key": "k", "limit": 1}))
    world.begin(one, document(step("a", concurrency={"key": "k", "limit": 1})), execution_id="first")
    weid = world.begin(one, parent_of(inner), execution_id="p")
    decide_all(world, one)
    world.client.delete(world.keys.workflow(weid))

    assert "holders" in codes(asked(world, child_of(weid)))


# ---- coordinators


def test_without_a_coordinator_nothing_moves_on(world: World) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")
    world.client.zadd(world.keys.coordinators, {"one": world.now_ms() - 200_000})
    world.work()

    found = asked(world, "x1")
    nobody, lag = reason_of(found, RedisReasonCode.NO_COORDINATOR), reason_of(found, RedisReasonCode.LAG)

    assert nobody.words == (
        "no coordinator has come round within 5 s; one was the last, 3 m 20 s ago: nothing moves on"
    )
    assert nobody.advice == "start one: orchestrator coordinator"
    assert lag.words.startswith(
        f"1 events of {world.keys.events_of(weid)} are unread, 0 not acknowledged"
        " (1 of the first ones for this execution); the oldest has waited for "
    )
    world.client.delete(world.keys.coordinators)
    assert reason_of(asked(world, "x1"), RedisReasonCode.NO_COORDINATOR).words == (
        "no coordinator has come round within 5 s: nothing moves on"
    )


def test_coordinators_that_are_behind_are_a_reason(world: World) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")
    old = world.now_ms() - 90_000
    world.client.delete(world.keys.events_of(weid))
    world.send(world.keys.events_of(weid), {"type": "continue", "execution": weid}, f"{old}-0")

    lag = reason_of(asked(world, "x1"), RedisReasonCode.LAG)

    assert lag.words.endswith("the oldest has waited for 1 m 30 s")


def test_events_that_somebody_holds_and_does_not_acknowledge_are_counted(world: World) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")
    world.work()
    world.log("dead").read(10, 0)
    world.killed("one")

    lag = reason_of(asked(world, "x1"), RedisReasonCode.LAG)

    assert lag.words.startswith(
        f"0 events of {world.keys.events_of(weid)} are unread, 1 not acknowledged (1 of"
    )


# ---- ids that no execution has


def test_a_start_that_waits_is_found_by_its_name_and_by_its_entry(world: World) -> None:
    entry = world.start(ONE, execution_id="x1")

    for name in ("x1", entry, "w1#x1"):
        found = asked(world, name)
        assert found.status is None
        assert not found.is_unknown
        assert codes(found)[:2] == ["start_waits", "no_coordinator"]
        assert f"its start waits in orchestrator:starts as {entry}" in found.reasons[0].words


def test_a_start_that_a_coordinator_holds_waits_too(world: World) -> None:
    world.coordinator("one")
    world.start(ONE, execution_id="x1")
    world.log("one").read(10, 0)

    assert codes(asked(world, "x1"))[0] == "start_waits"


def test_a_start_that_was_refused_says_why(world: World) -> None:
    one = world.coordinator()
    entry = world.start("nobody", execution_id="x1")
    one.turn()

    for name in ("x1", entry):
        refused = reason_of(asked(world, name), RedisReasonCode.START_REJECTED)
        assert "no workflow is registered as 'nobody'" in refused.words
        assert asked(world, name).is_unknown


def test_an_entry_leads_to_the_execution_that_it_became(world: World) -> None:
    one = world.coordinator()
    entry = world.start(ONE, execution_id="x1")
    one.turn()

    assert asked(world, entry).execution_id == "x1"


def test_a_child_that_was_refused_is_found_by_its_id(world: World) -> None:
    one = world.coordinator()
    weid = world.begin(one, parent_of("nobody"), execution_id="p")
    decide_all(world, one)

    refused = reason_of(asked(world, child_of(weid)), RedisReasonCode.START_REJECTED)

    assert "no workflow is registered as 'nobody'" in refused.words


def test_signals_that_are_kept_for_nobody_are_told(world: World) -> None:
    one = world.coordinator()
    for name in ("approve", "approve", "reject"):
        world.send(
            world.keys.events_of("x1"),
            {"type": "signal", "execution": "x1", "name": name, "payload": "null"},
        )
    decide_all(world, one)
    world.client.rpush(world.keys.signals("x1"), "not JSON")
    world.client.expire(world.keys.signals("x1"), 7_100)

    kept = reason_of(asked(world, "x1"), RedisReasonCode.SIGNALS_KEPT)

    assert kept.words.startswith("4 signals are kept for it (approve and reject), for another 1 h 58 m")
    assert kept.advice == "start it under the id x1"
    assert asked(world, "x1").is_unknown


def test_an_id_that_leads_to_a_record_that_is_gone_is_told_to_repair(world: World) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")
    world.client.delete(world.keys.workflow(weid))

    gone = reason_of(asked(world, "x1"), RedisReasonCode.RECORD_GONE)

    assert gone.words == f"orchestrator:execution:x1 leads to {weid}, and its record is gone"
    with pytest.raises(RecordNotFound):
        asked(world, weid)


def test_an_id_that_nobody_has_heard_of_is_not_found(world: World) -> None:
    world.coordinator()
    world.send(world.keys.dead, {"reason": "no JSON", "event": "{"})
    world.client.rpush(world.keys.answer("1-1"), "[]")

    for name in ("x1", "w1#x1", "1-1", "2-2"):
        with pytest.raises(RecordNotFound):
            asked(world, name)


# ---- steps


def test_a_step_that_is_asked_for_stands_alone_with_what_is_above_it(world: World) -> None:
    one = world.coordinator()
    world.begin(one, document(step("a"), step("b", after="a"), step("x")), execution_id="x1")

    found = asked(world, "x1", "b")

    assert [(one.step, one.code) for one in found.reasons[:2]] == [("b", "parents"), ("a", "dispatched")]
    assert "x" not in {one.step for one in found.reasons}


def test_a_step_that_does_not_exist_is_refused_with_the_likely_one(world: World) -> None:
    one = world.coordinator()
    world.begin(one, document(step("approve")), execution_id="x1")

    with pytest.raises(UnknownStep, match="no step 'aprove'; did you mean 'approve'"):
        asked(world, "x1", "aprove")
    with pytest.raises(UnknownStep, match=r"no step 'zzz'$"):
        asked(world, "x1", "zzz")


def test_a_paused_execution_says_since_when(world: World) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")
    control(world, "x1", "pause")
    decide_all(world, one)
    paused = asked(world, "x1").reasons[0]
    history = world.keys.history(weid)
    world.client.rpush(history, json.dumps({"at": iso(world.now_ms() - 200_500), "workflow": "paused"}))
    world.client.rpush(
        history, "not JSON", '{"at": "2026", "workflow": "in_progress"}', '{"workflow": "paused"}'
    )

    long_ago = asked(world, "x1").reasons[0]
    world.client.delete(history)
    unknown = asked(world, "x1").reasons[0]

    assert "paused for " in paused.words
    assert long_ago.words.startswith("the execution has been paused for 3 m 20 s: ")
    assert unknown.words.startswith("the execution has been paused: ")


# ---- the command


def orchestrator(world: World, *arguments: str) -> Result:
    path = world.client.connection_pool.connection_kwargs["path"]
    return CliRunner().invoke(main, [*arguments, "--redis-url", f"unix://{path}"])


def test_the_command_prints_reasons_advice_and_children(real_world: World) -> None:
    one = real_world.coordinator()
    weid = real_world.begin(one, parent_of(document(step("work"))), execution_id="p")
    decide_all(real_world, one)

    said = orchestrator(real_world, "why", "p")

    assert said.exit_code == 0, said.output
    lines = said.output.splitlines()
    assert lines[0] == "p: in progress"
    assert lines[1].startswith(f"  step kid waits for its child {child_of(weid)}, asked for ")
    assert lines[1].endswith(" ago [child]")
    assert lines[2] == f"  {child_of(weid)}: in progress"
    assert lines[-1] == "      -> start one: orchestrator worker default"


def test_the_command_prints_json(real_world: World) -> None:
    one = real_world.coordinator()
    weid = real_world.begin(one, ONE, execution_id="x1")

    said = json.loads(orchestrator(real_world, "why", "x1", "a", "--json").output)

    assert said["workflow_execution_id"] == weid
    assert said["status"] == "in_progress"
    assert said["children"] == []
    assert said["reasons"][1] == {
        "code": "queued",
        "words": f"the job of step a waits in the queue {QUEUE}; 0 stand before it",
        "step": "a",
        "until_ms": None,
        "advice": "",
    }


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_the_command_ends_with_two_for_an_id_or_a_step_that_nobody_knows(
    real_world: World, as_json: list[str]
) -> None:
    one = real_world.coordinator()
    real_world.begin(one, ONE, execution_id="x1")
    real_world.start("nobody", execution_id="refused")
    one.turn()
    real_world.start(ONE, execution_id="waits")

    ends = {
        name: orchestrator(real_world, "why", *words, *as_json).exit_code
        for name, words in {
            "unknown": ["nothing"],
            "no step": ["x1", "b"],
            "refused": ["refused"],
            "waits": ["waits"],
            "known": ["x1"],
        }.items()
    }

    assert ends == {"unknown": 2, "no step": 2, "refused": 2, "waits": 0, "known": 0}


def test_the_command_bounds_what_it_prints(real_world: World) -> None:
    one = real_world.coordinator()
    last = [step(f"z{n}", after="a") for n in range(100)]
    real_world.begin(one, document(step("a"), *last), execution_id="x1")

    lines = orchestrator(real_world, "why", "x1").output.splitlines()

    assert lines[-1] == "  and 43 more; --json shows all"
    assert len(lines) < 70


def test_an_execution_that_nothing_keeps_says_so(real_world: World) -> None:
    one = real_world.coordinator()
    weid = real_world.begin(one, ONE, execution_id="x1")
    for name in ("step:a",):
        stored = json.loads(str(real_world.client.hget(real_world.keys.workflow(weid), name)))
        stored["status"] = "complete"
        real_world.client.hset(real_world.keys.workflow(weid), name, json.dumps(stored))

    assert orchestrator(real_world, "why", "x1").output.splitlines()[1] == "  nothing keeps it"


# ---- real processes


@pytest.mark.slow
def test_a_worker_that_is_killed_is_seen_to_be_gone_at_once(redis_url: str, tmp_path: Path) -> None:
    client = connect(redis_url)
    with stack(redis_url, "step_functions", tmp_path / "logs") as processes:
        world = World(lambda: connect(redis_url))
        one = world.coordinator()
        worker = processes.worker()
        wait_until(lambda: client.scard("rq:workers") == 1, what=processes.log())
        wait_until(lambda: "no_worker" not in codes(served(world, one)), what=processes.log())
        processes.freeze(worker)
        world.begin(one, document(step("nothing")))  # what it waits for in Redis may still come to it, once
        weid = world.begin(one, document(step("nothing")), execution_id="x1")
        assert codes(asked(world, weid))[:2] == ["dispatched", "queued"]

        processes.kill_with_horse(worker)

        wait_until(lambda: "no_worker" in codes(asked(world, weid)), what=str(asked(world, weid)))
        nobody = reason_of(asked(world, weid), RedisReasonCode.NO_WORKER)
        assert "(1 are registered, and gone)" in nobody.words
        world.close()
    client.close()


def served(world: World, one: Any) -> Explanation:
    """Some execution, asked about while its job waits; by the time it is asked it may have run."""
    weid = world.begin(one, document(step("nothing")))
    return asked(world, weid)
