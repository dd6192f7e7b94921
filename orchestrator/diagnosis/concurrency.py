"""Explains why a step or an execution waits for a concurrency slot.

Names the holders of the key, and reports whether they will release their slots.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from orchestrator.application.explain.reasons import Reason, describe_unit
from orchestrator.application.explain.text import format_duration, join_names
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES
from orchestrator.application.records.step_record import Slot
from orchestrator.diagnosis.snapshot import REPAIR_ADVICE, RedisReasonCode, RedisSnapshot
from orchestrator.redis_rq.connection import execute_pipeline, translate_errors
from orchestrator.redis_rq.keys import slot_member
from orchestrator.redis_rq.queries.inspection import SlotEntry

Ancestors = Sequence[tuple[str, str]]
"""The ancestors of an execution, each with the step that waits for its child."""


def explain_slot(
    snapshot: RedisSnapshot, record: WorkflowRecord, step_id: str, slot: Slot, ancestors: Ancestors
) -> list[Reason]:
    """Explain why a step, or the execution itself (`""`), does not have its concurrency slot yet."""
    keys, weid = snapshot.keys, record.workflow_execution_id
    subject = describe_unit(step_id)
    member = slot_member(slot.limit, keys.events_of(weid), weid, step_id, slot.token)
    holders, waiters = snapshot.slot_holders_and_waiters(slot.key)
    if any(holder.member == member for holder in holders):
        words = f"{subject} was granted its slot of {slot.key!r}; no coordinator has handled that event yet"
        return [Reason(RedisReasonCode.SLOT_GRANTED, words, step_id)]
    rank = snapshot.waiter_rank(slot.key, member)
    if rank is None:
        words = f"{subject} is not registered as a waiter of the key {slot.key!r}, so it would wait forever"
        return [Reason(RedisReasonCode.SLOT_LOST, words, step_id, advice=REPAIR_ADVICE)]
    if rank == 0 and len(holders) < slot.limit:
        words = (
            f"only {len(holders)} of {slot.limit} slots of {slot.key!r} are taken, but {subject}, the first"
            " waiter, was not granted one"
        )
        return [Reason(RedisReasonCode.SLOT_LOST, words, step_id, advice=REPAIR_ADVICE)]
    found = [_describe_holders(snapshot, step_id, slot, holders, waiters, rank)]
    gone = _find_gone_holders(snapshot, holders)
    if gone:
        words = (
            f"the key {slot.key!r} of {subject} is held by {_join_entries(gone)}, which has ended or no"
            " longer exists and will not release it"
        )
        found.append(Reason(RedisReasonCode.HOLDER_GONE, words, step_id, advice=REPAIR_ADVICE))
    blocking = _holders_that_wait_for_child(ancestors)
    if holders and all((holder.execution, holder.step) in blocking for holder in holders):
        words = (
            f"the key {slot.key!r} of {subject} is held by {_join_entries(holders)}, which waits for this"
            " execution to end: this is a deadlock"
        )
        advice = f"cancel it; use different keys for parent and child, or a limit above {slot.limit}"
        found.append(Reason(RedisReasonCode.DEADLOCK, words, step_id, advice=advice))
    return found


def _describe_holders(
    snapshot: RedisSnapshot,
    step_id: str,
    slot: Slot,
    holders: Sequence[SlotEntry],
    waiters: Sequence[SlotEntry],
    rank: int,
) -> Reason:
    held = join_names(
        f"{_describe_entry(holder)} (for {format_duration(snapshot.now - holder.at)})" for holder in holders
    )
    first = f", first {_describe_entry(waiters[0])}" if rank else ""
    words = (
        f"the key {slot.key!r} of {describe_unit(step_id)} is held by {held};"
        f" waiters ahead of it: {rank}{first}"
    )
    return Reason(RedisReasonCode.HOLDERS, words, step_id)


def _holders_that_wait_for_child(ancestors: Ancestors) -> set[tuple[str, str]]:
    """Return the ancestors, and their steps, that keep a slot until their child has ended."""
    return {(execution, step) for execution, waiting in ancestors for step in ("", waiting)}


def _find_gone_holders(snapshot: RedisSnapshot, holders: Sequence[SlotEntry]) -> list[SlotEntry]:
    """Return the holders whose record does not exist, has ended, or does not have the slot."""
    with translate_errors(), snapshot.client.pipeline(transaction=False) as pipe:
        for holder in holders:
            field = f"step:{holder.step}" if holder.step else "slot"
            pipe.hmget(snapshot.keys.workflow(holder.execution), "status", field)
        found = execute_pipeline(pipe)
    return [holder for holder, stored in zip(holders, found, strict=True) if not _has_slot(holder, stored)]


def _has_slot(holder: SlotEntry, stored: Any) -> bool:
    if isinstance(stored, Exception) or stored[0] in (None, *FINAL_WORKFLOW_STATUSES):
        return False
    with suppress(ValueError, TypeError, AttributeError):
        value = json.loads(stored[1] or "null")
        slot = value.get("slot") if holder.step else value
        return bool(slot.get("token") == holder.token)
    return False


def _join_entries(entries: Sequence[SlotEntry]) -> str:
    return join_names(_describe_entry(entry) for entry in entries)


def _describe_entry(entry: SlotEntry) -> str:
    return f"step {entry.step} of {entry.execution_id}" if entry.step else entry.execution_id
