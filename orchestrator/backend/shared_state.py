"""Data that executions share, without Redis: outgoing events, slots of concurrency keys, values, names.

The pure functions here are also used by the SQLite implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.application.records.changes import SharedChange, SlotChange, add_numbers
from orchestrator.application.records.events import OutgoingEvent, SlotEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.backend.ports import Commit, Committed, Delivery, EventRef

OUTGOING_EVENTS = "posts"
"""The stream in the EventRef of an outgoing event."""


@dataclass(frozen=True, slots=True)
class SlotClaim:
    """A claim of a step on a slot of a concurrency key: it holds the slot, or waits for it."""

    workflow_execution_id: str
    step_id: str
    token: str
    limit: int
    is_held: bool = False


def apply_slot_change(
    claims: Sequence[SlotClaim], workflow_execution_id: str, change: SlotChange
) -> tuple[list[SlotClaim], list[SlotEvent]]:
    """The claims on a key after a change, in order, and the slots it grants: first come, first served."""
    slot = change.slot
    after = [claim for claim in claims if claim.token != slot.token]
    if change.is_acquire:
        after.append(SlotClaim(workflow_execution_id, change.step_id, slot.token, slot.limit))
    held, granted = sum(1 for claim in after if claim.is_held), list[SlotEvent]()
    for position, claim in enumerate(after):
        if claim.is_held:
            continue
        if held >= claim.limit:
            break
        after[position] = replace(claim, is_held=True)
        held += 1
        granted.append(SlotEvent(claim.workflow_execution_id, claim.step_id, claim.token))
    return after, granted


def scope_owner(record: WorkflowRecord, scope: str) -> str:
    return record.root if scope == "global" else record.group or ""


def deleted_records(commit: Commit) -> list[WorkflowRecord]:
    """The executions that a commit deletes. Their idempotency roots become free, and their shared values are
    deleted."""
    deleted = [] if commit.replaces is None else [commit.replaces]
    return [*deleted, commit.record] if commit.changes.deletes_execution else deleted


def apply_shared_change(before: Any, change: SharedChange) -> Any:
    """A value after a change. An increment of a non-number, or past the largest number, changes nothing."""
    if not change.is_increment:
        return change.value
    if isinstance(before, bool) or not isinstance(before, int | float):
        return before
    total = add_numbers(before, change.value)
    return before if total is None else total


@dataclass(slots=True)
class MemorySharedState:
    """Shared state in dictionaries."""

    _outgoing_events: dict[str, Delivery] = field(default_factory=dict)
    _slot_claims: dict[str, list[SlotClaim]] = field(default_factory=dict)
    _values: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    _roots: dict[str, tuple[str, int]] = field(default_factory=dict)
    _names: dict[str, LoadedSpec] = field(default_factory=dict)
    _last_number: int = 0

    def find_rejection(self, commit: Commit) -> Committed | None:
        """Why a commit cannot be written, as far as the shared state decides it; None if it can."""
        if any(
            ref.stream == OUTGOING_EVENTS and ref.entry_id not in self._outgoing_events
            for ref in commit.pending_refs
        ):
            return Committed.GONE
        root = commit.idempotency_root
        if root is not None and self._is_root_open(root[0], commit.changes.at_ms):
            return Committed.REPEATED
        return None

    def apply(self, commit: Commit) -> None:
        """Acknowledge the events of a commit, and write its outgoing events, slots, values and root."""
        changes, weid = commit.changes, commit.record.workflow_execution_id
        if commit.replaces is not None or changes.deletes_execution:
            for deleted in deleted_records(commit):
                self._delete(deleted)
        for ref in commit.events:
            self.drop_outgoing_event(ref)
        granted: list[OutgoingEvent] = []
        for change in changes.slots:
            claims, events = apply_slot_change(self._slot_claims.pop(change.slot.key, ()), weid, change)
            granted += events
            if claims:  # keys come and go: an unused one must not stay in memory
                self._slot_claims[change.slot.key] = claims
        for one in changes.shared:
            values = self._values.setdefault((one.scope, scope_owner(commit.record, one.scope)), {})
            values[one.key] = apply_shared_change(values.get(one.key, 0), one)
        for event in (*changes.outgoing_events, *granted):
            self._last_number += 1
            ref = EventRef(OUTGOING_EVENTS, str(self._last_number))
            self._outgoing_events[ref.entry_id] = Delivery(ref, changes.at_ms, event)
        if commit.idempotency_root is not None:
            name, window_s = commit.idempotency_root
            self._roots[name] = (weid, changes.at_ms + window_s * 1000)

    def outgoing_events(self) -> list[Delivery]:
        return list(self._outgoing_events.values())

    def drop_outgoing_event(self, ref: EventRef) -> None:
        if ref.stream == OUTGOING_EVENTS:
            self._outgoing_events.pop(ref.entry_id, None)

    def load_values(self, owners: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        return [dict(self._values.get(owner, {})) for owner in owners]

    def find_by_root(self, root: str) -> str | None:
        found = self._roots.get(root)
        return found[0] if found is not None else None

    def _delete(self, deleted: WorkflowRecord) -> None:
        for root, (first, _) in list(self._roots.items()):
            if first == deleted.workflow_execution_id:
                del self._roots[root]
        self._values.pop(("global", deleted.execution_id), None)

    def _is_root_open(self, root: str, at_ms: int) -> bool:
        return root in self._roots and at_ms < self._roots[root][1]

    def register(self, name: str, loaded: LoadedSpec) -> None:
        self._names[name] = loaded

    def load_definition(self, name: str) -> LoadedSpec:
        return self._names[name]
