"""Where a step and a workflow may go, pair by pair: the tables of language.md section 6 written out again."""

from __future__ import annotations

from itertools import product

import pytest

from orchestrator.application.engine.draft import Draft
from orchestrator.application.errors import IllegalTransition
from orchestrator.application.records.events import Moment
from orchestrator.application.records.status import (
    ACTIVE_STEP_STATUSES,
    FINAL_STEP_STATUSES,
    FINAL_WORKFLOW_STATUSES,
    STEP_TRANSITIONS,
    WORKFLOW_TRANSITIONS,
    StepStatus,
    WorkflowStatus,
    check_step_transition,
    check_workflow_transition,
)
from orchestrator.application.records.step_record import StepRecord
from worlds.documents import document, step
from worlds.engine_world import world_of
from worlds.records import NOW, new_record

STEP_TABLE = {
    "ready": "ready filtered skipped deferred waiting in_progress on_hold failed complete halted",
    "deferred": "ready in_progress complete waiting failed skipped halted on_hold cancelled",
    "waiting": "ready complete failed skipped halted retry on_hold cancelled",
    "in_progress": "ready complete halted retry failed skipped in_progress cancelled",
    "retry": "ready in_progress failed skipped halted retry on_hold cancelled",
    "on_hold": "ready retry deferred waiting cancelled",
    "complete": "ready",
    "failed": "ready",
    "skipped": "ready",
    "filtered": "ready",
    "cancelled": "ready",  # by a re-drive; no set reaches it, because its workflow is final
    "halted": "",
}

# "pending" may end before any claim: an empty workflow, or inputs that cannot be resolved. language.md is
# silent on a pending workflow that is paused, on a cancelled one that is re-driven, on a complete one that is
# rerun, and on one that fails or is cancelled while it is pending or paused and has something to compensate.
WORKFLOW_TABLE = {
    "pending": "in_progress paused compensating complete halted failed cancelled",
    "in_progress": "paused compensating complete halted failed cancelled",
    "paused": "in_progress compensating halted failed cancelled",
    "compensating": "failed cancelled",
    "complete": "in_progress",
    "halted": "",
    "failed": "in_progress",
    "cancelled": "in_progress",
}

STEP_PAIRS = list(product(StepStatus, StepStatus))
WORKFLOW_PAIRS = list(product(WorkflowStatus, WorkflowStatus))


def test_the_tables_name_every_status() -> None:
    assert set(STEP_TABLE) == set(StepStatus) == set(STEP_TRANSITIONS)
    assert set(WORKFLOW_TABLE) == set(WorkflowStatus) == set(WORKFLOW_TRANSITIONS)


@pytest.mark.parametrize(("before", "after"), STEP_PAIRS)
def test_a_step_moves_where_the_table_says_and_nowhere_else(before: StepStatus, after: StepStatus) -> None:
    legal = after in STEP_TABLE[before].split()

    assert (after in STEP_TRANSITIONS[before]) == legal
    if legal:
        check_step_transition("a", before, after)
    else:
        with pytest.raises(IllegalTransition, match=f"'a' must not go from {before} to {after}") as caught:
            check_step_transition("a", before, after)
        assert (caught.value.before, caught.value.after) == (before, after)


@pytest.mark.parametrize(("before", "after"), WORKFLOW_PAIRS)
def test_a_workflow_moves_where_the_table_says_and_nowhere_else(
    before: WorkflowStatus, after: WorkflowStatus
) -> None:
    legal = after in WORKFLOW_TABLE[before].split()

    assert (after in WORKFLOW_TRANSITIONS[before]) == legal
    if legal:
        check_workflow_transition(before, after)
    else:
        with pytest.raises(IllegalTransition, match=f"from {before} to {after}"):
            check_workflow_transition(before, after)


@pytest.mark.parametrize(("before", "after"), STEP_PAIRS)
def test_a_draft_refuses_every_illegal_move_of_a_step(before: StepStatus, after: StepStatus) -> None:
    record = new_record(document(step("a"), step("b", after="a")))
    record.steps["a"] = StepRecord(before)
    draft = Draft(record, Moment(0, "n"))

    if after in STEP_TABLE[before].split():
        draft.move("a", after)
        assert draft.step("a").status is after
        assert record.steps["a"].status is before
    else:
        with pytest.raises(IllegalTransition):
            draft.move("a", after)
        assert draft.changes.is_empty


