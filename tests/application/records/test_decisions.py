"""Final decisions: how an execution ended, and its outcome."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.records.decisions import (
    Cancelled,
    Complete,
    Failed,
    FinalDecision,
    Halt,
    make_final_decision,
    replace_outcome,
)

ERROR = {"kind": "timeout", "message": "too late"}
ENDS: dict[str, FinalDecision] = {
    "complete": Complete({"n": 1}),
    "halted": Halt({"n": 1}),
    "cancelled": Cancelled("enough", {"n": 1}),
    "failed": Failed(ERROR, {"n": 1}),
}


@pytest.mark.parametrize("status", ENDS)
def test_each_final_status_has_its_decision(status: str) -> None:
    assert make_final_decision(status, {"n": 1}, ERROR, "enough") == ENDS[status]


@pytest.mark.parametrize("status", ENDS)
def test_only_the_outcome_is_replaced(status: str) -> None:
    def add_one(outcome: Any) -> Any:
        return {"n": outcome["n"] + 1}

    assert replace_outcome(ENDS[status], add_one) == make_final_decision(status, {"n": 2}, ERROR, "enough")
    assert ENDS[status] == make_final_decision(status, {"n": 1}, ERROR, "enough"), "it is a copy"


@pytest.mark.parametrize("status", ENDS)
def test_a_decision_whose_outcome_stays_is_not_copied(status: str) -> None:
    assert replace_outcome(ENDS[status], lambda outcome: outcome) is ENDS[status]
