"""The result of a transition: what changes in the record, and the effects to commit with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import OutgoingEvent
from orchestrator.application.records.readiness import ReadinessChanges
from orchestrator.application.records.step_record import Slot, StepRecord
from orchestrator.application.records.timers import Timer

MAX_EXACT_INTEGER = 1e15
"""From here on a float no longer represents every integer: a sum stays a float."""


@dataclass(slots=True)
class Changes:
    """The steps, items, state keys and fields that differ, and the effects of one decision.

    fields                 changed attributes of the WorkflowRecord, by name
    dropped_state          the keys that are removed from the state; none of them is in `state`
    merged                 the changes of the state in order: the step, the values written, the keys removed
    finished_dispatches    dispatches whose result has arrived; each with its step as it was before
    recorded_results       the same dispatches; each with its step as the result left it, before a retry or a
                           reset in the same decision
    revoked                dispatches whose result is no longer wanted; each with its step as it was before
    items                  changed items of maps, compensations and the webhook; None for a deleted item
    outgoing_events        events for other executions
    slots                  slots under concurrency keys, requested or released
    shared                 values written to a scope that other executions read
    counter_increments     additions to the counters of the system, such as `stale`, `late` and `lost`
    has_more_ready         steps are ready that this commit had no room for: advance() must run again
    continue_at            the first step that was not evaluated, if the work of the turn was spent before it
    deletes_execution      the record and its history are deleted
    """

    at_ms: int = 0
    steps: dict[str, StepRecord] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    dropped_state: set[str] = field(default_factory=set)
    merged: list[tuple[str, dict[str, Any], Sequence[str]]] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    jobs: list[DispatchJob] = field(default_factory=list)
    finished_dispatches: list[tuple[str, StepRecord]] = field(default_factory=list)
    recorded_results: list[tuple[str, StepRecord]] = field(default_factory=list)
    revoked: list[tuple[str, StepRecord]] = field(default_factory=list)
    timers_by_name_to_arm: dict[tuple[str, str, str], Timer] = field(default_factory=dict)
    timers_by_name_to_disarm: dict[tuple[str, str, str], Timer] = field(default_factory=dict)
    items: dict[str, StepRecord | None] = field(default_factory=dict)
    outgoing_events: list[OutgoingEvent] = field(default_factory=list)
    slots: list[SlotChange] = field(default_factory=list)
    shared: list[SharedChange] = field(default_factory=list)
    counter_increments: dict[str, int] = field(default_factory=dict)
    has_more_ready: bool = False
    continue_at: str = ""
    deletes_execution: bool = False
    readiness: ReadinessChanges | None = None

    @property
    def timers_to_arm(self) -> list[Timer]:
        return list(self.timers_by_name_to_arm.values())

    @property
    def timers_to_disarm(self) -> list[Timer]:
        return list(self.timers_by_name_to_disarm.values())

    @property
    def is_empty(self) -> bool:
        """Whether the record stays as it is, so that the commit only acknowledges events."""
        return not (
            self.steps
            or self.items
            or self.state
            or self.dropped_state
            or self.fields
            or self.has_more_ready
            or self.deletes_execution
            or self.outgoing_events
            or self.slots
            or self.shared
        )


@dataclass(frozen=True, slots=True)
class SlotChange:
    """A request for a slot under a concurrency key, or its release, whether it was held or still waited for.
    `step_id` is empty for the slot of the execution itself."""

    step_id: str
    slot: Slot
    is_acquire: bool


@dataclass(frozen=True, slots=True)
class SharedChange:
    """A value that other executions read is set, or incremented by `value`."""

    scope: Literal["global", "flow_group"]
    key: str
    value: Any
    is_increment: bool = False


def add_numbers(before: float, amount: float) -> float | None:
    """Add two numbers; a whole sum is an integer. None when the sum is out of range."""
    try:
        total = before + amount
    except OverflowError:  # a float, and an integer too large for any float
        return None
    if isinstance(total, int):
        return total
    if not math.isfinite(total):
        return None
    return int(total) if total.is_integer() and abs(total) < MAX_EXACT_INTEGER else total


def drop_state_keys(state: dict[str, Any], changes: Changes) -> None:
    """Remove the keys from `state`, in place, that were dropped."""
    for key in changes.dropped_state:
        state.pop(key, None)


def apply_item_changes(items: dict[str, StepRecord], changes: Changes) -> None:
    """Update `items` in place with the changed items, and delete those that are None."""
    for unit, item in changes.items.items():
        if item is None:
            items.pop(unit, None)
        else:
            items[unit] = item
