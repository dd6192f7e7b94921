"""What an execution waits for, in words and as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.model import StepSpec
from orchestrator.testing.clock import format_time, to_datetime


@dataclass(frozen=True, slots=True)
class Wait:
    """`step` is empty for the workflow itself; steps of a child follow those of its parent: `ship/packed`.
    Without `until` it waits for as long as it takes."""

    step: str
    what: str
    until: datetime | None = None

    def __str__(self) -> str:
        until = "" if self.until is None else f" until {format_time(self.until)}"
        return f"{self.step or 'the workflow'}: {self.what}{until}"


def find_waits(record: WorkflowRecord, result_due_ms: Mapping[str, int]) -> Iterator[Wait]:
    """What one execution waits for, but for its children; `results_ms` says by token when results come."""
    if record.is_final:
        return
    if record.status is WorkflowStatus.PAUSED:
        yield Wait("", "unpause")
    if record.slot is not None and not record.slot["is_held"]:
        yield Wait("", _place(record.slot["key"]))
    for unit, known in record.units():
        spec = record.spec.steps[record.graph.index[unit.partition("#")[0]]]
        what, until_ms = _wait_of(spec, known, result_due_ms)
        if what is not None:
            yield Wait(unit, what, None if until_ms is None else to_datetime(until_ms))


def _wait_of(
    spec: StepSpec, known: StepRecord, result_due_ms: Mapping[str, int]
) -> tuple[str | None, int | None]:
    if known.slot is not None and not known.slot.is_held:
        return _place(known.slot.key), None
    match known.status:
        case StepStatus.WAITING if spec.wait is not None:
            return f"signal {' or '.join(spec.wait.signals)}", known.deadline_ms
        case StepStatus.DEFERRED:
            return "delay" if spec.kind == "delay" else "deferral", known.wake_at_ms
        case StepStatus.RETRY:
            return f"back-off before attempt {known.attempt}", known.not_before_ms
        case StepStatus.ON_HOLD:
            return "release", None
        case StepStatus.IN_PROGRESS if known.token is not None and known.token in result_due_ms:
            times = [result_due_ms[known.token], known.deadline_ms]
            return "result", min(one for one in times if one is not None)
    return None, None


def _place(key: str) -> str:
    return f"a place under the concurrency key {key!r}"
