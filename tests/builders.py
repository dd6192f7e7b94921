"""Specs, records and results in one line each, so that a test names only its subject.

DIAMOND = spec(a={}, b={"depends_on": ["a"]}, c={"depends_on": ["a"]}, d={"depends_on": ["b", "c"]})
before = record(DIAMOND, a=COMPLETE, b=IN_PROGRESS)
changes, outcome = on_step_result(before, result("b", {"n": 1}), moment())
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.application.records.events import Moment, ResultEvent, iso
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import check_spec

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
NOW = iso(NOW_MS)


def document(steps: Mapping[str, Mapping[str, Any]], **keys: Any) -> dict[str, Any]:
    """A document as a user writes it; a step's fn is its id unless it says otherwise."""
    return {"steps": [{"id": step_id, "fn": step_id, **step} for step_id, step in steps.items()], **keys}


def spec(keys: Mapping[str, Any] | None = None, /, **steps: Mapping[str, Any]) -> LoadedSpec:
    """A checked spec of these steps; `keys` are those of the document, such as outputs."""
    return check_spec(document(steps, **(keys or {})))


def record(
    loaded: LoadedSpec | None = None,
    /,
    *,
    _execution_id: str = "e1",
    _inputs: Mapping[str, Any] | None = None,
    _state: Mapping[str, Any] | None = None,
    **steps: StepStatus | StepRecord,
) -> WorkflowRecord:
    """An execution with its steps in these states; the others are ready. Without a spec, of one step `a`."""
    return WorkflowRecord(
        loaded=loaded or spec(a={}),
        execution_id=_execution_id,
        inputs=dict(_inputs or {}),
        created_at=NOW,
        state=dict(_state or {}),
        steps={step_id: _step(step_id, step) for step_id, step in steps.items()},
    )


def result(step_id: str = "a", output: Any = None, **keys: Any) -> ResultEvent:
    """What a step brought back; without a token it is fenced by the step's status alone."""
    return ResultEvent(keys.pop("workflow_execution_id", ""), step_id, output, **keys)


def moment(at_ms: int = NOW_MS, nonce: str = "n1", cause: str = "test") -> Moment:
    return Moment(at_ms, nonce, cause)


def _step(step_id: str, given: StepStatus | StepRecord) -> StepRecord:
    if isinstance(given, StepRecord):
        return given
    if given is StepStatus.IN_PROGRESS:
        return StepRecord(given, token=f"token-{step_id}", dispatches=1, dispatched_at=NOW)
    return StepRecord(given)
