"""Webhooks, in memory and on Redis: the end of an execution is posted, and the post does not change it."""

from __future__ import annotations

from typing import Any

import pytest

from language.stage import Stage
from language.written import child
from orchestrator.application.values.unit_id import WEBHOOK_UNIT
from worlds.documents import Json, document, step

URL = "https://hooks.example.org/ended"
ONE = document(
    step("a"),
    outputs={"n": {"var": "steps.a.output.n"}, "api_key": "k-abc", "iban": "DE00"},
    redact=["iban"],
    webhook={"url": URL},
    name="shop",
)
DELIVERED = {"status": 200}


def ended(stage: Stage, spec: Json = ONE, **start: Any) -> None:
    """An execution that has completed, and whose webhook is dispatched."""
    stage.start(spec, execution_id="x", **start)
    stage.finish("a", {"n": 1})
    assert stage.status == "complete"


def posts(stage: Stage) -> list[tuple[str, str]]:
    """The workflow and the status of every end that was posted."""
    bodies = [job.inputs["body"] for job in stage.all_jobs if job.step_id == WEBHOOK_UNIT]
    return [(body["workflow"], body["status"]) for body in bodies]


# ---- what is posted


def test_the_end_of_an_execution_is_posted_without_secrets(stage: Stage) -> None:
    ended(stage)

    job = stage.out[WEBHOOK_UNIT]
    assert (job.fn, stage.key_of(job)) == ("webhook", "x#webhook#0")
    assert job.inputs["url"] == URL
    assert job.inputs["body"] == {
        "execution_id": "x",
        "workflow_execution_id": stage.execution,
        "workflow": "shop",
        "status": "complete",
        "outcome": {"n": 1, "api_key": "<redacted>", "iban": "<redacted>"},
        "error": None,
        "ended_at": stage.record.ended_at,
    }
    assert stage.outcome == {"n": 1, "api_key": "k-abc", "iban": "DE00"}

    stage.finish(WEBHOOK_UNIT, DELIVERED)

    assert (stage[WEBHOOK_UNIT].status, stage[WEBHOOK_UNIT].output) == ("complete", DELIVERED)
    assert (stage.moves(WEBHOOK_UNIT), stage.out) == (["in_progress", "complete"], {})


def test_a_cancelled_execution_is_posted_too(stage: Stage) -> None:
    stage.start(ONE)

    stage.control("cancel", reason="no more")

    assert posts(stage) == [("shop", "cancelled")]


def test_a_large_value_is_posted_as_its_reference(stage: Stage) -> None:
    large = {"$payload": "a1" * 32, "bytes": 5_000_000}
    stage.start(document(step("a"), outputs={"rows": {"var": "steps.a.output.rows"}}, webhook={"url": URL}))

    stage.finish("a", {"rows": large})

    assert stage.out[WEBHOOK_UNIT].inputs["body"]["outcome"] == {"rows": large}


# ---- of which execution


@pytest.mark.parametrize("form", ["url", "mapping"])
def test_the_webhook_of_a_start_comes_before_that_of_the_document(stage: Stage, form: str) -> None:
    other = "https://other.example.org"
    mapping = {"url": other, "headers": {"X-Team": "shop"}, "on": ["complete"]}

    ended(stage, webhook=other if form == "url" else mapping)

    inputs = stage.out[WEBHOOK_UNIT].inputs
    assert inputs["url"] == other
    assert inputs["headers"] == ({} if form == "url" else {"X-Team": "shop"})
    assert (stage.record.webhook or {})["url"] == other


def test_an_end_that_the_webhook_of_a_start_does_not_name_is_not_posted(stage: Stage) -> None:
    ended(stage, webhook={"url": URL, "on": ["failed"]})

    assert (stage.out, stage.record.items, posts(stage)) == ({}, {}, [])


def test_a_child_posts_its_own_end_and_its_parent_its_own(stage: Stage) -> None:
    stage.start(document(child("kid", {**ONE, "name": "kid"}), name="parent", webhook={"url": URL}))

    stage.child("kid").finish("a", {"n": 1})

    assert posts(stage) == [("kid", "complete"), ("parent", "complete")]


def test_a_child_that_ends_at_its_start_posts_its_end(stage: Stage) -> None:
    kid = {"steps": [], "webhook": {"url": URL}, "name": "kid"}

    stage.start(document(child("kid", kid), name="parent"))

    assert (posts(stage), stage.status) == ([("kid", "complete")], "complete")


def test_a_child_does_not_inherit_the_webhook_of_the_start(stage: Stage) -> None:
    stage.start(document(child("kid", document(step("a"), name="kid")), name="parent"), webhook=URL)

    stage.child("kid").finish("a", {})

    assert posts(stage) == [("parent", "complete")]


# ---- attempts


def test_a_failed_post_is_retried_later_and_later_under_the_same_key(stage: Stage) -> None:
    ended(stage)

    for _ in range(2):
        stage.fail(WEBHOOK_UNIT, "answered 500: token=abc")
        assert (stage[WEBHOOK_UNIT].status, stage.out) == ("retry", {})
        stage.pass_time("3s")
    stage.finish(WEBHOOK_UNIT, DELIVERED)

    jobs = [job for job in stage.jobs if job.step_id == WEBHOOK_UNIT]
    assert [stage.key_of(job) for job in jobs] == 3 * ["x#webhook#0"]
    assert [job.inputs for job in jobs] == 3 * [jobs[0].inputs]
    assert stage.moves(WEBHOOK_UNIT) == [*2 * ["in_progress", "retry"], "in_progress", "complete"]
    errors = [entry["error"]["message"] for entry in stage.history if "error" in entry]
    assert errors == 2 * ["answered 500: token=<redacted>"]
    assert stage.status == "complete"


def test_after_the_last_attempt_the_webhook_has_failed_and_the_execution_has_not(stage: Stage) -> None:
    ended(stage)

    for _ in range(9):
        stage.fail(WEBHOOK_UNIT, "connection refused")
        stage.pass_time("10m")

    webhook = stage[WEBHOOK_UNIT]
    assert (webhook.status, webhook.attempt, (webhook.error or {})["message"]) == (
        "failed",
        9,
        "connection refused",
    )
    assert (stage.status, stage.out) == ("complete", {})


def test_a_post_that_takes_too_long_is_retried_and_its_late_result_is_stale(stage: Stage) -> None:
    ended(stage)
    late = stage.out[WEBHOOK_UNIT]
    stage.report_started(WEBHOOK_UNIT)

    stage.pass_time("30s")

    assert (stage[WEBHOOK_UNIT].status, stage.error_kind(WEBHOOK_UNIT)) == ("retry", "timeout")
    stage.pass_time("2s")
    stage.finish(WEBHOOK_UNIT, DELIVERED, job=late)
    assert (stage[WEBHOOK_UNIT].status, stage.counter("stale")) == ("in_progress", 1)
    stage.finish(WEBHOOK_UNIT, DELIVERED)
    assert (stage[WEBHOOK_UNIT].status, stage[WEBHOOK_UNIT].attempt) == ("complete", 2)


def test_a_post_whose_worker_is_lost_is_dispatched_again_under_the_same_key(stage: Stage) -> None:
    ended(stage)

    stage.lose(WEBHOOK_UNIT)

    assert (stage[WEBHOOK_UNIT].lost, stage[WEBHOOK_UNIT].attempt) == (1, 1)
    assert stage.key_of(stage.out[WEBHOOK_UNIT]) == "x#webhook#0"
    stage.finish(WEBHOOK_UNIT, DELIVERED)
    assert (stage[WEBHOOK_UNIT].status, stage.status) == ("complete", "complete")
