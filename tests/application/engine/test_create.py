"""The start of an execution: its record, and the child that a step describes."""

from __future__ import annotations

import pytest

from orchestrator.application.engine.create import UnknownWorkflow, child_spec, new_record, reject_child
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.events import Parent, StartEvent
from orchestrator.application.spec.validation import check_spec
from worlds.documents import document, step
from worlds.records import moment

PARENT = Parent(execution="w#p", step_id="c", run_id=1, attempt=2, token="n-0", root="p", depth=1)


def test_a_record_has_what_its_start_says() -> None:
    event = StartEvent(
        execution_id="x", labels={"team": "shop"}, group="g", priority=2, webhook="https://example.org"
    )

    record = new_record(check_spec(document(step("a"))), "x", {"n": 1}, event, moment())

    assert (record.execution_id, record.inputs, record.created_at) == ("x", {"n": 1}, moment().iso)
    assert (record.labels, record.group, record.priority) == ({"team": "shop"}, "g", 2)
    assert (record.webhook or {})["url"] == "https://example.org"
    assert (record.start_event, record.parent) == (moment().cause, None)


def test_a_webhook_that_is_not_valid_is_rejected() -> None:
    event = StartEvent(execution_id="x", webhook="nowhere")

    with pytest.raises(InvalidEvent, match=r"webhook\.url: must be a URL"):
        new_record(check_spec(document(step("a"))), "x", {}, event, moment())


def test_an_unknown_workflow_is_named() -> None:
    error = UnknownWorkflow("shop")

    assert (str(error), error.name) == ("no workflow is registered as 'shop'", "shop")


def test_the_child_of_a_step_is_a_document_or_a_name() -> None:
    inline = document(step("x"))
    parent = check_spec(
        document({"id": "c", "workflow": inline}, {"id": "d", "workflow": "shop"}, step("e", "c d"))
    )

    assert child_spec(parent, "c").document == inline
    assert (child_spec(parent, "d").name, child_spec(parent, "d").loaded) == ("shop", None)


def test_a_rejected_child_is_a_failure_of_the_step_that_asked_for_it() -> None:
    event = reject_child(PARENT, "no workflow is registered as 'shop'")

    assert (event.workflow_execution_id, event.step_id, event.token) == ("w#p", "c", "n-0")
    assert (event.run_id, event.attempt, event.output) == (1, 2, None)
    assert event.error == {
        "kind": "child_failed",
        "message": "the child was rejected: no workflow is registered as 'shop'",
    }
