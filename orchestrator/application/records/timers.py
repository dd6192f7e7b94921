"""The timers of an execution. All of them follow from its record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord


@dataclass(frozen=True, slots=True)
class Timer:
    """A time at which a unit must be checked. A timer is a hint: when it is due, the record decides."""

    kind: str
    step_id: str
    token: str
    due_ms: int

    @property
    def name(self) -> tuple[str, str, str]:
        """The identity of a timer: a timer replaces an earlier one with the same name."""
        return self.kind, self.step_id, self.token


def timers_for_step(step_id: str, step: StepRecord) -> Iterator[Timer]:
    """The timers of a unit. Without a dispatch the token of a timer is the run_id, so that a reset makes the
    timer stale. A step on hold keeps its times, but has no timers until it is released."""
    if step.status is StepStatus.ON_HOLD:
        return
    if step.deadline_ms is not None:
        yield Timer("deadline", step_id, step.token or str(step.run_id), step.deadline_ms)
    if step.not_before_ms is not None:
        yield Timer("retry", step_id, str(step.run_id), step.not_before_ms)
    if step.wake_at_ms is not None:
        yield Timer("wake", step_id, str(step.run_id), step.wake_at_ms)
