"""Records and events in one line each, so that a test names only its subject; and ways to compare records.

DIAMOND = spec(a={}, b={"depends_on": ["a"]}, c={"depends_on": ["a"]}, d={"depends_on": ["b", "c"]})
before = record(DIAMOND, a=COMPLETE, b=IN_PROGRESS)
changes, outcome = on_step_result(before, result("b", {"n": 1}), moment())
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import asdict, fields, replace
from typing import Any

from orchestrator.application.records.events import Moment, ResultEvent, iso
from orchestrator.application.records.record import WorkflowRecord, read_parts
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.model import LoadedSpec, StepSpec
from orchestrator.application.spec.validation import check_spec
from worlds.documents import Json, document_of
from worlds.specs import nameless

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
NOW = iso(NOW_MS)


def spec(keys: Mapping[str, Any] | None = None, /, **steps: Mapping[str, Any]) -> LoadedSpec:
    """A checked spec of these steps; `keys` are those of the document, such as outputs."""
    return check_spec(document_of(steps, **(keys or {})))


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


def record_of(*steps: StepSpec, inputs: Json | None = None, **workflow: Any) -> WorkflowRecord:
    """A new execution of these steps, as StepSpec objects."""
    return WorkflowRecord(nameless(*steps, **workflow), "x1", dict(inputs or {}), created_at=NOW)


def new_record(document: Json, inputs: Json | None = None) -> WorkflowRecord:
    """A new execution of a document."""
    return WorkflowRecord(check_spec(document), "x1", dict(inputs or {}), created_at=NOW)


def result(step_id: str = "a", output: Any = None, **keys: Any) -> ResultEvent:
    """The result of a step. Without a token it is fenced by the status of the step alone."""
    return ResultEvent(keys.pop("workflow_execution_id", ""), step_id, output, **keys)


def moment(at_ms: int = NOW_MS, nonce: str = "n1", cause: str = "test") -> Moment:
    return Moment(at_ms, nonce, cause)


def reloaded(record: WorkflowRecord) -> WorkflowRecord:
    """The record as another process would have it: its stored fields, and readiness computed again."""
    stored = {
        field.name: json.loads(json.dumps(getattr(record, field.name), default=asdict))
        for field in fields(record)
        if field.init and field.name not in ("loaded", "status", "steps", "items")
    }
    units = [
        {unit: StepRecord.from_dict(json.loads(json.dumps(one.as_dict()))) for unit, one in kept.items()}
        for kept in (record.steps, record.items)
    ]
    again = replace(record, steps=units[0], items=units[1], **read_parts(stored))
    again.shared = deepcopy(record.shared)
    return again


def essence(record: WorkflowRecord, *, without: Iterable[str] = ()) -> Json:
    """A record without times, tokens and workers: what must not depend on the order of events."""
    hidden = {"token", "worker", "dispatched_at", "started_at", "ended_at", *without}
    return {
        "status": str(record.status),
        "state": record.state,
        "outcome": record.outcome,
        "error": record.error,
        "steps": {
            step_id: {key: value for key, value in step.as_dict().items() if key not in hidden}
            for step_id, step in record.steps.items()
        },
    }


def ended_legally(record: WorkflowRecord) -> bool:
    """Final, with nothing active left and, except after a halt, nothing ready either."""
    left = {step.status for step in record.steps.values() if not step.is_final}
    return record.is_final and left <= (
        {StepStatus.READY} if record.status is WorkflowStatus.HALTED else set()
    )


def same_numbers(value: Any) -> Any:
    """The same value, with every whole float as an integer and the others rounded a little."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else round(value, 9)
    if isinstance(value, Mapping):
        return {key: same_numbers(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [same_numbers(one) for one in value]
    return value


def _step(step_id: str, given: StepStatus | StepRecord) -> StepRecord:
    if isinstance(given, StepRecord):
        return given
    if given is StepStatus.IN_PROGRESS:
        return StepRecord(given, token=f"token-{step_id}", dispatches=1, dispatched_at=NOW)
    return StepRecord(given)
