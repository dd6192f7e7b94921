"""The record of one unit: a step, an item of a map, a compensation, or the webhook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from typing import Any

from orchestrator.application.records.status import ACTIVE_STEP_STATUSES, FINAL_STEP_STATUSES, StepStatus

S = StepStatus


@dataclass(slots=True)
class StepRecord:
    """The record of one unit. It is never modified: `with_changes` makes a changed copy. It is not a frozen
    dataclass, because creating one takes several times as long, and nothing is created more often.

    run_id       counts resets and re-dispatches, from 0
    attempt      counts the attempts since the last reset, from 1
    round        counts the resets by `set` or rerun
    lost         counts the workers that died during this attempt
    declined     counts the workers in a row that did not have the executor
    iteration    counts how often a loop returned "again"
    value        the value of an item, or the case that a switch selected
    child        the execution id of the child that the step started
    slot         the slot under a concurrency key
    held         the status that a hold interrupted
    completion   the completion order among the steps that can be compensated
    retried_keys the keys that an attempt without success left in the state, see engine/retried_keys.py
    unknown      fields written by a newer release; they are kept as they are

    Times are ISO 8601 in UTC; times that a timer compares are in milliseconds.
    """

    status: StepStatus = S.READY
    run_id: int = 0
    attempt: int = 1
    round: int = 0
    dispatches: int = 0
    lost: int = 0
    declined: int = 0
    token: str | None = None
    output: Any = None
    error: dict[str, Any] | None = None
    reason: str | None = None
    worker: str | None = None
    dispatched_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    deadline_ms: int | None = None
    not_before_ms: int | None = None
    wake_at_ms: int | None = None
    iteration: int = 0
    value: Any = None
    loop_value: Any = None
    items: ItemCounts | None = None
    child: str | None = None
    slot: Slot | None = None
    held: str | None = None
    completion: int | None = None
    retried_keys: list[str] | None = None
    unknown: Mapping[str, Any] | None = None

    def with_changes(self, **changes: Any) -> StepRecord:
        """A copy with these fields changed."""
        return self.changed_by(changes)

    def changed_by(self, changes: Mapping[str, Any]) -> StepRecord:
        """A copy with these fields changed, by name."""
        values = list(_values(self))
        for name, value in changes.items():
            values[_POSITIONS[name]] = value
        return StepRecord(*values)

    @property
    def start_time(self) -> str | None:
        return self.started_at or self.dispatched_at

    @property
    def end_time(self) -> str | None:
        return self.ended_at

    @property
    def host(self) -> str | None:
        return self.worker

    @property
    def is_final(self) -> bool:
        return self.status in FINAL_STEP_STATUSES

    @property
    def is_active(self) -> bool:
        """Whether its status is active, or it holds or waits for a slot under a concurrency key."""
        return self.status in ACTIVE_STEP_STATUSES or self.slot is not None

    @property
    def awaits_dispatch(self) -> bool:
        """Whether advance() may dispatch it. A unit in progress without a token has lost its worker, was
        declined by one, or is a map with items left."""
        if self.slot is not None and not self.slot.is_held:
            return False
        if self.status is S.IN_PROGRESS:
            is_free = self.token is None and self.not_before_ms is None
            return is_free and (self.items is None or self.items.has_dispatchable_item)
        if self.status is S.RETRY:
            return self.not_before_ms is None
        if self.status is S.DEFERRED:
            return self.wake_at_ms is None
        return self.status is S.READY

    @property
    def is_due(self) -> bool:
        """For an item: whether it must be dispatched again, after a retry delay or the loss of its worker."""
        return self.status is not S.READY and self.awaits_dispatch

    @property
    def has_timer(self) -> bool:
        return not (self.deadline_ms is None and self.not_before_ms is None and self.wake_at_ms is None)

    def as_dict(self) -> dict[str, Any]:
        """The stored form: status, run_id and attempt, and every field that differs from its default."""
        stored: dict[str, Any] = {"status": str(self.status), "run_id": self.run_id, "attempt": self.attempt}
        for name, default, value in zip(_STORED, _STORED_DEFAULTS, _stored_values(self), strict=True):
            if value is not default and (value != default or type(value) is not type(default)):
                stored[name] = value
        for name in _PARTS:
            part = getattr(self, name)
            if part is not None:
                stored[name] = asdict(part)
        if self.unknown is not None:
            stored.update(self.unknown)
        return stored

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> StepRecord:
        known = {name: stored[name] for name in _STORED if name in stored}
        if len(known) + 1 < len(stored):
            names = stored.keys() - known.keys() - {"status"}
            known["unknown"] = {name: stored[name] for name in sorted(names)}
        if "items" in known:
            known["items"] = ItemCounts(**_counts(known["items"]))
        if "slot" in known:
            known["slot"] = Slot(**_only(_SLOT_NAMES, known["slot"]))
        return cls(status=StepStatus(stored["status"]), **known)


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot under a concurrency key, waited for or held. The token identifies this request."""

    key: str
    limit: int
    token: str
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class ItemCounts:
    """The progress of a map. After a fatal item, no further item is dispatched.

    next       the first item that was never dispatched
    due        the number of items that must be dispatched again; the items themselves are marked in their own
               records, because a list of them here would be written with every item
    out        the number of items in progress
    settled    the number of items that have ended
    most       the number of items that may be in progress at once; None for no limit
    """

    count: int
    next: int = 0
    due: int = 0
    out: int = 0
    settled: int = 0
    errors: int = 0
    fatal: bool = False
    most: int | None = None

    @property
    def has_dispatchable_item(self) -> bool:
        """Whether an item can be dispatched now."""
        has_item = bool(self.due) or self.next < self.count
        return has_item and not self.fatal and (self.most is None or self.out < self.most)

    @property
    def is_finished(self) -> bool:
        return self.settled == self.count or (self.fatal and not self.out)


_NAMES = tuple(f.name for f in fields(StepRecord))
_POSITIONS = {name: position for position, name in enumerate(_NAMES)}
_values = attrgetter(*_NAMES)
_PARTS = ("items", "slot")
_STORED = tuple(name for name in _NAMES if name not in ("status", "unknown"))
_STORED_DEFAULTS = tuple(f.default for f in fields(StepRecord) if f.name in _STORED)
_stored_values = attrgetter(*_STORED)
_COUNT_NAMES, _SLOT_NAMES = ([f.name for f in fields(part)] for part in (ItemCounts, Slot))


def _counts(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Read the counts. Earlier releases stored `due` as a list of items; now it is their number."""
    counts = _only(_COUNT_NAMES, stored)
    due = counts.get("due", 0)
    return {**counts, "due": len(due) if isinstance(due, list) else due}


def _only(names: Sequence[str], stored: Mapping[str, Any]) -> dict[str, Any]:
    return {name: stored[name] for name in names if name in stored}
