"""What executions share where there is no Redis: posts, places under concurrency keys, values, names."""

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
"""The stream of an EventRef that means a post."""


@dataclass(frozen=True, slots=True)
class SlotClaim:
    """Somebody under a concurrency key: in it, or in line for it."""

    workflow_execution_id: str
    step_id: str
    token: str
    limit: int
    is_held: bool = False


def apply_slot_change(
    places: Sequence[SlotClaim], workflow_execution_id: str, change: SlotChange
) -> tuple[list[SlotClaim], list[SlotEvent]]:
    """Those under a key after a change, in line, and who has got a place by it: first come, first served."""
    slot = change.slot
    left = [place for place in places if place.token != slot.token]
    if change.is_acquire:
        left.append(SlotClaim(workflow_execution_id, change.step_id, slot.token, slot.limit))
    held, granted = sum(1 for place in left if place.is_held), list[SlotEvent]()
    for at, place in enumerate(left):
        if place.is_held:
            continue
        if held >= place.limit:
            break
        left[at] = replace(place, is_held=True)
        held += 1
        granted.append(SlotEvent(place.workflow_execution_id, place.step_id, place.token))
    return left, granted


def scope_owner(record: WorkflowRecord, scope: str) -> str:
    return record.root if scope == "global" else record.group or ""


def deleted_records(commit: Commit) -> list[WorkflowRecord]:
    """The executions of which nothing is left after a commit: what they were the first of may be started
    again, and nobody reads their values."""
    gone = [] if commit.replaces is None else [commit.replaces]
    return [*gone, commit.record] if commit.changes.deletes_execution else gone


def apply_shared_change(before: Any, change: SharedChange) -> Any:
    """A value after a change; nothing is added to what is no number, nor what goes beyond all numbers."""
    if not change.is_increment:
        return change.value
    if isinstance(before, bool) or not isinstance(before, int | float):
        return before
    total = add_numbers(before, change.value)
    return before if total is None else total


@dataclass(slots=True)
class MemorySharedState:
    """All of it in dictionaries."""

    _posts: dict[str, Delivery] = field(default_factory=dict)
    _slot_claims: dict[str, list[SlotClaim]] = field(default_factory=dict)
    _values: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    _roots: dict[str, tuple[str, int]] = field(default_factory=dict)
    _names: dict[str, LoadedSpec] = field(default_factory=dict)
    _number: int = 0

    def refusal(self, commit: Commit) -> Committed | None:
        """Why a commit cannot be written, as far as it is known here."""
        if any(
            ref.stream == OUTGOING_EVENTS and ref.entry_id not in self._posts
            for ref in commit.require_pending
        ):
            return Committed.GONE
        if commit.root is not None and self._open_root(commit.root[0], commit.changes.at_ms):
            return Committed.REPEATED
        return None

    def take(self, commit: Commit) -> None:
        """What a commit says to others and shares with them; its own posts are acknowledged."""
        changes, weid = commit.changes, commit.record.workflow_execution_id
        for gone in deleted_records(commit):
            self._forget(gone)
        for ref in commit.events:
            self.drop_outgoing_event(ref)
        granted: list[OutgoingEvent] = []
        for change in changes.slots:
            places, found = apply_slot_change(self._slot_claims.pop(change.slot.key, ()), weid, change)
            granted += found
            if places:  # keys come and go: one that nobody uses leaves nothing
                self._slot_claims[change.slot.key] = places
        for one in changes.shared:
            values = self._values.setdefault((one.scope, scope_owner(commit.record, one.scope)), {})
            values[one.key] = apply_shared_change(values.get(one.key, 0), one)
        for post in [*changes.posts, *granted]:
            self._number += 1
            ref = EventRef(OUTGOING_EVENTS, str(self._number))
            self._posts[ref.entry_id] = Delivery(ref, changes.at_ms, post)
        if commit.root is not None:
            name, window_s = commit.root
            self._roots[name] = (weid, changes.at_ms + window_s * 1000)

    def posts(self) -> list[Delivery]:
        return list(self._posts.values())

    def drop_outgoing_event(self, ref: EventRef) -> None:
        if ref.stream == OUTGOING_EVENTS:
            self._posts.pop(ref.entry_id, None)

    def shared(self, owners: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        return [dict(self._values.get(owner, {})) for owner in owners]

    def find_by_root(self, root: str) -> str | None:
        found = self._roots.get(root)
        return found[0] if found is not None else None

    def _forget(self, gone: WorkflowRecord) -> None:
        for root, (first, _) in list(self._roots.items()):
            if first == gone.workflow_execution_id:
                del self._roots[root]
        self._values.pop(("global", gone.execution_id), None)

    def _open_root(self, root: str, at_ms: int) -> bool:
        return root in self._roots and at_ms < self._roots[root][1]

    def register(self, name: str, loaded: LoadedSpec) -> None:
        self._names[name] = loaded

    def definition(self, name: str) -> LoadedSpec:
        return self._names[name]
