"""Probes: what is asked about one execution, what the answers should be, and how to put right what is not.

All probes of an execution are asked in one look, upon one version of its record (look.lua), so that a system
at work gives no false alarm. What an event still under way will put right is no damage (`unless`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.audit.findings import Finding
from orchestrator.application.audit.history import audit
from orchestrator.application.audit.invariants import can_still_progress
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.redis_rq.commit_args import Command, flatten_fields
from orchestrator.redis_rq.event_codec import loads
from orchestrator.redis_rq.keys import FIRST_SEQUENCE, Keys, is_queue_sequence
from orchestrator.redis_rq.queries.pending_events import EventPredicate
from orchestrator.redis_rq.verify.expected_keys import (
    ExpectedSlot,
    expected_indexes,
    expected_leases,
    expected_members,
    expected_slots,
    expected_timers,
)


@dataclass(frozen=True, slots=True)
class RepairableFinding:
    """A finding, the repairs (repair.lua) that would undo it, and the event that would explain it."""

    finding: Finding
    repairs: Sequence[Command] = ()
    explained_by: EventPredicate | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Probe:
    commands: Sequence[Command]
    evaluate: Callable[[list[Any]], Iterable[RepairableFinding]]


@dataclass(frozen=True, slots=True)
class Claim:
    """A member of a sorted set that stands for an execution, as somebody found it."""

    key: str
    member: str
    execution: str


def repairable_finding(
    code: str,
    where: str,
    words: str,
    *repairs: Command,
    explained_by: EventPredicate | None = None,
) -> RepairableFinding:
    return RepairableFinding(Finding(code, where, words), repairs, explained_by)


class Probes:
    """The probes of records, and of what claims to belong to them."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def of(self, record: WorkflowRecord, queues: Mapping[str, int]) -> Iterator[Probe]:
        """`queues` are all that there are, by the names that RQ has for them, with their last sequences."""
        weid, keys = record.workflow_execution_id, self._keys
        yield Probe([["LRANGE", keys.history(weid), 0, -1]], lambda found: _audited(record, found[0]))
        yield from self._indexes(record)
        yield self._pointer(record)
        yield from self._terms(record)
        yield from self._timers(record)
        yield from self._leases(record, queues)
        for place in expected_slots(record, keys):
            yield self._place(record, place)
        yield from self._family(record)
        if not record.is_final and not can_still_progress(record):
            yield Probe([["TIME"]], lambda _: [self._stuck(record)])

    # ---- what must be there

    def _indexes(self, record: WorkflowRecord) -> Iterator[Probe]:
        weid, keys = record.workflow_execution_id, self._keys
        expected = expected_indexes(record, keys)

        def evaluate(place: tuple[str, str], score: float | None) -> Iterator[RepairableFinding]:
            (key, member), wanted = place, expected.get(place)
            if wanted is None:
                if score is not None:
                    words = "it stands in an index that is not its own"
                    yield repairable_finding("index", key, words, ["ZREM", key, member])
            elif score is None:
                yield repairable_finding(
                    "index", key, "it is missing from this index", ["ZADD", key, wanted, member]
                )
            elif score != wanted:
                words = f"its score is {score}, and should be {wanted}"
                yield repairable_finding("index", key, words, ["ZADD", key, wanted, member])

        for place in {**expected, **dict.fromkeys((keys.index(status), weid) for status in WorkflowStatus)}:
            yield Probe(
                [["ZSCORE", *place]],
                lambda found, place=place: evaluate(place, _number(found[0])),  # type: ignore[misc]
            )

    def _pointer(self, record: WorkflowRecord) -> Probe:
        weid, key = record.workflow_execution_id, self._keys.execution(record.execution_id)

        def evaluate(found: list[Any]) -> Iterator[RepairableFinding]:
            if found[0] is None:
                yield repairable_finding("pointer", key, "it is missing", ["SET", key, weid])
            elif found[0] != weid:
                yield repairable_finding("pointer", key, f"it names {found[0]}")

        return Probe([["GET", key]], evaluate)

    def _terms(self, record: WorkflowRecord) -> Iterator[Probe]:
        """An execution that has not ended is kept for as long as it takes. One that has is dropped by the
        coordinators, when it has stood among the ended ones for its retention."""
        weid, keys = record.workflow_execution_id, self._keys
        own = [
            keys.workflow(weid),
            keys.history(weid),
            keys.lines(weid),
            keys.execution(record.execution_id),
            keys.spec(record.workflow_id),
        ]

        def evaluate(key: str, ttl_s: int | None) -> Iterator[RepairableFinding]:
            if ttl_s is not None and ttl_s >= 0:
                words = "it would expire, and the execution has not ended"
                yield repairable_finding("term", key, words, ["PERSIST", key])

        for key in () if record.is_final else own:
            yield Probe([["TTL", key]], lambda found, key=key: evaluate(key, found[0]))  # type: ignore[misc]

    def _timers(self, record: WorkflowRecord) -> Iterator[Probe]:
        weid, key = record.workflow_execution_id, self._keys.timers

        for member, timer in expected_timers(record).items():

            def evaluate(
                found: list[Any], member: str = member, timer: Any = timer
            ) -> Iterator[RepairableFinding]:
                score, repair = _number(found[0]), ["ZADD", key, timer.due_ms, member]
                if score is None:
                    words = f"the timer {timer.kind} of {timer.token or 'the workflow'} is missing"
                    rings = _has(type=timer.kind, execution=weid, step=timer.step_id, token=timer.token)
                    yield repairable_finding("timer", timer.step_id, words, repair, explained_by=rings)
                elif score != timer.due_ms:
                    words = f"the timer {timer.kind} is due at {score:.0f}, and should be at {timer.due_ms}"
                    yield repairable_finding("timer", timer.step_id, words, repair)

            yield Probe([["ZSCORE", key, member]], evaluate)

    def _leases(self, record: WorkflowRecord, queues: Mapping[str, int]) -> Iterator[Probe]:
        """A dispatch that is out is found lost when its lease is due; before its job has left the queue, it
        has a sequence of the queue, and only by that its lease gets a term. What an earlier release has put
        there stands in a set of the queue instead."""
        weid, keys = record.workflow_execution_id, self._keys
        for member, (unit, one) in expected_leases(record).items():
            token = str(one.token)
            repair: Command = ["lease", keys.leases, member]

            def evaluate(
                found: list[Any], unit: str = unit, token: str = token, repair: Command = repair
            ) -> Iterator[RepairableFinding]:
                score, waiting = _number(found[0]), found[1:]
                if score is None:
                    is_told = _has(execution=weid, token=token)
                    yield repairable_finding(
                        "lease", unit, f"dispatch {token} has no lease", repair, explained_by=is_told
                    )
                elif (
                    score >= FIRST_SEQUENCE
                    and not any(waiting)
                    and not is_queue_sequence(score, queues.values())
                ):
                    words = f"dispatch {token} has a lease without a term, and waits in no queue"
                    yield repairable_finding("lease", unit, words, repair)

            asked: list[Command] = [["ZSCORE", f"{keys.dispatched}{queue}", member] for queue in queues]
            yield Probe([["ZSCORE", keys.leases, member], *asked], evaluate)

    def _place(self, record: WorkflowRecord, place: ExpectedSlot) -> Probe:
        """Who has a place is in, who wants one is in line, or is in and will hear of it; and nobody waits for
        a place that is free."""
        keys, weid, slot = self._keys, record.workflow_execution_id, place.slot
        held, line = keys.places(slot.key), keys.line(slot.key)

        def evaluate(found: list[Any]) -> Iterator[RepairableFinding]:
            is_in, is_in_line = found[0] is not None, found[1] is not None
            if slot.is_held and not is_in:
                words = f"its place under the key {slot.key!r} is not kept"
                yield repairable_finding(
                    "place", place.unit, words, ["place", held, line, place.member, "take"]
                )
            elif not slot.is_held and is_in:
                event = {"type": "slot", "execution": weid, "step": place.unit, "token": slot.token}
                words = f"it has a place under the key {slot.key!r}, and was not told"
                telling: Command = ["XADD", keys.events_of(weid), "*", *flatten_fields(event)]
                yield repairable_finding("place", place.unit, words, telling, explained_by=_has(**event))
            elif not slot.is_held and not is_in_line:
                words = f"it wants a place under the key {slot.key!r}, and is not in line"
                yield repairable_finding(
                    "place", place.unit, words, ["place", held, line, place.member, "wait"]
                )
            if _is_free(found[2], found[3] or []):
                words = f"a place under the key {slot.key!r} is free, and somebody is in line for it"
                yield repairable_finding("place", place.unit, words, ["place", held, line, "", "leave"])

        first: Command = ["ZRANGE", line, 0, 0]
        asked: list[Command] = [["ZSCORE", held, place.member], ["ZSCORE", line, place.member]]
        return Probe([*asked, ["ZCARD", held], first], evaluate)

    def _family(self, record: WorkflowRecord) -> Iterator[Probe]:
        """A parent waits for each of its children, and each child for nobody else."""
        keys = self._keys
        if (
            record.parent is not None
            and not record.is_final
            and record.status is not WorkflowStatus.COMPENSATING
        ):
            parent = record.parent
            ids = (record.workflow_execution_id, record.execution_id)
            field = f"step:{parent['step_id']}"
            told = repairable_finding(
                "orphan",
                "",
                f"step {parent['step_id']} of {parent['execution']} does not wait for it",
                explained_by=lambda event: event.get("type") == "control" and event.get("execution") in ids,
            )

            def evaluate(found: list[Any]) -> list[RepairableFinding]:
                step = _json(found[0])
                waits = (step.get("token"), step.get("child")) == (parent["token"], record.execution_id)
                return [] if waits else [told]

            yield Probe([["HGET", keys.workflow(parent["execution"]), field]], evaluate)
        for step_id, step in record.steps.items():
            if step.token is not None and step.child is not None:
                pointer = keys.execution(step.child)
                yield Probe(
                    [["GET", pointer], ["TTL", pointer]],
                    lambda found, step_id=step_id, step=step: _child(step_id, step, *found),  # type: ignore[misc]
                )

    def _stuck(self, record: WorkflowRecord) -> RepairableFinding:
        weid = record.workflow_execution_id
        push: Command = ["XADD", self._keys.events_of(weid), "*", "type", "continue", "execution", weid]
        words = "it has not ended, waits for nothing, and no event is under way to it"
        return repairable_finding(
            "stuck", "", words, push, explained_by=lambda event: event.get("execution") == weid
        )

    # ---- what must not be there

    def probe_for_claim(self, claim: Claim, record: WorkflowRecord | None) -> Probe | None:
        """None when the member belongs to the record, or was asked about with it."""
        keys = self._keys
        if record is not None and claim.key in map(keys.index, WorkflowStatus):
            return None
        if record is not None and (claim.key, claim.member) in set(expected_members(record, keys)):
            return None
        if claim.key.startswith(keys.execution("")):
            return self._of_pointer(claim, record)
        repair: Command = ["ZREM", claim.key, claim.member]
        for prefix in (keys.places(""), keys.line("")):
            if claim.key.startswith(prefix):
                key = claim.key.removeprefix(prefix)
                repair = ["place", keys.places(key), keys.line(key), claim.member, "leave"]
        owner = "an execution that is gone" if record is None else "nothing that its record knows"
        found = repairable_finding("stray", claim.key, f"{claim.member} stands for {owner}", repair)

        asked: Command = ["ZSCORE", claim.key, claim.member]
        return Probe([asked], lambda seen: [] if seen[0] is None else [found])

    def _of_pointer(self, claim: Claim, record: WorkflowRecord | None) -> Probe | None:
        """A pointer to an execution that is gone keeps its id from ever being used again."""
        if record is not None:
            return None
        found = repairable_finding(
            "stray", claim.key, f"{claim.execution}, which it names, is gone", ["DEL", claim.key]
        )
        return Probe([["GET", claim.key]], lambda seen: [found] if seen[0] == claim.execution else [])


