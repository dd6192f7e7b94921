"""What an execution waits for by the clock. All of it follows from the record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord


@dataclass(frozen=True, slots=True)
class Timer:
    """Something to be looked at again at a time. It is a hint: the record is asked when it is due."""

    kind: str
    step_id: str
    token: str
    due_ms: int

    @property
    def name(self) -> tuple[str, str, str]:
        """Two timers of one name are one timer, at the later word."""
        return self.kind, self.step_id, self.token


def timers_for_step(step_id: str, step: StepRecord) -> Iterator[Timer]:
    """What a step waits for by the clock. Without a dispatch its run names the timer: a reset outdates it.
    A step on hold keeps its times, but nothing comes of them until it is released."""
    if step.status is StepStatus.ON_HOLD:
        return
    if step.deadline_ms is not None:
        yield Timer("deadline", step_id, step.token or str(step.run_id), step.deadline_ms)
    if step.not_before_ms is not None:
        yield Timer("retry", step_id, str(step.run_id), step.not_before_ms)
    if step.wake_at_ms is not None:
        yield Timer("wake", step_id, str(step.run_id), step.wake_at_ms)
