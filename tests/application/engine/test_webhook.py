"""Webhooks: the end of an execution is posted by its own job, whose result never changes that end."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.application.engine.create import new_record
from orchestrator.application.engine.transitions import decide, fail_workflow
from orchestrator.application.engine.webhook import effective_webhook, read_webhook
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.decisions import Cancelled, Complete, Decision, Dispatch, Failed, Halt
from orchestrator.application.records.events import (
    LostEvent,
    ResultEvent,
    StartEvent,
    TimerEvent,
    make_failure,
)
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.records.timers import timers_for_step
from orchestrator.application.redaction.by_key import REDACTED
from orchestrator.application.spec.model import WEBHOOK_STEP, Limits, WebhookSpec
from orchestrator.application.spec.tag_routes import TagRoutes
from orchestrator.application.values.unit_id import WEBHOOK_UNIT
from worlds.engine_world import EngineWorld, world_of
from worlds.records import record_of
from worlds.specs import branch, child, task, undo

URL = "https://hooks.example.org/ended"


def told(*on: Any, **keys: Any) -> dict[str, Any]:
    """The webhook of a workflow, as a keyword argument."""
    return {"webhook": WebhookSpec(URL, **keys, on=on) if on else WebhookSpec(URL, **keys)}


def ended(how: str = "complete", **keys: Any) -> EngineWorld:
    """An execution that has just ended, in one of the four ways."""
    halts = (branch({"var": "stop"}, "halt", result={"why": "enough"}),)
    keys = {"outputs": {"n": {"var": "steps.a.output.n"}}, **told(), **keys}
    world = world_of(task("a", branch=halts), **keys)
    world.advance()
    match how:
        case "complete":
            world.finish("a", {"n": 1})
        case "halted":
            world.finish("a", {"stop": True})
        case "failed":
            world.fail("a", "no luck")
        case _:
            world.cancel("no more")
    return world


def body(world: EngineWorld) -> dict[str, Any]:
    found: dict[str, Any] = world.out[WEBHOOK_UNIT].inputs["body"]
    return found


def webhook(world: EngineWorld) -> StepRecord:
    return world.record.items[WEBHOOK_UNIT]


def lines(world: EngineWorld) -> list[tuple[str, int]]:
    return [(entry["to"], entry["attempt"]) for entry in world.history if entry.get("step") == WEBHOOK_UNIT]


# ---- what is told, and of which ends


def test_the_decision_that_ends_an_execution_dispatches_its_webhook() -> None:
    world = ended("complete")

    [job] = world.last.jobs
    assert (job.step_id, job.fn, job.queue, job.timeout_s, job.attempt) == (
        WEBHOOK_UNIT,
        "webhook",
        "default",
        30,
        1,
    )
    assert job.idempotency_key == "x1#webhook#0"
    assert job.inputs == {"url": URL, "headers": {}, "body": body(world)}
    assert body(world) == {
        "execution_id": "x1",
        "workflow_execution_id": "w1#x1",
        "workflow": None,
        "status": "complete",
        "outcome": {"n": 1},
        "error": None,
        "ended_at": world.record.ended_at,
    }
    assert world.record.ended_at is not None


@pytest.mark.parametrize(
    ("how", "outcome", "error"),
    [
        ("halted", {"why": "enough"}, None),
        ("failed", None, {"kind": "exception", "message": "no luck", "step": "a"}),
        ("cancelled", None, None),
    ],
)
def test_every_other_end_is_told_too(how: str, outcome: Any, error: Any) -> None:
    world = ended(how, name="shop")

    said = body(world)

    assert (said["status"], said["outcome"], said["error"], said["workflow"]) == (how, outcome, error, "shop")


@pytest.mark.parametrize("how", ["complete", "halted", "failed", "cancelled"])
def test_only_the_ends_that_are_named_are_told(how: str) -> None:
    others = [end for end in ("complete", "halted", "failed", "cancelled") if end != how]

    assert WEBHOOK_UNIT in ended(how, **told(how)).out
    assert WEBHOOK_UNIT not in ended(how, **told(*others)).out
    assert ended(how, webhook=None).record.items == {}


def test_a_webhook_waits_for_what_is_to_be_undone() -> None:
    world = world_of(task("a", **undo("un-a")), task("b", after="a"), **told())
    world.play(a={}, b=ValueError("no"))
    assert list(world.out) == ["a#undo"]

    decision = world.finish("a#undo", {})

    assert isinstance(decision, Failed)
    assert list(world.out) == [WEBHOOK_UNIT]


def test_an_execution_without_steps_is_told_where_it_begins() -> None:
    world = world_of(**told())

    assert world.advance() == Complete({})

    assert list(world.out) == [WEBHOOK_UNIT]


def test_an_execution_that_cannot_be_decided_upon_is_told_too() -> None:
    world = world_of(task("a"), **told())
    world.advance()

    world.give_up(make_failure("internal", "a defect"))

    assert list(world.out) == [WEBHOOK_UNIT]
    assert body(world)["error"] == {"kind": "internal", "message": "a defect"}


def test_a_result_alone_leaves_the_webhook_to_advance() -> None:
    world = world_of(task("a", branch=(branch(True, "halt", result=1),)), **told())
    world.advance()

    assert world.apply(world.result("a", {})) == Halt(1)
    assert (list(world.out), webhook(world).status) == ([], StepStatus.READY)

    assert world.advance() == Halt(1)
    assert list(world.out) == [WEBHOOK_UNIT]


def test_a_child_tells_what_its_own_document_says_and_not_what_that_of_its_parent_does() -> None:
    world = world_of(child("kid"), **told())

    world.advance()

    [start] = world.children
    assert start.webhook is None


def test_the_headers_are_sent_as_they_are_written() -> None:
    world = ended(**told(headers={"Authorization": "Bearer x"}))

    assert world.out[WEBHOOK_UNIT].inputs["headers"] == {"Authorization": "Bearer x"}


def test_secrets_are_not_told() -> None:
    outputs = {"user": "ada", "api_key": "k", "bank": {"iban": "DE00"}}
    world = ended(outputs=outputs, redact=("iban",))

    assert body(world)["outcome"] == {"user": "ada", "api_key": REDACTED, "bank": {"iban": REDACTED}}
    assert world.record.outcome == outputs


def test_the_details_of_an_error_are_told_without_secrets_and_without_its_traceback() -> None:
    world = world_of(task("a"), **told())
    world.advance()
    error = {"kind": "exception", "message": "no", "traceback": "line 1", "auth": {"token": "x"}}

    world.decide(replace(world.result("a"), error=error))

    assert body(world)["error"] == {
        "kind": "exception",
        "message": "no",
        "auth": {"token": REDACTED},
        "step": "a",
    }


def test_a_secret_is_hidden_wherever_its_value_stands() -> None:
    """Of an input, and of what another step has put out."""
    world = world_of(task("a"), task("b", after="a"), inputs={"password": "swordfish"}, **told())
    world.advance()
    world.finish("a", {"session_token": "s-4711"})

    world.fail("b", "swordfish and s-4711 were refused")

    assert body(world)["error"]["message"] == f"{REDACTED} and {REDACTED} were refused"


def test_what_is_too_large_to_be_carried_says_how_it_ended_and_no_more() -> None:
    world = ended(outputs={"text": "x" * 500}, limits=Limits(max_output_bytes=400))

    said = body(world)

    assert (said["status"], said["outcome"], said["error"]) == ("complete", None, None)
    assert said["is_shortened"] is True


def test_so_does_an_error_that_is_too_large() -> None:
    world = world_of(task("a"), limits=Limits(max_output_bytes=400), **told())
    world.advance()

    world.fail("a", "x" * 500)

    assert (body(world)["error"], body(world)["is_shortened"]) == ({"kind": "exception", "step": "a"}, True)


# ---- what the start says


def start_of(world_spec: WorkflowRecord, webhook: Any) -> WorkflowRecord:
    moment = EngineWorld(world_spec).moment()
    return new_record(world_spec.loaded, "x2", {}, StartEvent(webhook=webhook), moment)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (URL, WebhookSpec(URL)),
        ({"url": URL}, WebhookSpec(URL)),
        (
            {"url": URL, "headers": {"A": "b"}, "on": ["failed"]},
            WebhookSpec(URL, {"A": "b"}, ("failed",)),
        ),
        ({"url": URL, "on": [], "x-note": "nobody is told"}, WebhookSpec(URL, {}, ())),
    ],
)
def test_a_start_may_name_a_webhook_which_comes_before_that_of_the_document(
    given: Any, kept: WebhookSpec
) -> None:
    record = start_of(record_of(task("a"), webhook=WebhookSpec("https://other.example.org")), given)

    assert effective_webhook(record) == kept
    assert json.loads(json.dumps(record.webhook)) == record.webhook


def test_the_webhook_of_a_start_is_the_one_that_is_told() -> None:
    record = start_of(record_of(task("a"), webhook=WebhookSpec("https://other.example.org")), URL)
    world = EngineWorld(record)

    world.play(a={})

    assert world.out[WEBHOOK_UNIT].inputs["url"] == URL


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("example.org", "webhook.url: must be a URL that begins with http:// or https:// [bad_type]"),
        ("", "webhook.url: must be a URL that begins with http:// or https:// [bad_type]"),
        (17, "webhook: must be a URL or a mapping with a url, not the number 17"),
        ([URL], "webhook: must be a URL or a mapping with a url, not a list"),
        ({}, "webhook needs the key 'url'"),
        ({"url": URL, "on": ["compleet"]}, "did you mean 'complete'?"),
        ({"url": URL, "header": {}}, "'header' is not a key of webhook"),
        ({"url": URL, "headers": {"A": 1}}, "webhook.headers.A: must be a string, not the number 1"),
    ],
)
def test_a_webhook_that_makes_no_sense_is_refused_with_a_reason(given: Any, why: str) -> None:
    with pytest.raises(InvalidEvent) as refusal:
        read_webhook(given)

    assert why in str(refusal.value)


# ---- attempts


def test_one_that_is_delivered_is_complete_and_that_is_all() -> None:
    world = ended()
    before = essence(world)

    decision = world.finish(WEBHOOK_UNIT, {"status": 204})

    assert decision == Complete({"n": 1})
    assert (webhook(world).status, webhook(world).output) == (StepStatus.COMPLETE, {"status": 204})
    assert (essence(world), world.out, world.armed) == (before, {}, set())
    assert lines(world) == [("in_progress", 1), ("complete", 1)]


def test_one_that_fails_is_tried_again_later_and_later_under_the_same_name() -> None:
    world, waits = ended(), list[int]()

    for attempt in range(1, 9):
        assert world.out[WEBHOOK_UNIT].attempt == attempt
        assert world.fail(WEBHOOK_UNIT, f"answered {attempt}") == Complete({"n": 1})
        waits.append(world.next_due_ms or 0)
        world.pass_time(waits[-1])

    for number, wait_ms in enumerate(waits):
        assert 1000 * 2**number <= wait_ms <= 1200 * 2**number
    assert {job.idempotency_key for job in world.jobs if job.step_id == WEBHOOK_UNIT} == {"x1#webhook#0"}
    assert isinstance(world.finish(WEBHOOK_UNIT, {"status": 200}), Complete)
    assert lines(world) == [
        ("in_progress", 1),
        *(line for n in range(2, 10) for line in (("retry", n), ("in_progress", n))),
        ("complete", 9),
    ]


def test_after_the_last_attempt_it_has_failed_and_the_execution_has_not() -> None:
    world = ended()
    before = essence(world)

    for attempt in range(9):
        world.fail(WEBHOOK_UNIT, f"answered {attempt}")
        world.pass_time(world.next_due_ms or 0)

    assert webhook(world).status is StepStatus.FAILED
    assert webhook(world).error == {"kind": "exception", "message": "answered 8"}
    assert (essence(world), world.out, world.armed) == (before, {}, set())
    assert lines(world)[-1] == ("failed", 9)


def test_every_attempt_that_failed_says_why_in_the_history() -> None:
    world = ended()

    world.fail(WEBHOOK_UNIT, "hooks.example.org answered 500")

    assert world.history[-1]["error"] == {"kind": "exception", "message": "hooks.example.org answered 500"}


def test_what_a_stranger_answers_is_noted_without_secrets() -> None:
    world = ended(redact=("iban",))

    world.fail(WEBHOOK_UNIT, 'answered 400: {"token": "abc", "iban": "DE00", "n": 1}')

    shown = f'answered 400: {{"token": "{REDACTED}", "iban": "{REDACTED}", "n": 1}}'
    assert world.history[-1]["error"]["message"] == shown
    assert (webhook(world).error or {})["message"] == shown
    assert webhook(world).output is None


def test_one_that_its_worker_refuses_to_send_is_not_tried_again() -> None:
    world = ended()
    error = make_failure("exception", "this worker posts to nobody", "Refused", traceback="line 1")

    world.decide(replace(world.result(WEBHOOK_UNIT), error=error))

    assert webhook(world).status is StepStatus.FAILED
    assert webhook(world).error == {"kind": "refused", "message": "this worker posts to nobody"}
    assert world.armed == set()


def test_an_answer_that_is_no_object_is_a_failure_that_would_come_again() -> None:
    world = ended()

    world.finish(WEBHOOK_UNIT, "done")

    assert (webhook(world).status, (webhook(world).error or {})["kind"]) == (StepStatus.FAILED, "bad_output")


def test_one_whose_worker_is_lost_is_dispatched_again_as_the_same_attempt() -> None:
    world = ended()
    before = essence(world)
    old = world.out[WEBHOOK_UNIT]

    assert world.lose(WEBHOOK_UNIT) == Complete({"n": 1})

    new = world.out[WEBHOOK_UNIT]
    assert (new.attempt, new.run_id, new.idempotency_key) == (1, old.run_id + 1, old.idempotency_key)
    assert (new.inputs, essence(world)) == (old.inputs, before)


def test_one_that_loses_too_many_workers_has_had_an_attempt() -> None:
    world = ended()

    for _ in range(Limits().max_lost + 1):
        world.lose(WEBHOOK_UNIT)

    assert (webhook(world).status, webhook(world).attempt) == (StepStatus.RETRY, 2)
    assert (webhook(world).error or {})["kind"] == "lost"


def test_an_attempt_that_takes_too_long_is_tried_again() -> None:
    world = ended()
    world.decide(world.started(WEBHOOK_UNIT))
    assert (world.next_due_ms, webhook(world).worker) == (30_000, "host-1")

    world.pass_time(30_000)

    assert (webhook(world).status, (webhook(world).error or {})["kind"]) == (StepStatus.RETRY, "timeout")


def test_a_worker_that_dies_after_the_deadline_has_taken_too_long() -> None:
    world = ended()
    world.decide(world.started(WEBHOOK_UNIT))
    world.now_ms += 30_000
    world.lose(WEBHOOK_UNIT)

    assert (webhook(world).error or {})["kind"] == "timeout"


# ---- what comes twice, late, or from nowhere


def test_a_result_that_comes_twice_counts_once() -> None:
    world = ended()
    event = world.result(WEBHOOK_UNIT, {"status": 200})
    world.decide(event)

    world.decide(event)

    assert (world.counters["stale"], world.counters["late"]) == (1, 0)
    assert len(world.jobs) == 2


def test_the_end_that_comes_twice_is_told_once() -> None:
    world = ended()
    job = next(job for job in world.jobs if job.step_id == "a")

    world.decide(world.result("a", {"n": 2}, job=job))

    assert [job.step_id for job in world.jobs] == ["a", WEBHOOK_UNIT]
    assert (world.counters["late"], body(world)["outcome"]) == (1, {"n": 1})


def test_what_concerns_no_webhook_is_stale() -> None:
    world = ended(webhook=None)
    weid = world.record.workflow_execution_id

    world.decide(
        ResultEvent(weid, WEBHOOK_UNIT, {}),
        LostEvent(weid, WEBHOOK_UNIT, 0, 1, "t"),
        TimerEvent("retry", weid, WEBHOOK_UNIT, "0"),
        TimerEvent("deadline", weid, WEBHOOK_UNIT, "t"),
    )

    assert world.counters == {"stale": 4}
    assert world.record.items == {}


def test_a_guessed_result_before_the_end_dispatches_no_webhook() -> None:
    world = world_of(task("a"), **told())
    world.advance()

    world.decide(ResultEvent(world.record.workflow_execution_id, WEBHOOK_UNIT, {}))

    assert (world.counters, world.record.items) == ({"stale": 1}, {})


def test_another_process_goes_on_with_what_is_written() -> None:
    world = ended("failed")
    world.fail(WEBHOOK_UNIT)
    before = world.jobs[-1].inputs

    world.reload()
    world.pass_time(world.next_due_ms or 0)

    assert world.out[WEBHOOK_UNIT].inputs == before


# ---- an execution that runs again


def reopened(world: EngineWorld) -> EngineWorld:
    """An operator retries the execution; the coordinator has not advanced it yet."""
    world.apply(world.control("retry"))
    world.reload()
    return world


def test_an_execution_that_runs_again_cancels_its_webhook() -> None:
    world = ended("failed", max_workers=1)
    old = world.out[WEBHOOK_UNIT]

    decision = world.retry()

    assert isinstance(decision, Dispatch)
    assert (list(world.out), webhook(world).status) == (["a"], StepStatus.CANCELLED)
    assert (webhook(world).reason, len(world.last.revoked)) == ("the execution runs again", 1)
    world.decide(world.result(WEBHOOK_UNIT, {}, job=old))
    assert world.counters["stale"] == 1


def test_its_next_end_is_posted_in_the_next_round() -> None:
    world = ended("failed")
    first = world.out[WEBHOOK_UNIT]
    world.retry()

    world.finish("a", {"n": 2})

    second = world.out[WEBHOOK_UNIT]
    assert second.idempotency_key == "x1#webhook#1"
    assert second.run_id > first.run_id
    assert (body(world)["status"], body(world)["outcome"]) == ("complete", {"n": 2})


def test_a_webhook_that_waits_for_its_next_attempt_is_cancelled_with_its_timer() -> None:
    world = ended("failed")
    world.fail(WEBHOOK_UNIT)
    [timer] = world.armed

    reopened(world).advance()

    assert (world.armed, list(world.out)) == (set(), ["a"])
    world.fire(timer)
    assert world.counters["stale"] == 1


def test_a_webhook_that_was_never_dispatched_is_skipped() -> None:
    world = world_of(task("a"), **told())
    world.advance()
    world.apply(world.error("a"))

    reopened(world).advance()

    assert webhook(world).status is StepStatus.SKIPPED


def test_the_webhook_of_a_later_end_replaces_the_one_before() -> None:
    world = reopened(ended("failed"))

    world.give_up(make_failure("internal", "before it could advance"))

    assert world.out[WEBHOOK_UNIT].idempotency_key == "x1#webhook#1"
    assert body(world)["error"]["kind"] == "internal"


def test_an_end_that_the_webhook_does_not_cover_leaves_the_last_webhook_as_it_is() -> None:
    world = ended("failed", **told("failed"))
    world.finish(WEBHOOK_UNIT, {"status": 200})

    reopened(world).play(a={"n": 1})

    assert (world.out, webhook(world).round) == ({}, 0)


# ---- the law


def essence(world: EngineWorld) -> Any:
    record = world.record
    return (
        record.status,
        record.outcome,
        record.error,
        record.ended_at,
        record.state,
        record.compensated,
        {step_id: step.as_dict() for step_id, step in record.steps.items()},
    )


WHAT_HAPPENS = st.lists(
    st.sampled_from(
        ["delivered", "failed", "refused", "lost", "started", "time", "again", "cancel", "reload"]
    ),
    max_size=25,
)


@given(st.sampled_from(["complete", "halted", "failed", "cancelled"]), WHAT_HAPPENS)
def test_nothing_that_becomes_of_a_webhook_changes_how_an_execution_ended(
    how: str, happens: list[str]
) -> None:
    world = ended(how)
    before, events = essence(world), list[Any]()

    for what in happens:
        decision: Decision | None = None
        is_out = WEBHOOK_UNIT in world.out
        if what == "time":
            decision = world.pass_time(world.next_due_ms or 1)
        elif what == "again" and events:
            decision = world.decide(*events)
        elif what == "cancel" and how == "cancelled":
            decision = world.cancel("again")
        elif what == "reload":
            world.reload()
        elif is_out and what in ("delivered", "failed", "refused", "lost", "started"):
            events = [event_of(world, what)]
            decision = world.decide(*events)
        assert essence(world) == before
        assert decision is None or isinstance(decision, Complete | Halt | Failed | Cancelled)

    unit = webhook(world)
    assert unit.is_final or WEBHOOK_UNIT in world.out or list(timers_for_step(WEBHOOK_UNIT, unit)), (
        "it is not forgotten"
    )
    assert unit.round == 0
    assert unit.attempt <= 9
    delivered = [line for line in lines(world) if line[0] == "complete"]
    assert len(delivered) == (unit.status is StepStatus.COMPLETE)


def event_of(world: EngineWorld, what: str) -> Any:
    match what:
        case "delivered":
            return world.result(WEBHOOK_UNIT, {"status": 200})
        case "failed":
            return world.error(WEBHOOK_UNIT)
        case "refused":
            return replace(world.result(WEBHOOK_UNIT), error=make_failure("exception", "no", "Refused"))
        case "lost":
            return world.loss(WEBHOOK_UNIT)
    return world.started(WEBHOOK_UNIT)


# ---- where it is done


def test_a_workflow_with_a_webhook_needs_a_worker_of_the_queue_of_webhooks() -> None:
    far = task("a", queue="far")

    assert TagRoutes().queues(record_of(far).spec) == {"far"}
    assert TagRoutes().queues(record_of(far, **told()).spec) == {"far", "default"}


def test_the_webhook_has_the_attempts_that_the_pages_promise() -> None:
    retry = WEBHOOK_STEP.retry

    assert retry is not None
    assert (retry.max_retries, retry.initial_delay_ms, retry.backoff_multiplier) == (8, 1_000, 2.0)
    assert (retry.max_delay_ms, WEBHOOK_STEP.timeout_s) == (600_000, 30.0)


def test_a_workflow_that_has_ended_cannot_be_given_up_once_more() -> None:
    world = ended()

    changes = fail_workflow(world.record, make_failure("internal", "late"), world.moment())

    assert changes.is_empty
    assert not decide(world.record, [], world.moment()).changes.jobs


# ---- an execution that is deleted


def test_the_webhook_of_a_deleted_execution_is_revoked() -> None:
    out, waits = ended(), ended()
    waits.fail(WEBHOOK_UNIT, "answered 500")
    [timer] = timers_for_step(WEBHOOK_UNIT, webhook(waits))

    gone = decide(out.record, [out.control("delete")], out.moment()).changes
    assert ([unit for unit, _ in gone.revoked], gone.jobs, gone.deletes_execution) == (
        [WEBHOOK_UNIT],
        [],
        True,
    )

    due = TimerEvent("retry", out.record.workflow_execution_id, WEBHOOK_UNIT, timer.token)
    later = replace(waits.moment(), at_ms=timer.due_ms)
    gone = decide(waits.record, [due, waits.control("delete")], later).changes
    assert (gone.revoked, gone.jobs, gone.deletes_execution, gone.timers_to_arm) == ([], [], True, [])
    gone = decide(waits.record, [waits.control("delete")], waits.moment()).changes
    assert (gone.timers_to_disarm, gone.timers_to_arm) == ([timer], [])


def test_labels_are_told() -> None:
    world = world_of(task("a"), **told())
    world.record.labels = {"customer": "acme"}
    world.advance()
    world.finish("a", {})

    assert body(world)["labels"] == {"customer": "acme"}