def _audited(record: WorkflowRecord, entries: list[str] | None) -> list[RepairableFinding]:
    return [RepairableFinding(finding) for finding in audit(record, map(_json_or_text, entries or []))]


def _child(step_id: str, step: StepRecord, pointer: str | None, ttl_s: int) -> Iterator[RepairableFinding]:
    is_told = _has(token=str(step.token))
    if pointer is None:
        yield repairable_finding(
            "child", step_id, f"its child {step.child} does not exist", explained_by=is_told
        )
    elif ttl_s >= 0:
        yield repairable_finding(
            "child", step_id, f"its child {step.child} has ended, and it waits", explained_by=is_told
        )


def _is_free(taken: int, first_in_line: list[str]) -> bool:
    limit = first_in_line[0].partition("|")[0] if first_in_line else ""
    return limit.isdigit() and taken < int(limit)


def _has(**fields: str) -> EventPredicate:
    """Whether an event has all of these; a field that it lacks is empty."""
    return lambda event: all(event.get(name, "") == value for name, value in fields.items())


def _number(score: str | None) -> float | None:
    return None if score is None else float(score)


def _json(text: str | None) -> dict[str, Any]:
    found = _json_or_text(text or "")
    return found if isinstance(found, dict) else {}


def _json_or_text(text: str) -> Any:
    try:
        return loads(text)
    except (ValueError, RecursionError):
        return text
