"""Waits: steps that a signal completes. A signal that arrives early is kept until a step waits for it."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.outputs import make_error_result, shape_output
from orchestrator.application.engine.results import StepResult, apply_step_result
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.events import make_failure
from orchestrator.application.records.status import StepStatus

MAX_KEPT_SIGNALS = 1_000
MAX_KEPT_SIGNAL_BYTES = 4 * 1024 * 1024
"""The limits of the signals that are kept for one execution. Its record has all of them in one field, which
is written whole for each of them."""


def begin_wait(draft: Draft, step_id: str) -> None:
    """Complete a step with the oldest signal that was kept for it; if there is none, let it wait."""
    spec = draft.specs[step_id].wait
    assert spec is not None
    if take_kept_signal(draft, step_id):
        return
    due_ms = None if spec.timeout_ms is None else draft.moment.at_ms + spec.timeout_ms
    draft.move(step_id, StepStatus.WAITING, deadline_ms=due_ms)
    draft.begin_workflow()


def take_kept_signal(draft: Draft, step_id: str) -> bool:
    """Complete the step with the oldest signal that was kept for it; False when there is none."""
    spec = draft.specs[step_id].wait
    assert spec is not None
    for at, signal in enumerate(draft.signals):
        if signal["name"] in spec.signals:
            draft.keep_signals([*draft.signals[:at], *draft.signals[at + 1 :]])
            _complete(draft, step_id, signal["name"], signal["payload"])
            return True
    return False


def on_signal(draft: Draft, name: str, payload: Any) -> StepResult:
    """Complete the first step in spec order that waits for the signal; if there is none, keep the signal."""
    for step_id in draft.waiting:
        spec = draft.specs[step_id].wait
        if spec is not None and name in spec.signals:
            return _complete(draft, step_id, name, payload)
    signals = [*draft.signals, {"name": name, "payload": payload}]
    if len(signals) > MAX_KEPT_SIGNALS or len(json.dumps(signals)) > MAX_KEPT_SIGNAL_BYTES:
        raise too_many_signals(draft.record.execution_id)
    draft.keep_signals(signals)
    draft.note(signal=name)
    return None


def on_wait_timeout(draft: Draft, step_id: str) -> StepResult:
    """End a wait whose timeout has passed."""
    spec = draft.specs[step_id].wait
    assert spec is not None
    if spec.is_any:
        return _apply_output(draft, step_id, {"event": "timeout"})
    if spec.on_timeout == "continue":
        return _apply_output(draft, step_id, {})
    seconds = (spec.timeout_ms or 0) / 1000
    message = f"no signal {' or '.join(spec.signals)} within {seconds:g} s"
    return apply_step_result(draft, step_id, *make_error_result(make_failure("signal_timeout", message)))


def _complete(draft: Draft, step_id: str, name: str, payload: Any) -> StepResult:
    output = payload if isinstance(payload, dict) else {"value": payload}
    spec = draft.specs[step_id].wait
    assert spec is not None
    return _apply_output(draft, step_id, {**output, "event": name} if spec.is_any else output)


def _apply_output(draft: Draft, step_id: str, raw: dict[str, Any]) -> StepResult:
    return apply_step_result(draft, step_id, *shape_output(draft, step_id, raw))


def too_many_signals(execution_id: str) -> InvalidEvent:
    return InvalidEvent(
        f"execution {execution_id!r} keeps signals that no step has waited for, and no room is left: it keeps"
        f" at most {MAX_KEPT_SIGNALS:,} of {MAX_KEPT_SIGNAL_BYTES >> 20} MiB in all"
    )
