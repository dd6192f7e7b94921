"""RunStatus: an execution and its steps at one moment, for programs that show or watch them.

Statuses and start times are those of StatusView, as every command shows them. Of an output only the names are
part of it, and errors and reasons are redacted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_view import RecordView, make_record_view
from orchestrator.application.records.status import FINAL_STEP_STATUSES, StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.payload_refs import is_payload_reference


@dataclass(frozen=True, slots=True)
class StepRunStatus:
    """One step of an execution.

    state     its status, or `queued` if no worker has taken its job yet
    outputs   the names in its output
    error     its last error, redacted; it may have completed since, or be tried again
    reason    why it was skipped, cancelled or dispatched again
    child     the execution id of the child that it started
    """

    step_id: str
    state: str
    attempt: int
    run_id: int
    outputs: tuple[str, ...]
    error: Mapping[str, Any] | None
    reason: str | None
    worker: str | None
    child: str | None
    dispatched_at: str | None
    started_at: str | None
    ended_at: str | None

    def as_dict(self) -> dict[str, Any]:
        """The step as plain JSON."""
        return {**_field_values(self), "outputs": list(self.outputs)}


@dataclass(frozen=True, slots=True)
class RunStatus:
    """An execution and its steps at one moment.

    started_at   when its first step was dispatched; its creation if it began without a dispatch
    elapsed_s    seconds from then to its end, or to the moment of this object; two objects that differ in
                 nothing else are equal
    paused       the time, the reason and the requester of the pause, while it lasts
    cancelled    the same of its cancellation
    """

    execution_id: str
    workflow_execution_id: str
    workflow_id: str
    name: str | None
    status: str
    created_at: str
    started_at: str | None
    ended_at: str | None
    elapsed_s: float = field(compare=False)
    error: Mapping[str, Any] | None
    paused: Mapping[str, Any] | None
    cancelled: Mapping[str, Any] | None
    steps: Mapping[str, StepRunStatus]

    @property
    def counts(self) -> dict[str, int]:
        """The number of steps in each state that occurs."""
        return dict(Counter(step.state for step in self.steps.values()))

    @property
    def total_steps(self) -> int:
        return len(self.steps)

    @property
    def completed_steps(self) -> int:
        """The number of steps that have ended, in any way."""
        return sum(step.state in FINAL_STEP_STATUSES for step in self.steps.values())

    @property
    def running_steps(self) -> tuple[str, ...]:
        """The steps that a worker runs, and maps and children in progress."""
        return self._in_state(StepStatus.IN_PROGRESS)

    @property
    def running_count(self) -> int:
        return len(self.running_steps)

    @property
    def failed_steps(self) -> tuple[str, ...]:
        return self._in_state(StepStatus.FAILED)

    def _in_state(self, state: StepStatus) -> tuple[str, ...]:
        return tuple(step_id for step_id, step in self.steps.items() if step.state == state)

    def as_dict(self) -> dict[str, Any]:
        """The status as plain JSON, with the totals."""
        return {
            **_field_values(self),
            "total_steps": self.total_steps,
            "completed_steps": self.completed_steps,
            "running_steps": list(self.running_steps),
            "running_count": self.running_count,
            "failed_steps": list(self.failed_steps),
            "counts": self.counts,
            "steps": {step_id: step.as_dict() for step_id, step in self.steps.items()},
        }


def make_run_status(view: StatusView, now_ms: int) -> RunStatus:
    """Build the status of an execution at a moment."""
    record = view.record
    redact = _make_redactor(record)
    started_at = _started_at(record)
    return RunStatus(
        execution_id=record.execution_id,
        workflow_execution_id=record.workflow_execution_id,
        workflow_id=record.workflow_id,
        name=record.spec.name,
        status=record.status.value,
        created_at=record.created_at,
        started_at=started_at,
        ended_at=record.ended_at,
        elapsed_s=_seconds_between(started_at, record.ended_at, now_ms),
        error=None if record.error is None else redact(record.error),
        paused=record.pause_details,
        cancelled=record.cancelled,
        steps={step_id: _step(view, step_id, step, redact) for step_id, step in record.steps.items()},
    )


def _step(view: StatusView, step_id: str, step: StepRecord, redact: RecordView) -> StepRunStatus:
    return StepRunStatus(
        step_id=step_id,
        state=view.status_of(step_id, step),
        attempt=step.attempt,
        run_id=step.run_id,
        outputs=_output_names(step.output),
        error=None if step.error is None else redact(step.error),
        reason=None if step.reason is None else redact.text(step.reason),
        worker=step.worker,
        child=step.child,
        dispatched_at=step.dispatched_at,
        started_at=view.started_at(step_id, step),
        ended_at=step.ended_at,
    )


def _make_redactor(record: WorkflowRecord) -> RecordView:
    """The view of the record. Most executions have nothing to redact, and need no search for secrets."""
    has_text = record.error is not None or any(
        step.error is not None or step.reason is not None for step in record.steps.values()
    )
    return make_record_view(record) if has_text else RecordView((), ())


def _output_names(output: Any) -> tuple[str, ...]:
    return tuple(output) if isinstance(output, dict) and not is_payload_reference(output) else ()


def _started_at(record: WorkflowRecord) -> str | None:
    times = [step.dispatched_at for _, step in record.units() if step.dispatched_at is not None]
    if times:
        return min(times)
    return None if record.status is WorkflowStatus.PENDING else record.created_at


def _seconds_between(started_at: str | None, ended_at: str | None, now_ms: int) -> float:
    if started_at is None:
        return 0.0
    ended_ms = now_ms if ended_at is None else parse_iso_ms(ended_at)
    return max(ended_ms - parse_iso_ms(started_at), 0) / 1000


def _field_values(one: RunStatus | StepRunStatus) -> dict[str, Any]:
    return {part.name: getattr(one, part.name) for part in fields(one)}
