"""What a transition decided, before anything of it is written."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import OutgoingEvent
from orchestrator.application.records.readiness import ReadinessChanges
from orchestrator.application.records.step_record import Slot, StepRecord
from orchestrator.application.records.timers import Timer

MAX_EXACT_INTEGER = 1e15
"""Beyond this a float is no longer sure of its units: it stays one."""


@dataclass(slots=True)
class Changes:
    """What a transition decided: the steps, state keys and fields that differ, and the effects.

    `settled` are the dispatches that brought their result, `revoked` those that nobody waits for any
    more, both as the step was while they were out; `timers` are to be armed, `disarmed` are not needed any
    more; `items` are those of maps, None for one that is gone; `posts` are said to other executions, `slots`
    asked for or given back, `shared` values written beyond this execution; `counted` belongs into the
    counters (stale, late, lost), `more` says that ready steps were left for a further advance(), and
    `deletes` that nothing of the execution is to be kept.
    """

    at_ms: int = 0
    steps: dict[str, StepRecord] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    merged: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    jobs: list[DispatchJob] = field(default_factory=list)
    finished_dispatches: list[tuple[str, StepRecord]] = field(default_factory=list)
    revoked: list[tuple[str, StepRecord]] = field(default_factory=list)
    timers_by_name_to_arm: dict[tuple[str, str, str], Timer] = field(default_factory=dict)
    timers_by_name_to_disarm: dict[tuple[str, str, str], Timer] = field(default_factory=dict)
    items: dict[str, StepRecord | None] = field(default_factory=dict)
    posts: list[OutgoingEvent] = field(default_factory=list)
    slots: list[SlotChange] = field(default_factory=list)
    shared: list[SharedChange] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)
    more: bool = False
    deletes_execution: bool = False
    readiness: ReadinessChanges | None = None

    @property
    def timers(self) -> list[Timer]:
        return list(self.timers_by_name_to_arm.values())

    @property
    def timers_to_disarm(self) -> list[Timer]:
        return list(self.timers_by_name_to_disarm.values())

    @property
    def is_empty(self) -> bool:
        """Whether the record stays as it is: nothing to write but an acknowledgement."""
        return not (
            self.steps
            or self.items
            or self.state
            or self.fields
            or self.more
            or self.deletes_execution
            or self.posts
            or self.slots
            or self.shared
        )


@dataclass(frozen=True, slots=True)
class SlotChange:
    """A place under a concurrency key is wanted by a step, or by the execution ("" for its step), or it is
    given back: held or still wanted."""

    step_id: str
    slot: Slot
    is_acquire: bool


@dataclass(frozen=True, slots=True)
class SharedChange:
    """A value that other executions see is set, or added to."""

    scope: Literal["global", "flow_group"]
    key: str
    value: Any
    is_increment: bool = False


def add_numbers(before: float, amount: float) -> float | None:
    """What a number comes to when one is added: whole without its .0; None when it is beyond all numbers."""
    try:
        total = before + amount
    except OverflowError:  # a fraction, and a whole number that no float can hold
        return None
    if isinstance(total, int):
        return total
    if not math.isfinite(total):
        return None
    return int(total) if total.is_integer() and abs(total) < MAX_EXACT_INTEGER else total


def apply_item_changes(items: dict[str, StepRecord], changes: Changes) -> None:
    """Write the changed items of maps among the others, and take away those that are gone."""
    for unit, item in changes.items.items():
        if item is None:
            items.pop(unit, None)
        else:
            items[unit] = item
