"""What an execution waits for, as data and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.model import StepSpec
from orchestrator.application.values.unit_id import step_of
from orchestrator.testing.clock import format_time, to_datetime


@dataclass(frozen=True, slots=True)
class Wait:
    """`step` is empty for the workflow itself; a step of a child has the path `ship/packed`. Without `until`
    the wait has no end."""

    step: str
    what: str
    until: datetime | None = None

    def __str__(self) -> str:
        until = "" if self.until is None else f" until {format_time(self.until)}"
        return f"{self.step or 'the workflow'}: {self.what}{until}"


def find_waits(record: WorkflowRecord, result_due_ms: Mapping[str, int]) -> Iterator[Wait]:
    """What one execution waits for, without its children. `result_due_ms` has the due times by token."""
    if record.is_final:
        return
    if record.status is WorkflowStatus.PAUSED:
        yield Wait("", "unpause")
    if record.slot is not None and not record.slot.is_held:
        yield Wait("", _describe_slot(record.slot.key))
    for unit, step in record.units():
        spec = record.spec.steps[record.graph.index[step_of(unit)]]
        what, until_ms = _wait_of(spec, step, result_due_ms)
        if what is not None:
            yield Wait(unit, what, None if until_ms is None else to_datetime(until_ms))


def _wait_of(
    spec: StepSpec, step: StepRecord, result_due_ms: Mapping[str, int]
) -> tuple[str | None, int | None]:
    if step.slot is not None and not step.slot.is_held:
        return _describe_slot(step.slot.key), None
    match step.status:
        case StepStatus.WAITING if spec.wait is not None:
            return f"signal {' or '.join(spec.wait.signals)}", step.deadline_ms
        case StepStatus.DEFERRED:
            return "delay" if spec.kind == "delay" else "deferral", step.wake_at_ms
        case StepStatus.RETRY:
            return f"back-off before attempt {step.attempt}", step.not_before_ms
        case StepStatus.ON_HOLD:
            return "release", None
        case StepStatus.IN_PROGRESS if step.token is not None and step.token in result_due_ms:
            times = [result_due_ms[step.token], step.deadline_ms]
            return "result", min(one for one in times if one is not None)
    return None, None


def _describe_slot(key: str) -> str:
    return f"a slot of the concurrency key {key!r}"
