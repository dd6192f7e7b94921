"""What we know of one unit: a step of an execution, or an item of a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from typing import Any

from orchestrator.application.records.status import ACTIVE_STEP_STATUSES, FINAL_STEP_STATUSES, StepStatus

S = StepStatus


@dataclass(slots=True)
class StepRecord:
    """One step of one execution, or one item of a map. It is never changed: `changed` makes another one.
    Nothing is made as often, and one that Python itself froze would take several times as long to make.

    `run_id` counts every reset and re-dispatch from 0, `attempt` the executions since the last reset from
    1, `round` the resets by `set` or rerun, `lost` the workers that died with this attempt, `iteration` how
    often a loop said again. `value` is an item of a map, or the case a switch took. `child` is the execution
    id of a child, `slot` the place under a concurrency key, `held` the status that a hold interrupted, and
    `completion` says which of the steps that can be compensated was the how-manieth to complete. `unknown` is
    what a newer release has written and this one does not know: it is kept. Times are ISO 8601 in UTC; what a
    timer compares is in milliseconds.
    """

    status: StepStatus = S.READY
    run_id: int = 0
    attempt: int = 1
    round: int = 0
    dispatches: int = 0
    lost: int = 0
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
    unknown: Mapping[str, Any] | None = None

    def changed(self, **changes: Any) -> StepRecord:
        """This one, but for these fields."""
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
        """Whether it is under way, or stands in line for a place under a concurrency key."""
        return self.status in ACTIVE_STEP_STATUSES or self.slot is not None

    @property
    def awaits_dispatch(self) -> bool:
        """Whether advance() may dispatch it. In progress without a token: its worker was lost, or it is a map
        with items left."""
        if self.slot is not None and not self.slot.is_held:
            return False
        if self.status is S.IN_PROGRESS:
            return self.token is None and (self.items is None or self.items.has_dispatchable_item)
        if self.status is S.RETRY:
            return self.not_before_ms is None
        if self.status is S.DEFERRED:
            return self.wake_at_ms is None
        return self.status is S.READY

    @property
    def is_due(self) -> bool:
        """Of an item: it is to be dispatched again, since its delay is over, or its worker was lost."""
        return self.status is not S.READY and self.awaits_dispatch

    @property
    def has_timer(self) -> bool:
        return not (self.deadline_ms is None and self.not_before_ms is None and self.wake_at_ms is None)

    def as_dict(self) -> dict[str, Any]:
        """What is stored: the status and the counters, and whatever differs from a step that never ran."""
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
    """A place under a concurrency key, wanted or held. Its token tells this request from any other."""

    key: str
    limit: int
    token: str
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class ItemCounts:
    """How far a map is: `next` is the first item never dispatched, `due` how many are to be dispatched again,
    `out` how many are in progress, `settled` how many have ended. After a fatal item none is dispatched any
    more. Which items are due is in their own records: a list of them here would be written with each."""

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
        waits = bool(self.due) or self.next < self.count
        return waits and not self.fatal and (self.most is None or self.out < self.most)

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
    """Once the items that were due were listed; they say so themselves too, and are only counted now."""
    counts = _only(_COUNT_NAMES, stored)
    due = counts.get("due", 0)
    return {**counts, "due": len(due) if isinstance(due, list) else due}


def _only(names: Sequence[str], stored: Mapping[str, Any]) -> dict[str, Any]:
    return {name: stored[name] for name in names if name in stored}
