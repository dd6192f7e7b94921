"""Specs, records and events in one line each, so that a test names only its subject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.application.records.changes import Changes
from orchestrator.application.records.events import Moment, ResultEvent, iso
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import check_spec
from orchestrator.backend.ports import Commit, Committed, Store

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
NOW = iso(NOW_MS)


def spec(keys: Mapping[str, Any] | None = None, /, **steps: Mapping[str, Any]) -> LoadedSpec:
    """A checked spec of these steps; `keys` are those of the document, such as outputs."""
    written = [{"id": step_id, "fn": step_id, **step} for step_id, step in steps.items()]
    return check_spec({"steps": written, **(keys or {})})


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
    """The result of a step. Without a token it is fenced by the status of the step alone."""
    return ResultEvent(keys.pop("workflow_execution_id", ""), step_id, output, **keys)


def moment(at_ms: int = NOW_MS, nonce: str = "n1", cause: str = "test") -> Moment:
    return Moment(at_ms, nonce, cause)


def created(store: Store, new: WorkflowRecord, **changes: Any) -> WorkflowRecord:
    """Create an execution with these changes."""
    first = Changes(**changes)
    assert store.commit([Commit(new, first, creates=True)]) == [Committed.YES]
    new.apply(first)
    return new


def facts(one: WorkflowRecord) -> dict[str, Any]:
    """What a store must keep of a record."""
    names = (
        "execution_id",
        "inputs",
        "created_at",
        "status",
        "state",
        "steps",
        "outcome",
        "error",
        "ended_at",
    )
    return {name: getattr(one, name) for name in (*names, "workflow_id", "start_event", "readiness")}


def _step(step_id: str, given: StepStatus | StepRecord) -> StepRecord:
    if isinstance(given, StepRecord):
        return given
    if given is StepStatus.IN_PROGRESS:
        return StepRecord(given, token=f"token-{step_id}", dispatches=1, dispatched_at=NOW)
    return StepRecord(given)
