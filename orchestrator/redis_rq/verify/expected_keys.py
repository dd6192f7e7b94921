"""The keys and members that must exist in Redis for a record. They all follow from the record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.step_record import Slot, StepRecord
from orchestrator.application.records.timers import Timer, timers_for_step
from orchestrator.redis_rq.indexes import ended_index_entry, ended_member, permanent_indexes, score_of
from orchestrator.redis_rq.job_codec import lease_of_step
from orchestrator.redis_rq.keys import Keys, slot_member, timer_member


def expected_indexes(record: WorkflowRecord, keys: Keys) -> dict[tuple[str, str], float]:
    """The index entries of an execution: sorted set and member, with the score."""
    weid = record.workflow_execution_id
    indexes = [keys.index(record.status), *permanent_indexes(record, keys)]
    expected = dict.fromkeys([(index, weid) for index in indexes], score_of(record))
    if record.is_final and record.ended_at is not None:
        index, score = ended_index_entry(record, keys, parse_iso_ms(record.ended_at))
        expected[index, ended_member(record, keys)] = score
    return expected


def expected_timers(record: WorkflowRecord) -> dict[str, Timer]:
    """The timers of a record, by their members."""
    timers = [timer for unit, one in record.units() for timer in timers_for_step(unit, one)]
    if record.deadline_ms is not None and not record.is_final:
        timers.append(Timer("timeout", "", "", record.deadline_ms))
    weid = record.workflow_execution_id
    return {timer_member(one.kind, weid, one.step_id, one.token): one for one in timers}


def expected_leases(record: WorkflowRecord) -> dict[str, tuple[str, StepRecord]]:
    """The units with a dispatch that has not ended, by their lease members. A step that waits for a child has
    no lease."""
    weid = record.workflow_execution_id
    dispatched = ((unit, one) for unit, one in record.units() if one.token is not None and one.child is None)
    return {lease_of_step(weid, unit, one): (unit, one) for unit, one in dispatched}


@dataclass(frozen=True, slots=True)
class ExpectedSlot:
    """A holder or waiter of a concurrency key; `unit` is empty for the execution itself."""

    unit: str
    slot: Slot
    member: str


def expected_slots(record: WorkflowRecord, keys: Keys) -> list[ExpectedSlot]:
    weid = record.workflow_execution_id
    slots = [(unit, one.slot) for unit, one in record.units() if one.slot is not None]
    if record.slot is not None:
        slots.append(("", record.slot))
    stream = keys.events_of(weid)
    return [
        ExpectedSlot(unit, slot, slot_member(slot.limit, stream, weid, unit, slot.token))
        for unit, slot in slots
    ]


def expected_members(record: WorkflowRecord, keys: Keys) -> Iterator[tuple[str, str]]:
    """Every member of a sorted set that may belong to an execution, with the key of the set."""
    yield from expected_indexes(record, keys)
    yield from ((keys.timers, member) for member in expected_timers(record))
    yield from ((keys.leases, member) for member in expected_leases(record))
    for expected in expected_slots(record, keys):
        yield keys.slot_holders(expected.slot.key), expected.member
        if not expected.slot.is_held:
            yield keys.slot_waiters(expected.slot.key), expected.member
