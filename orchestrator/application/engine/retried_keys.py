"""The keys `ok` and `error` that attempts without success leave in the state.

The output of every attempt is merged into the state, also `{"ok": false, "error": message}` of a failed one.
A completed execution must not look failed, so the two keys are removed when a later attempt completes the
step:

    an attempt is retried or fails   the keys that it wrote are noted in `retried_keys` of the step
    any output is merged             its keys are taken out of every `retried_keys`: they have another writer
    the step completes               the keys that are left in `retried_keys` are removed from the state

`retried_keys` stays with the step when `set`, a retry or a rerun runs it again. A result that a branch ends
with `set`, `skip`, `complete` or `halt` is neither retried nor failed: its keys stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.application.engine.draft import Draft
from orchestrator.application.records.status import StepStatus

ERROR_KEYS = ("ok", "error")


def update_retried_keys(draft: Draft, step_id: str, written: Mapping[str, Any]) -> None:
    """Remove the keys of earlier attempts if the step has completed; else note those of this attempt."""
    step = draft.step(step_id)
    if step.status is StepStatus.COMPLETE:
        if step.retried_keys:
            draft.drop_state(step_id, step.retried_keys)
            draft.set_retried_keys(step_id, [])
    elif step.status is StepStatus.RETRY or step.error is not None:
        kept = draft.retried_keys(step_id)
        draft.set_retried_keys(step_id, [key for key in ERROR_KEYS if key in written or key in kept])
