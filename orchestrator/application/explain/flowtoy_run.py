"""The status of an execution as flowtoy's Status API returns that of a run, for its web page and its TUI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.application.explain.run_status import RunStatus, StepRunStatus
from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.records.status import StepStatus

_STATES: Mapping[str, str] = {
    StepStatus.IN_PROGRESS: "running",
    StepStatus.COMPLETE: "succeeded",
    StepStatus.HALTED: "succeeded",
    StepStatus.FAILED: "failed",
    StepStatus.SKIPPED: "skipped",
    StepStatus.FILTERED: "skipped",
    StepStatus.CANCELLED: "cancelled",
}
"""The states that have another word. A step in any other state has not begun, or will be tried again."""


def as_flowtoy_run(status: RunStatus) -> dict[str, Any]:
    running = list(status.running_steps)
    return {
        "run_id": status.execution_id,
        "started_at": _seconds(status.started_at),
        "ended_at": _seconds(status.ended_at),
        "total_steps": status.total_steps,
        "completed_steps": status.completed_steps,
        "running_steps": running,
        "running_count": len(running),
        "current_step": running[0] if running else None,
        "steps": {step_id: _step(step) for step_id, step in status.steps.items()},
    }


def _step(step: StepRunStatus) -> dict[str, Any]:
    state = _STATES.get(step.state, "pending")
    return {
        "state": state,
        "started_at": _seconds(_started_at(step)),
        "ended_at": _seconds(step.ended_at),
        "notes": _list_notes(step),
        "outputs": list(step.outputs) if state == "succeeded" else [],
    }


def _started_at(step: StepRunStatus) -> str | None:
    """When a worker started it, or when it was dispatched, if it ended before its start was reported."""
    return step.started_at or (step.dispatched_at if step.ended_at is not None else None)


def _list_notes(step: StepRunStatus) -> list[str]:
    """The message of its error, and why it was skipped, cancelled or dispatched again."""
    message = None if step.error is None else step.error.get("message") or step.error.get("kind")
    return [str(note) for note in (message, step.reason) if note]


def _seconds(at: str | None) -> float | None:
    return None if at is None else parse_iso_ms(at) / 1000