@pytest.mark.parametrize(("before", "after"), WORKFLOW_PAIRS)
def test_a_draft_refuses_every_illegal_move_of_a_workflow(
    before: WorkflowStatus, after: WorkflowStatus
) -> None:
    record = new_record(document(step("a")))
    record.status = before
    draft = Draft(record, Moment(0, "n"))

    if after in WORKFLOW_TABLE[before].split():
        draft.move_workflow(after)
        assert draft.status is after
        assert record.status is before
    else:
        with pytest.raises(IllegalTransition):
            draft.move_workflow(after)
        assert draft.changes.is_empty


@pytest.mark.parametrize("status", StepStatus)
def test_a_set_resets_every_status_but_halted(status: StepStatus) -> None:
    """Cancelled, too, could be reset by the table; a set cannot meet it, because its workflow is final."""
    record = new_record(document(step("a")))
    record.steps["a"] = StepRecord(
        status, run_id=4, attempt=3, round=1, dispatches=5, lost=2, token="t", output={"n": 1}
    )
    draft = Draft(record, Moment(0, "n"))

    if status is StepStatus.HALTED:
        with pytest.raises(IllegalTransition):
            draft.reset("a")
    else:
        draft.reset("a")
        assert draft.step("a") == StepRecord(run_id=5, round=2, dispatches=5)


def test_final_and_active_statuses_are_those_of_the_language() -> None:
    assert sorted(FINAL_STEP_STATUSES) == ["cancelled", "complete", "failed", "filtered", "halted", "skipped"]
    assert sorted(ACTIVE_STEP_STATUSES) == ["deferred", "in_progress", "on_hold", "retry", "waiting"]
    assert sorted(FINAL_WORKFLOW_STATUSES) == ["cancelled", "complete", "failed", "halted"]
    assert set(StepStatus) - FINAL_STEP_STATUSES - ACTIVE_STEP_STATUSES == {StepStatus.READY}


# ---- what is stored


def test_a_step_that_never_ran_stores_its_status_and_counters_and_nothing_else() -> None:
    assert StepRecord().as_dict() == {"status": "ready", "run_id": 0, "attempt": 1}


def test_a_step_stores_what_differs_from_one_that_never_ran_and_comes_back_the_same() -> None:
    seen = StepRecord(
        StepStatus.FAILED, run_id=2, token="t", output={}, error={"kind": "lost"}, deadline_ms=0
    )

    stored = seen.as_dict()

    assert stored == {
        "status": "failed",
        "run_id": 2,
        "attempt": 1,
        "token": "t",
        "output": {},
        "error": {"kind": "lost"},
        "deadline_ms": 0,
    }
    assert StepRecord.from_dict(stored) == seen
    later = StepRecord.from_dict({**stored, "from_a_later_release": 1})
    assert later == seen.with_changes(unknown={"from_a_later_release": 1})
    assert StepRecord.from_dict({"status": "ready"}) == StepRecord()


def test_a_step_answers_to_the_names_it_had_in_runfox() -> None:
    seen = StepRecord(dispatched_at="2026-01-01T00:00:00Z", ended_at="2026-01-01T00:00:09Z", worker="host-1")

    assert seen.start_time == "2026-01-01T00:00:00Z"
    assert StepRecord(dispatched_at="0", started_at="1").start_time == "1"
    assert seen.end_time == "2026-01-01T00:00:09Z"
    assert seen.host == "host-1"


def test_a_record_has_a_step_for_each_of_its_spec_and_the_ids_of_the_seed() -> None:
    record = new_record(document(step("a"), step("b", after="a")), {"n": 1})

    assert record.steps == {"a": StepRecord(), "b": StepRecord()}
    assert record.workflow_execution_id == f"{record.workflow_id}#x1"
    assert not record.is_final


def test_the_moves_of_an_execution_are_in_its_history() -> None:
    world = world_of(document(step("a")))
    world.advance()
    world.now_ms += 2_000

    world.finish("a", {"n": 1})

    lines = [
        (line.get("step") or "workflow", line.get("to") or line.get("workflow")) for line in world.history
    ]
    assert [line for line in lines if line[1]] == [
        ("a", "in_progress"),
        ("workflow", "in_progress"),
        ("a", "complete"),
        ("workflow", "complete"),
    ]
    assert [line["state_changed"] for line in world.history if "state_changed" in line] == [["n"]]
    assert {line["cause"] for line in world.history} == {"e1", "e2"}
    assert {line["at"] for line in world.history} == {NOW, "2026-01-01T00:00:02.000Z"}
