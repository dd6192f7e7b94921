"""The statuses of steps and workflows, and the legal transitions between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from orchestrator.application.errors import IllegalTransition


class StepStatus(StrEnum):
    READY = "ready"
    DEFERRED = "deferred"
    WAITING = "waiting"
    IN_PROGRESS = "in_progress"
    RETRY = "retry"
    ON_HOLD = "on_hold"
    COMPLETE = "complete"
    FAILED = "failed"
    SKIPPED = "skipped"
    FILTERED = "filtered"
    CANCELLED = "cancelled"
    HALTED = "halted"


class WorkflowStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    PAUSED = "paused"
    COMPENSATING = "compensating"
    COMPLETE = "complete"
    HALTED = "halted"
    FAILED = "failed"
    CANCELLED = "cancelled"


S, W = StepStatus, WorkflowStatus

STATUS_NAMES: Mapping[StepStatus, str] = {status: status.value for status in StepStatus}
"""The plain text of each status of a step: looking it up takes a fifth of the time of `str()`."""

FINAL_STEP_STATUSES = frozenset({S.COMPLETE, S.FAILED, S.SKIPPED, S.FILTERED, S.CANCELLED, S.HALTED})
FINAL_WORKFLOW_STATUSES = frozenset({W.COMPLETE, W.HALTED, W.FAILED, W.CANCELLED})
ACTIVE_STEP_STATUSES = frozenset({S.IN_PROGRESS, S.WAITING, S.DEFERRED, S.RETRY, S.ON_HOLD})

_ENDS = {S.CANCELLED, S.READY}
STEP_TRANSITIONS: Mapping[StepStatus, frozenset[StepStatus]] = {
    S.READY: frozenset(S) - {S.RETRY, S.CANCELLED},
    S.DEFERRED: frozenset(
        {S.IN_PROGRESS, S.COMPLETE, S.WAITING, S.FAILED, S.SKIPPED, S.HALTED, S.ON_HOLD} | _ENDS
    ),
    S.WAITING: frozenset({S.COMPLETE, S.FAILED, S.SKIPPED, S.HALTED, S.RETRY, S.ON_HOLD} | _ENDS),
    S.IN_PROGRESS: frozenset({S.COMPLETE, S.HALTED, S.RETRY, S.FAILED, S.SKIPPED, S.IN_PROGRESS} | _ENDS),
    S.RETRY: frozenset({S.IN_PROGRESS, S.FAILED, S.SKIPPED, S.HALTED, S.RETRY, S.ON_HOLD} | _ENDS),
    S.ON_HOLD: frozenset({S.RETRY, S.DEFERRED, S.WAITING} | _ENDS),
    S.COMPLETE: frozenset({S.READY}),
    S.FAILED: frozenset({S.READY}),
    S.SKIPPED: frozenset({S.READY}),
    S.FILTERED: frozenset({S.READY}),
    S.CANCELLED: frozenset({S.READY}),
    S.HALTED: frozenset(),
}
"""The legal next statuses for each status of a step. Any other transition raises IllegalTransition."""

WORKFLOW_TRANSITIONS: Mapping[WorkflowStatus, frozenset[WorkflowStatus]] = {
    W.PENDING: frozenset(W) - {W.PENDING},
    W.IN_PROGRESS: frozenset(W) - {W.PENDING, W.IN_PROGRESS},
    W.PAUSED: frozenset(W) - {W.PENDING, W.PAUSED, W.COMPLETE},
    W.COMPENSATING: frozenset({W.FAILED, W.CANCELLED}),
    W.COMPLETE: frozenset({W.IN_PROGRESS}),
    W.HALTED: frozenset(),
    W.FAILED: frozenset({W.IN_PROGRESS}),
    W.CANCELLED: frozenset({W.IN_PROGRESS}),
}
"""The legal next statuses for each status of a workflow. A paused workflow does not advance, so it
completes only after it is unpaused."""


def check_step_transition(step_id: str, before: StepStatus, after: StepStatus) -> None:
    if after not in STEP_TRANSITIONS[before]:
        raise IllegalTransition(f"step {step_id!r}", before, after)


def check_workflow_transition(before: WorkflowStatus, after: WorkflowStatus) -> None:
    if after not in WORKFLOW_TRANSITIONS[before]:
        raise IllegalTransition("the workflow", before, after)
