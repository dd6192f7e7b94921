"""Concurrency keys: who has the places that somebody stands in line for, and whether they give them back."""

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
"""The executions above one, each with the step that waits for what is below it."""


def explain_slot(
    snapshot: RedisSnapshot, record: WorkflowRecord, step_id: str, slot: Slot, above: Ancestors
) -> list[Reason]:
    """Why a step, or the execution itself (""), has no place under its key yet."""
    keys, weid = snapshot.keys, record.workflow_execution_id
    who = describe_unit(step_id)
    mine = slot_member(slot.limit, keys.events_of(weid), weid, step_id, slot.token)
    held, line = snapshot.places(slot.key)
    if any(place.member == mine for place in held):
        words = f"{who} was given its place under {slot.key!r}; no coordinator has handled that event yet"
        return [Reason(RedisReasonCode.SLOT_GRANTED, words, step_id)]
    before = snapshot.waiter_rank(slot.key, mine)
    if before is None:
        words = f"{who} does not stand in the line of {slot.key!r}, so it would wait for ever"
        return [Reason(RedisReasonCode.SLOT_LOST, words, step_id, advice=REPAIR_ADVICE)]
    if before == 0 and len(held) < slot.limit:
        words = f"{len(held)} of {slot.limit} places under {slot.key!r} are taken, and {who} gets none"
        return [Reason(RedisReasonCode.SLOT_LOST, words, step_id, advice=REPAIR_ADVICE)]
    found = [_holders(snapshot, step_id, slot, held, line, before)]
    gone = _gone(snapshot, held)
    if gone:
        names = join_names(_named(place) for place in gone)
        words = (
            f"the key {slot.key!r} of {who} is held by {names}, which ended or is gone and gives nothing back"
        )
        found.append(Reason(RedisReasonCode.HOLDER_GONE, words, step_id, advice=REPAIR_ADVICE))
    if held and all((place.execution, place.step) in _blocking(above) for place in held):
        words = (
            f"the key {slot.key!r} of {who} is held by {join_names(_named(place) for place in held)}, which"
            " waits for this execution to end: both wait for ever"
        )
        advice = f"cancel it, and give parent and child different keys, or a limit above {slot.limit}"
        found.append(Reason(RedisReasonCode.DEADLOCK, words, step_id, advice=advice))
    return found


def _holders(
    snapshot: RedisSnapshot,
    step_id: str,
    slot: Slot,
    held: Sequence[SlotEntry],
    line: Sequence[SlotEntry],
    before: int,
) -> Reason:
    taken = [f"{_named(place)} (for {format_duration(snapshot.now - place.at)})" for place in held]
    first = f", {_named(line[0])} first" if before else ""
    words = (
        f"the key {slot.key!r} of {describe_unit(step_id)} is held by {join_names(taken)};"
        f" {before} stand before it in line{first}"
    )
    return Reason(RedisReasonCode.HOLDERS, words, step_id)


def _blocking(above: Ancestors) -> set[tuple[str, str]]:
    """Those who give their place back no earlier than their child has ended."""
    return {(execution, step) for execution, waiting in above for step in ("", waiting)}


def _gone(snapshot: RedisSnapshot, held: Sequence[SlotEntry]) -> list[SlotEntry]:
    """Holders whose record is not there, has ended, or does not know of the place."""
    with translate_errors(), snapshot.client.pipeline(transaction=False) as pipe:
        for place in held:
            field = f"step:{place.step}" if place.step else "slot"
            pipe.hmget(snapshot.keys.workflow(place.execution), "status", field)
        found = execute_pipeline(pipe)
    return [place for place, stored in zip(held, found, strict=True) if not _knows(place, stored)]


def _knows(place: SlotEntry, stored: Any) -> bool:
    if isinstance(stored, Exception) or stored[0] in (None, *FINAL_WORKFLOW_STATUSES):
        return False
    with suppress(ValueError, TypeError, AttributeError):
        known = json.loads(stored[1] or "null")
        slot = known.get("slot") if place.step else known
        return bool(slot.get("token") == place.token)
    return False


def _named(place: SlotEntry) -> str:
    return f"step {place.step} of {place.execution_id}" if place.step else place.execution_id
