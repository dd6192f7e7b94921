"""Retries: whether a unit gets another attempt, and after which delay."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from orchestrator.application.engine.draft import Draft
from orchestrator.application.records.decisions import Pending
from orchestrator.application.records.status import StepStatus
from orchestrator.application.spec.model import RetrySpec, StepSpec
from orchestrator.application.values.failure_kinds import find_matching_name, is_retryable

MAX_RETRY_DELAY_MS = 3650 * 86_400_000


def is_repeated(spec: StepSpec, output: Mapping[str, Any] | None) -> bool:
    """Whether a step is tried again after a result without an error, as long as `max_attempts` allows it: any
    result with `attempts_on: any`, else one whose `ok` is false. What a map or a loop returns is data."""
    if spec.attempts_on == "any" and spec.kind == "task":
        return spec.map is None
    is_single = spec.kind in ("task", "workflow") and spec.map is None and spec.loop is None
    return is_single and output is not None and output.get("ok") is False


def mark_non_retryable(draft: Draft, unit: str, error: dict[str, Any]) -> dict[str, Any]:
    """Add the reason why a failure is not retried, if `retry.non_retryable` names it."""
    policy = draft.spec(unit).retry
    name = None if policy is None else find_matching_name(error, policy.non_retryable)
    return error if name is None else {**error, "not_retried": f"retry.non_retryable names {name}"}


def retry_delay_ms(draft: Draft, unit: str, error: Mapping[str, Any]) -> int | None:
    """The delay before a failed unit is retried; None when it is not retried."""
    spec, record = draft.spec(unit), draft.require_unit(unit)
    retries = spec.retry.max_retries if spec.retry is not None else 0
    if spec.kind not in ("task", "workflow") or not is_retryable(error):
        return None
    if spec.map is not None and unit in draft.specs:
        return None  # its items had their attempts
    if record.attempt >= max(spec.max_attempts, 1 + retries):
        return None
    if spec.retry is None or record.attempt > retries:
        return 0
    seed = f"{draft.record.workflow_execution_id}|{unit}|{record.run_id}"
    return _back_off_ms(spec.retry, record.attempt, seed)


def _back_off_ms(policy: RetrySpec, number: int, seed: str) -> int:
    """The delay before retry `number`. The jitter is a hash of `seed`, so every process computes the same."""
    try:
        delay = policy.initial_delay_ms * float(policy.backoff_multiplier) ** (number - 1)
    except OverflowError:
        delay = MAX_RETRY_DELAY_MS
    if policy.max_delay_ms is not None:
        delay = min(delay, policy.max_delay_ms)
    fraction = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") / 2**64
    return round(min(delay * (1 + policy.jitter_fraction * fraction), MAX_RETRY_DELAY_MS))


def schedule_retry(draft: Draft, unit: str, delay_ms: int = 0, **changes: Any) -> Pending:
    """Move a unit to RETRY for its next attempt, or with other changes for the next iteration of its loop."""
    record = draft.require_unit(unit)
    next_run: dict[str, Any] = {"run_id": record.run_id + 1, "attempt": record.attempt + 1, **changes}
    draft.move(
        unit,
        StepStatus.RETRY,
        lost=0,
        declined=0,
        token=None,
        deadline_ms=None,
        dispatched_at=None,
        started_at=None,
        not_before_ms=draft.moment.at_ms + delay_ms if delay_ms else None,
        **next_run,
    )
    return Pending()
