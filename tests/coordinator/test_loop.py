"""The coordinator on Redis: every start is answered, every step counts once, trouble stays where it is."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import orchestrator.coordinator.decider
import orchestrator.coordinator.starts
from orchestrator.application.engine.transitions import decide
from orchestrator.application.errors import StoreError, Unavailable
from orchestrator.application.records.events import StartedEvent
from orchestrator.application.spec.validation import check_spec
from orchestrator.backend.ports import Commit, Committed, Delivery
from orchestrator.coordinator.rejections import Rejections
from orchestrator.redis_rq.store import RedisStore
from servers.redis_contents import calls
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld, durable_world, result_fields, running
from worlds.waiting import wait_until

ONE = document(step("a"))
TWO = document(step("a"), step("b", after="a"))
DIAMOND = document(step("a"), step("b", "a"), step("c", "a"), step("d", "b c"))


def fan(width: int) -> Json:
    return document(step("root"), *(step(f"s{n}", after="root") for n in range(width)))


# ---- starts that are refused


def test_an_unknown_workflow_is_refused_by_its_name(world: RedisWorld) -> None:
    one = world.coordinator()
    entry = world.start("ordr")
    one.run_once()
    assert world.answer(entry) == {"ok": False, "reason": "no workflow is registered as 'ordr'"}


def test_an_invalid_spec_is_answered_with_all_its_problems(world: RedisWorld) -> None:
    one = world.coordinator()
    entry = world.start(document(step("a", after="missing"), step("a")))
    one.run_once()
    answer = world.answer(entry)
    assert answer["ok"] is False
    assert {problem["code"] for problem in answer["problems"]} == {"unknown_dependency", "duplicate_id"}
    [letter] = world.dead()
    assert "missing" in letter["reason"]


def test_inputs_that_do_not_fit_are_refused(world: RedisWorld) -> None:
    one = world.coordinator()
    spec = document(step("a"), inputs={"n": {"type": "integer", "required": True}})
    missing, wrong, right = world.start(spec), world.start(spec, {"n": "1"}), world.start(spec, {"n": 1})
    one.run_once()
    assert "'n'" in world.answer(missing)["reason"]
    assert world.answer(wrong)["problems"][0]["path"] == "inputs.n"
    assert world.answer(right)["ok"] is True


def test_a_refused_start_can_be_read_with_plain_commands(world: RedisWorld) -> None:
    one = world.coordinator()
    entry = world.send(world.keys.starts, {"workflow": "missing"})
    one.run_once()
    assert len(world.client.lrange(f"orchestrator:answer:{entry}", 0, -1)) == 1
    assert 0 < world.client.ttl(f"orchestrator:answer:{entry}") <= 3_600
    letters: Any = world.client.xrevrange("orchestrator:dead", count=1)
    assert letters[0][1]["entry"] == entry
    assert world.client.hget("orchestrator:counters", "dead") == "1"


@pytest.mark.parametrize("spec", [ONE, TWO], ids=["same spec", "other spec"])
def test_an_execution_id_is_given_once(world: RedisWorld, spec: Json) -> None:
    one = world.coordinator()
    first = world.start(ONE, execution_id="order-42")
    one.run_once()
    second = world.start(spec, execution_id="order-42")
    one.run_once()
    assert world.answer(first)["ok"] is True
    assert "already exists" in world.answer(second)["reason"]
    assert len(world.waiting()) == 1


def test_two_starts_with_one_id_in_one_batch_make_one_execution(world: RedisWorld) -> None:
    one = world.coordinator()
    entries = [world.start(ONE, execution_id="order-42") for _ in range(3)]
    one.run_once()
    assert [world.answer(entry)["ok"] for entry in entries] == [True, False, False]


def test_a_registered_workflow_is_started_by_its_name(world: RedisWorld) -> None:
    one = world.coordinator()
    world.store.register("order", check_spec(ONE))
    weid = world.begin(one, "order")
    world.settle(one)
    assert world.status(weid) == "complete"


@pytest.mark.parametrize("broken", ["no spec", "no JSON"])
def test_a_name_whose_spec_cannot_be_read_refuses_its_starts_and_nothing_else(
    world: RedisWorld, broken: str
) -> None:
    one = world.coordinator()
    world.client.hset(world.keys.definitions, "order", "0" * 32)
    if broken == "no JSON":
        world.client.hset(world.keys.spec("0" * 32), "document", "{")
    bad, good = world.start("order"), world.start(ONE)

    one.run_once()

    assert world.answer(bad)["ok"] is False
    assert world.answer(good)["ok"] is True


def test_the_same_start_makes_the_same_execution_id(world: RedisWorld) -> None:
    one = world.coordinator()
    ids = {world.begin(one, ONE) for _ in range(50)}
    assert len(ids) == 50


# ---- events that name something unknown


def test_a_result_for_an_unknown_execution_is_a_dead_letter(world: RedisWorld) -> None:
    one = world.coordinator()
    payload = {"execution": "w#missing", "step": "a", "run_id": 0, "attempt": 1, "token": "t"}
    world.send(world.keys.events_of("w#missing"), result_fields(payload))
    one.run_once()
    [letter] = world.dead()
    assert "w#missing" in letter["reason"]


def test_a_result_for_an_unknown_step_is_a_dead_letter_and_the_others_count(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE)
    payload = world.pop()
    assert payload is not None
    world.send(payload["events"], result_fields({**payload, "step": "missing"}))
    world.send(payload["events"], result_fields(payload))
    one.run_once()
    [letter] = world.dead()
    assert "'missing'" in letter["reason"]
    assert world.status(weid) == "complete"


def test_a_result_for_an_unknown_step_of_a_record_that_another_coordinator_changed(world: RedisWorld) -> None:
    one, two = world.coordinator("one"), world.coordinator("two")
    weid = world.begin(one, TWO)
    payload = world.pop()
    assert payload is not None
    world.send(payload["events"], result_fields(payload))
    two.handle(world.log("two").read(10, 0))  # one still has the record as it was
    world.send(payload["events"], result_fields({**payload, "step": "missing"}))

    one.handle(world.log("one").read(10, 0))

    assert len(world.dead()) == 1
    assert world.record(weid).steps["a"].status == "complete"


def test_results_after_the_end_are_counted_and_change_nothing(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE)
    payload = world.pop()
    assert payload is not None
    for n in range(3):
        world.send(payload["events"], result_fields(payload, {"n": n}))
        one.run_once()
    assert world.record(weid).state == {"n": 0}
    assert world.counter("late") == 2


# ---- several coordinators on one execution


def test_two_coordinators_that_alternate_lose_no_update(world: RedisWorld) -> None:
    one, two = world.coordinator("one"), world.coordinator("two")
    weid = world.begin(one, fan(20))
    turns = 0
    while world.status(weid) == "in_progress":
        payload = world.pop()
        assert payload is not None
        world.send(payload["events"], result_fields(payload, {payload["step"]: turns}))
        coordinator = (one, two)[turns % 2]
        coordinator.handle(world.log(f"c{turns % 2}").read(10, 0))
        turns += 1
    record = world.record(weid)
    assert len(record.state) == 21
    assert sorted(world.moves(weid, "complete")) == sorted(record.steps)
    assert world.pending() == []
    assert world.counter("conflicts") == turns - 2, (
        "each found it changed by the other, but for the first time"
    )


def test_one_coordinator_alone_meets_no_conflict(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, DIAMOND)
    world.settle(one)

    assert world.counter("conflicts") == 0


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=40, max_size=40))
def test_every_event_handled_by_several_and_again_takes_each_step_once(
    world: RedisWorld, order: list[tuple[int, bool]]
) -> None:
    """Each event goes to some coordinator, perhaps to another one too, and each has its own cache."""
    world.client.flushall()
    coordinators = [world.coordinator(f"c{n}") for n in range(3)]
    weid = world.begin(coordinators[0], DIAMOND)
    held: list[Delivery] = []
    log = world.log("c0")
    for position, again in order:
        world.work(most=1)
        held += log.read(1, 0)
        coordinators[position].handle(held)
        held = held if again else []
    held += world.log("c0").read(100, 0)
    coordinators[0].handle(held)
    for batch in world.log("c0").read_unfinished(100):
        coordinators[0].handle(batch)

    assert world.status(weid) == "complete"
    assert sorted(world.moves(weid, "complete")) == ["a", "b", "c", "d"]
    assert sorted(world.moves(weid, "in_progress")) == ["a", "b", "c", "d"]


def test_a_start_that_two_coordinators_hold_is_answered_once(world: RedisWorld) -> None:
    """The first was stopped for longer than the others wait, and then goes on."""
    slow, quick = world.coordinator("slow"), world.coordinator("quick")
    entry = world.start(ONE, execution_id="order-42")
    held = world.log("slow").read(10, 0)
    world.age_pending(5_000, reader="slow")
    quick.run_once()
    assert world.answer(entry)["ok"] is True

    slow.handle(held)

    assert world.answer(entry)["ok"] is True
    assert world.dead() == []


def test_a_start_that_meets_a_record_without_its_id_leaves_the_record_alone(world: RedisWorld) -> None:
    """An operator deleted orchestrator:execution:<id> by hand to use the id again."""
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="order-42")
    world.client.delete(world.keys.execution("order-42"))

    entry = world.start(ONE, execution_id="order-42")
    one.run_once()

    assert world.status(weid) == "in_progress"
    assert world.answer(entry)["ok"] is False


# ---- trouble that stays where it is


def deciding(fails: Callable[[str], bool]) -> Callable[..., Any]:
    def decide_or_fail(record: Any, *args: Any) -> Any:
        if fails(record.execution_id):
            raise RuntimeError("a defect")
        return decide(record, *args)

    return decide_or_fail


def test_a_defect_in_a_decision_fails_that_workflow_only(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = world.coordinator()
    bad, good = world.begin(one, ONE, execution_id="bad"), world.begin(one, ONE, execution_id="good")
    monkeypatch.setattr(orchestrator.coordinator.decider, "decide", deciding(lambda name: name == "bad"))

    world.settle(one)

    assert world.status(good) == "complete"
    error = world.record(bad).error
    assert error is not None
    assert (error["kind"], "RuntimeError: a defect" in error["message"]) == ("internal", True)
    assert world.pending() == []


def test_a_record_that_cannot_even_be_failed_harms_no_other_execution(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_nothing(*args: Any) -> Any:
        raise RuntimeError("another defect")

    one = world.coordinator()
    bad, good = world.begin(one, ONE, execution_id="bad"), world.begin(one, ONE, execution_id="good")
    monkeypatch.setattr(orchestrator.coordinator.decider, "decide", deciding(lambda name: name == "bad"))
    monkeypatch.setattr(orchestrator.coordinator.decider, "fail_workflow", fail_nothing)

    world.settle(one)

    assert (world.status(good), world.status(bad)) == ("complete", "in_progress")
    [letter] = world.dead()
    assert "RuntimeError: a defect" in letter["reason"]
    assert world.pending() == []


def test_a_defect_in_the_decision_upon_a_start_fails_that_start_only(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = world.coordinator()
    monkeypatch.setattr(orchestrator.coordinator.starts, "decide", deciding(lambda name: name == "bad"))
    bad, good = world.start(ONE, execution_id="bad"), world.start(ONE, execution_id="good")

    one.run_once()

    assert world.answer(good)["ok"] is True
    assert world.answer(bad)["ok"] is False


def committing(fails: Callable[[Commit], bool]) -> Callable[..., Any]:
    """As RedisStore.commit(), but with a decision that cannot be written."""
    commit = RedisStore.commit

    def commit_or_fail(store: RedisStore, commits: Sequence[Commit]) -> list[Committed]:
        if any(map(fails, commits)):
            raise RuntimeError("a defect")
        return commit(store, commits)

    return commit_or_fail


def test_a_decision_that_cannot_be_written_fails_that_workflow_only(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = world.coordinator()
    bad, good = world.begin(one, ONE, execution_id="bad"), world.begin(one, ONE, execution_id="good")
    is_bad = committing(lambda commit: commit.record.execution_id == "bad" and len(commit.events) > 0)
    monkeypatch.setattr(RedisStore, "commit", is_bad)

    world.settle(one)

    assert world.status(good) == "complete"
    error = world.record(bad).error
    assert error is not None
    assert (error["kind"], "RuntimeError: a defect" in error["message"]) == ("internal", True)
    [letter] = world.dead()
    assert "RuntimeError: a defect" in letter["reason"]
    assert (world.pending(), world.leases()) == ([], {})


def test_a_start_that_cannot_be_written_is_refused_and_nothing_else(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = world.coordinator()
    is_bad = committing(lambda commit: commit.record.execution_id == "bad")
    monkeypatch.setattr(RedisStore, "commit", is_bad)
    bad, good = world.start(ONE, execution_id="bad"), world.start(ONE, execution_id="good")

    one.run_once()

    assert world.answer(good)["ok"] is True
    assert "RuntimeError: a defect" in world.answer(bad)["reason"]
    assert world.pending() == []


def test_a_written_commit_is_not_sent_again_when_the_result_of_another_causes_an_error(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis may have gone back meanwhile: sent again, it would be dispatched under the same token."""
    commit, sent = RedisStore.commit, list[int]()

    def noted(store: RedisStore, commits: Sequence[Commit]) -> list[Committed]:
        sent.append(len(commits))
        return commit(store, commits)

    def torn(*_: Any) -> NoReturn:
        raise StoreError("the spec is gone from Redis")

    one = world.coordinator()
    first, second = (world.start(ONE, execution_id="x", conflict_policy="use_existing") for _ in range(2))
    monkeypatch.setattr(RedisStore, "commit", noted)
    monkeypatch.setattr(orchestrator.coordinator.starts, "resolve_conflict", torn)
    one.run_once()

    assert sent == [2]
    assert world.answer(first)["ok"] is True
    assert "gone from Redis" in world.answer(second)["reason"]
    assert len(world.waiting()) == 1


