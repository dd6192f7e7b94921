"""StepRecord: its stored form."""

from __future__ import annotations

from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import ItemCounts, Slot, StepRecord


def test_a_step_is_read_as_it_was_stored() -> None:
    step = StepRecord(
        status=StepStatus.IN_PROGRESS,
        run_id=2,
        items=ItemCounts(3, next=1, out=1, most=2),
        slot=Slot("k", 1, "n-0", is_held=True),
    )

    assert StepRecord.from_dict(step.as_dict()) == step


def test_a_default_is_not_stored() -> None:
    assert StepRecord().as_dict() == {"status": "ready", "run_id": 0, "attempt": 1}


def test_fields_of_a_newer_version_are_stored_again() -> None:
    stored = {"status": "ready", "run_id": 1, "attempt": 1, "from_a_newer_version": {"n": 1}}

    step = StepRecord.from_dict(stored)

    assert step.unknown == {"from_a_newer_version": {"n": 1}}
    assert step.as_dict() == stored