def test_a_refusal_that_cannot_be_written_harms_nothing_that_was(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> NoReturn:
        raise StoreError("no")

    one = world.coordinator()
    weid = world.begin(one, ONE)
    [payload] = world.payloads()
    world.send(world.keys.events_of(weid), {**result_fields(payload), "step": "missing"})
    monkeypatch.setattr(Rejections, "reply_or_reject", refuse)
    one.run_once()

    assert world.status(weid) == "in_progress"
    assert len(world.pending()) == 1, "it comes again"


def test_an_execution_that_cannot_even_be_failed_does_not_end_the_coordinator(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = world.coordinator()
    world.begin(one, ONE, execution_id="bad")
    good = world.begin(one, ONE, execution_id="good")
    is_bad = committing(lambda commit: commit.record.execution_id == "bad")
    monkeypatch.setattr(RedisStore, "commit", is_bad)

    world.settle(one)

    assert world.status(good) == "complete"
    assert len(world.pending()) == 1, "the event of the other stays, until it can be written"
    assert world.dead() == []


def test_a_history_of_another_type_does_not_end_the_coordinator(world: RedisWorld) -> None:
    one = world.coordinator()
    bad, good = world.begin(one, ONE), world.begin(one, ONE)
    world.client.delete(world.keys.history(bad))
    world.client.set(world.keys.history(bad), "a string")

    world.settle(one)

    assert world.status(good) == "complete"
    assert world.moves(good, "complete") == ["a"], "written once, though the other was not"
    assert len(world.pending()) == 1, "the event of the other stays, until it can be written"


UNREADABLE: dict[str, dict[str, str | None]] = {
    "a step that is no JSON": {"step:a": "{"},
    "a step of an unknown status": {"step:a": '{"status": "exploded"}'},
    "a step without a status": {"step:a": "{}"},
    "a step that is a list": {"step:a": "[]"},
    "no inputs": {"inputs": None},
    "no version": {"version": None},
    "no workflow_id": {"workflow_id": None},
    "an unknown status": {"status": "exploded"},
    "a spec that is gone": {"workflow_id": "0" * 32},
    "a state that is no JSON": {"state:x": "nope"},
}


@pytest.mark.parametrize("changes", UNREADABLE.values(), ids=UNREADABLE)
def test_a_record_that_cannot_be_read_stops_no_other_execution(
    world: RedisWorld, changes: dict[str, str | None]
) -> None:
    one = world.coordinator()
    bad, good = world.begin(one, ONE), world.begin(one, ONE)
    key = world.keys.workflow(bad)
    for name, value in changes.items():
        world.client.hdel(key, name) if value is None else world.client.hset(key, name, value)
    world.work()
    world.killed("one")

    world.settle(world.coordinator("fresh"))

    assert world.status(good) == "complete"
    [letter] = world.dead()
    assert bad in letter["reason"]


@pytest.mark.parametrize("broken", ["nested too deep", "of another type"])
def test_a_record_that_breaks_its_reader_stops_no_other_execution(world: RedisWorld, broken: str) -> None:
    one = world.coordinator()
    bad, good = world.begin(one, ONE), world.begin(one, ONE)
    world.work()
    if broken == "of another type":
        world.client.delete(world.keys.workflow(bad))
        world.client.set(world.keys.workflow(bad), "a string")
    else:
        world.client.hset(world.keys.workflow(bad), "state:x", "[" * 100_000)
    world.killed("one")

    world.settle(world.coordinator("fresh"))

    assert world.status(good) == "complete"
    assert len(world.dead()) == 1


def test_a_spec_that_was_changed_in_redis_makes_the_record_unreadable_with_a_reason(
    world: RedisWorld,
) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE)
    world.client.hset(world.keys.spec(weid.partition("#")[0]), "document", json.dumps(TWO))
    world.work()
    world.killed("one")

    world.settle(world.coordinator("fresh"))

    [letter] = world.dead()
    assert weid in letter["reason"]
    assert f"is {check_spec(TWO).workflow_id!r}" in letter["reason"], "which document stands there instead"


# ---- fan-outs larger than a commit


def test_a_large_fan_out_goes_on_by_itself(world: RedisWorld) -> None:
    one = world.coordinator(jobs_per_commit=10)
    weid = world.begin(one, fan(35))
    world.work()
    one.run_once()
    assert len(world.waiting()) == 10

    world.settle(one)

    assert world.status(weid) == "complete"
    assert sorted(world.moves(weid, "in_progress")) == sorted(world.record(weid).steps)


def test_a_large_fan_out_goes_on_when_its_coordinator_dies_between(world: RedisWorld) -> None:
    one = world.coordinator("one", jobs_per_commit=10)
    weid = world.begin(one, fan(35))
    world.work()
    one.run_once()
    world.killed("one")

    world.settle(world.coordinator("two", jobs_per_commit=10))

    assert world.status(weid) == "complete"
    assert sorted(world.moves(weid, "in_progress")) == sorted(world.record(weid).steps)


def test_a_lost_step_behind_a_full_commit_is_dispatched_by_the_next_coordinator(world: RedisWorld) -> None:
    """The commit has room for ten jobs, which the children of root take; the lost step comes after them."""
    one = world.coordinator("one", jobs_per_commit=10)
    children = [step(f"s{n}", after="root") for n in range(10)]
    weid = world.begin(one, document(*children, step("root"), step("slow")))
    jobs = {payload["step"]: payload for payload in iter(world.pop, None)}
    world.send(jobs["root"]["events"], result_fields(jobs["root"]))
    lost = {**result_fields(jobs["slow"]), "type": "lost", "reason": "killed"}
    world.send(jobs["slow"]["events"], lost)
    one.run_once()
    world.killed("one")

    world.settle(world.coordinator("two", jobs_per_commit=10))

    assert world.status(weid) == "complete"


# ---- time


def test_a_step_that_exceeds_its_time_fails_as_a_timeout(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a", timeout="5s")))
    payload = world.pop()
    assert payload is not None
    world.send_event(
        StartedEvent(weid, "a", payload["run_id"], payload["attempt"], payload["token"], "host:1", None)
    )
    one.run_once()
    [(member, due)] = world.timers().items()
    assert member == f"deadline|{weid}|a|{payload['token']}"

    # The record remembers its own deadline, so both must have passed.
    raw = json.loads(str(world.client.hget(world.keys.workflow(weid), "step:a")))
    assert raw["deadline_ms"] == due
    world.client.hset(world.keys.workflow(weid), "step:a", json.dumps({**raw, "deadline_ms": due - 6_000}))
    world.age_timers(6_000)
    world.killed("one")
    world.settle(world.coordinator("two"))

    error = world.record(weid).error
    assert error is not None
    assert (error["kind"], error["step"]) == ("timeout", "a")
    assert (world.leases(), world.timers()) == ({}, {})


def test_a_deadline_that_comes_early_is_set_again(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a", timeout="5s")))
    payload = world.pop()
    assert payload is not None
    world.send_event(StartedEvent(weid, "a", 0, 1, payload["token"]))
    one.run_once()
    before = world.timers()
    world.age_timers(60_000)

    one.run_once()
    one.run_once()

    assert world.timers() == before
    assert world.status(weid) == "in_progress"


def test_a_settled_step_takes_its_deadline_with_it(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, TWO)
    payload = world.pop()
    assert payload is not None
    world.send_event(StartedEvent(weid, "a", 0, 1, payload["token"]))
    one.run_once()
    assert len(world.timers()) == 1
    world.send(payload["events"], result_fields(payload))
    one.run_once()
    assert world.timers() == {}


def test_a_step_is_dispatched_again_when_its_worker_is_lost_and_fails_when_too_many_are(
    world: RedisWorld,
) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a"), limits={"max_lost": 2}))
    tokens = []
    for _ in range(3):
        payload = world.pop()
        assert payload is not None
        tokens.append(payload["token"])
        [member] = world.leases()
        world.client.zadd(world.keys.leases, {member: 1})  # started, and not beaten for long
        one.run_once()
        one.run_once()
    record = world.record(weid)
    assert len(set(tokens)) == 3
    assert record.error is not None
    assert (record.status, record.error["kind"]) == ("failed", "lost")
    assert world.counter("lost") == 3
    assert world.waiting() == []


def test_a_result_of_a_lost_worker_that_comes_after_all_is_stale(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE)
    payload = world.pop()
    assert payload is not None
    [member] = world.leases()
    world.client.zadd(world.keys.leases, {member: 1})
    one.run_once()
    one.run_once()
    world.send(payload["events"], result_fields(payload, {"from": "the lost one"}))
    one.run_once()
    world.settle(one, executors={"a": lambda _: {"from": "the second"}})
    assert world.record(weid).state == {"from": "the second"}
    assert world.counter("stale") == 1


# ---- Redis away, coordinators that come and go


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_coordinator_outlives_its_redis(tmp_path: Path, how: str) -> None:
    with durable_world(tmp_path) as (world, server):
        one = world.coordinator("one", world.connect(), block_ms=100, sweep_every_s=0.1)
        with running(one):
            weids = [world.start(TWO, execution_id=f"x{n}") for n in range(5)]
            wait_until(lambda: len(world.waiting()) == 5)
            world.work(most=2)
            getattr(server, how)()
            server.start()
            wait_until(lambda: world.work() or all_complete(world, 5))
            wait_until(lambda: world.work() == 0 and all_complete(world, 5))
        assert len(weids) == 5
        assert world.pending() == []
        assert world.counter("dead") == 0


def all_complete(world: RedisWorld, count: int) -> bool:
    return world.client.zcard(world.keys.index("complete")) == count


def test_redis_away_in_the_middle_of_a_turn_loses_nothing(tmp_path: Path) -> None:
    with durable_world(tmp_path) as (world, server):
        one = world.coordinator("one")
        entries = [world.start(ONE) for _ in range(5)]
        deliveries = world.log("one").read(10, 0)
        server.kill()
        with pytest.raises(Unavailable):
            one.handle(deliveries)
        server.start()

        one.resume_unfinished()

        assert [world.answer(entry)["ok"] for entry in entries] == [True] * 5
        assert len(world.waiting()) == 5


def test_a_coordinator_that_is_told_to_stop_leaves_nothing_half_done(world: RedisWorld) -> None:
    one = world.coordinator("one", world.connect(), block_ms=100)
    with running(one) as stop:
        for n in range(50):
            world.start(TWO, execution_id=f"x{n}")
        wait_until(world.waiting)
        stop.set()
    assert world.pending() == []
    assert world.client.zrange(world.keys.coordinators, 0, -1) == []

    world.settle(world.coordinator("two"))

    assert all_complete(world, 50)


def test_two_coordinators_in_their_loops_serve_everything_once(world: RedisWorld) -> None:
    first = world.coordinator("one", world.connect(), block_ms=50, sweep_every_s=0.1)
    second = world.coordinator("two", world.connect(), block_ms=50, sweep_every_s=0.1)
    with running(first), running(second):
        for n in range(20):
            world.start(DIAMOND, execution_id=f"x{n}")
        wait_until(lambda: world.work() == 0 and all_complete(world, 20))
    for n in range(20):
        assert sorted(world.moves(f"x{n}", "complete")) == ["a", "b", "c", "d"]
    assert world.pending() == []


# ---- what it costs


def calls_per_step(world: RedisWorld, spec: Json, count: int) -> tuple[float, str]:
    """Redis calls of the coordinator and the harness, those inside scripts too, for each step of a batch.

    With one sweep, after all of it: it looks once at every job that has left its queue, and a figure must
    not depend on how long the test takes.
    """
    one = world.coordinator(sweep_every_s=math.inf, reclaim_every_s=math.inf, trim_every_s=math.inf)
    world.begin(one, ONE)
    world.settle(one)
    log = world.log()
    log.sweep()
    world.client.config_resetstat()
    for _ in range(count):
        world.start(spec)
    world.settle(one)
    log.sweep()
    made = calls(world.client)
    assert all_complete(world, count + 1)
    steps = count * len(spec["steps"])
    for name in ("lpop", "hkeys", "info", "config", "config|resetstat"):
        made.pop(name, None)
    made["hget"] -= steps  # this and the deletion are how the worker of this test takes a job
    made["del"] -= steps
    figure = sum(made.values()) / steps
    return figure, f"{figure:.1f} Redis calls for each step, of which we want 15 at most: {made}"


@pytest.mark.parametrize(
    ("spec", "count", "most"), [(DIAMOND, 25, 19.3), (fan(99), 1, 5.7)], ids=["diamond", "fan"]
)
def test_what_a_step_costs_in_redis_calls(world: RedisWorld, spec: Json, count: int, most: float) -> None:
    figure, said = calls_per_step(world, spec, count)
    assert figure <= most, said
