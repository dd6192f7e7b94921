"""Probes: the queries about one execution, the expected replies, and the repairs of wrong ones.

All probes of an execution are run in one script, at one version of its record (query_at_version.lua), so that
a running system causes no false findings. A finding that a pending event explains is dropped
(`explained_by`).
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
from orchestrator.application.values.dispatch_tokens import dispatch_id
from orchestrator.redis_rq.commit_args import Command, flatten_fields
from orchestrator.redis_rq.json_codec import dumps, loads
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
    """A finding, the commands (repair.lua) that repair it, and the pending event that would explain it."""

    finding: Finding
    repairs: Sequence[Command] = ()
    explained_by: EventPredicate | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Probe:
    """Read commands, and a function that finds problems in their replies."""

    commands: Sequence[Command]
    evaluate: Callable[[list[Any]], Iterable[RepairableFinding]]


@dataclass(frozen=True, slots=True)
class Claim:
    """A member of a sorted set that names an execution, or an execution's pointer (then without a member)."""

    key: str
    member: str
    execution: str


def repairable_finding(
    code: str,
    where: str,
    text: str,
    *repairs: Command,
    explained_by: EventPredicate | None = None,
) -> RepairableFinding:
    return RepairableFinding(Finding(code, where, text), repairs, explained_by)


class Probes:
    """The probes of records, and of members that name them."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def of(self, record: WorkflowRecord, queues: Mapping[str, int]) -> Iterator[Probe]:
        """The probes of a record; `queues` are the last sequences of all RQ queues, by name."""
        weid, keys = record.workflow_execution_id, self._keys
        yield Probe([["LRANGE", keys.history(weid), 0, -1]], lambda found: _audit(record, found[0]))
        yield from self._indexes(record)
        yield self._pointer(record)
        yield from self._ttls(record)
        yield from self._timers(record)
        yield from self._leases(record, queues)
        for expected in expected_slots(record, keys):
            yield self._slot(record, expected)
        yield from self._relatives(record)
        if not record.is_final and not can_still_progress(record):
            yield Probe([["TIME"]], lambda _: [self._stuck(record)])

    # ---- what must exist

    def _indexes(self, record: WorkflowRecord) -> Iterator[Probe]:
        weid, keys = record.workflow_execution_id, self._keys
        expected = expected_indexes(record, keys)

        def evaluate(entry: tuple[str, str], score: float | None) -> Iterator[RepairableFinding]:
            (key, member), wanted = entry, expected.get(entry)
            if wanted is None:
                if score is not None:
                    text = "it is in an index where it does not belong"
                    yield repairable_finding("index", key, text, ["ZREM", key, member])
            elif score is None:
                yield repairable_finding(
                    "index", key, "it is missing from this index", ["ZADD", key, wanted, member]
                )
            elif score != wanted:
                text = f"its score is {score}, and should be {wanted}"
                yield repairable_finding("index", key, text, ["ZADD", key, wanted, member])

        for entry in {**expected, **dict.fromkeys((keys.index(status), weid) for status in WorkflowStatus)}:
            yield Probe(
                [["ZSCORE", *entry]],
                lambda found, entry=entry: evaluate(entry, _parse_score(found[0])),  # type: ignore[misc]
            )

    def _pointer(self, record: WorkflowRecord) -> Probe:
        weid, key = record.workflow_execution_id, self._keys.execution(record.execution_id)

        def evaluate(found: list[Any]) -> Iterator[RepairableFinding]:
            if found[0] is None:
                yield repairable_finding("pointer", key, "it is missing", ["SET", key, weid])
            elif found[0] != weid:
                yield repairable_finding("pointer", key, f"it points to {found[0]}")

        return Probe([["GET", key]], evaluate)

    def _ttls(self, record: WorkflowRecord) -> Iterator[Probe]:
        """The keys of an open execution do not expire. Those of an ended one are deleted by the coordinators
        at the end of its retention."""
        weid, keys = record.workflow_execution_id, self._keys
        own = [
            keys.workflow(weid),
            keys.history(weid),
            keys.step_log(weid),
            keys.execution(record.execution_id),
            keys.spec(record.workflow_id),
        ]

        def evaluate(key: str, ttl_s: int | None) -> Iterator[RepairableFinding]:
            if ttl_s is not None and ttl_s >= 0:
                text = "it has a TTL, but the execution has not ended"
                yield repairable_finding("term", key, text, ["PERSIST", key])

        for key in () if record.is_final else own:
            yield Probe([["TTL", key]], lambda found, key=key: evaluate(key, found[0]))  # type: ignore[misc]

    def _timers(self, record: WorkflowRecord) -> Iterator[Probe]:
        weid, key = record.workflow_execution_id, self._keys.timers

        for member, timer in expected_timers(record).items():

            def evaluate(
                found: list[Any], member: str = member, timer: Any = timer
            ) -> Iterator[RepairableFinding]:
                score, repair = _parse_score(found[0]), ["ZADD", key, timer.due_ms, member]
                if score is None:
                    text = (
                        f"the timer {timer.kind} of {dispatch_id(timer.token) or 'the workflow'} is missing"
                    )
                    event = _has(type=timer.kind, execution=weid, step=timer.step_id, token=timer.token)
                    yield repairable_finding("timer", timer.step_id, text, repair, explained_by=event)
                elif score != timer.due_ms:
                    text = f"the timer {timer.kind} is due at {score:.0f}, and should be at {timer.due_ms}"
                    yield repairable_finding("timer", timer.step_id, text, repair)

            yield Probe([["ZSCORE", key, member]], evaluate)

    def _leases(self, record: WorkflowRecord, queues: Mapping[str, int]) -> Iterator[Probe]:
        """A dispatch is detected as lost when its lease is due. While its job waits in a queue, the score of
        the lease is a sequence of the queue: only by that the lease becomes due after the job has left."""
        weid, keys = record.workflow_execution_id, self._keys
        for member, (unit, one) in expected_leases(record).items():
            token = str(one.token)
            repair: Command = ["lease", keys.leases, member]

            def evaluate(
                found: list[Any], unit: str = unit, token: str = token, repair: Command = repair
            ) -> Iterator[RepairableFinding]:
                score = _parse_score(found[0])
                if score is None:
                    text = f"dispatch {dispatch_id(token)} has no lease"
                    event = _names_dispatch(weid, token)
                    yield repairable_finding("lease", unit, text, repair, explained_by=event)
                elif score >= FIRST_SEQUENCE and not is_queue_sequence(score, queues.values()):
                    name = dispatch_id(token)
                    text = f"dispatch {name} has a lease that is never due, but its job waits in no queue"
                    yield repairable_finding("lease", unit, text, repair)

            yield Probe([["ZSCORE", keys.leases, member]], evaluate)

    def _slot(self, record: WorkflowRecord, expected: ExpectedSlot) -> Probe:
        """A unit with a slot is among the holders. A unit that waits for one is among the waiters, or among
        the holders with a pending event. No slot is free while a unit waits."""
        keys, weid, slot = self._keys, record.workflow_execution_id, expected.slot
        holders, waiters = keys.slot_holders(slot.key), keys.slot_waiters(slot.key)

        def evaluate(found: list[Any]) -> Iterator[RepairableFinding]:
            is_holder, is_waiter = found[0] is not None, found[1] is not None
            if slot.is_held and not is_holder:
                text = f"it has a slot of the key {slot.key!r}, but is not among the holders"
                take: Command = ["slot", holders, waiters, expected.member, "take"]
                yield repairable_finding("place", expected.unit, text, take)
            elif not slot.is_held and is_holder:
                event = {"type": "slot", "execution": weid, "step": expected.unit, "token": slot.token}
                text = f"it was granted a slot of the key {slot.key!r}, but there is no event for it"
                publish: Command = ["XADD", keys.events_of(weid), "*", *flatten_fields(event)]
                yield repairable_finding("place", expected.unit, text, publish, explained_by=_has(**event))
            elif not slot.is_held and not is_waiter:
                text = f"it waits for a slot of the key {slot.key!r}, but is not among the waiters"
                wait: Command = ["slot", holders, waiters, expected.member, "wait"]
                yield repairable_finding("place", expected.unit, text, wait)
            if _has_free_slot(found[2], found[3] or []):
                text = f"the key {slot.key!r} has a free slot and a waiter"
                grant: Command = ["slot", holders, waiters, "", "leave"]
                yield repairable_finding("place", expected.unit, text, grant)

        scores: list[Command] = [["ZSCORE", holders, expected.member], ["ZSCORE", waiters, expected.member]]
        return Probe([*scores, ["ZCARD", holders], ["ZRANGE", waiters, 0, 0]], evaluate)

    def _relatives(self, record: WorkflowRecord) -> Iterator[Probe]:
        """The parent of an open child waits for it, and the child of a waiting step has not ended."""
        keys = self._keys
        if (
            record.parent is not None
            and not record.is_final
            and record.status is not WorkflowStatus.COMPENSATING
        ):
            parent = record.parent
            ids = (record.workflow_execution_id, record.execution_id)
            field = f"step:{parent.step_id}"
            orphan = repairable_finding(
                "orphan",
                "",
                f"step {parent.step_id} of {parent.execution} does not wait for it",
                explained_by=lambda event: event.get("type") == "control" and event.get("execution") in ids,
            )

            def evaluate(found: list[Any]) -> list[RepairableFinding]:
                step = _parse_object(found[0])
                waits = (step.get("token"), step.get("child")) == (parent.token, record.execution_id)
                return [] if waits else [orphan]

            yield Probe([["HGET", keys.workflow(parent.execution), field]], evaluate)
        for step_id, step in record.steps.items():
            if step.token is not None and step.child is not None:
                pointer = keys.execution(step.child)
                yield Probe(
                    [["GET", pointer], ["TTL", pointer]],
                    lambda found, step_id=step_id, step=step: _evaluate_child(step_id, step, *found),  # type: ignore[misc]
                )

    def _stuck(self, record: WorkflowRecord) -> RepairableFinding:
        weid = record.workflow_execution_id
        push: Command = ["XADD", self._keys.events_of(weid), "*", "type", "continue", "execution", weid]
        text = "it has not ended, waits for nothing, and no event is pending for it"
        return repairable_finding(
            "stuck", "", text, push, explained_by=lambda event: event.get("execution") == weid
        )

    # ---- what must not exist

    def probe_for_claim(self, claim: Claim, record: WorkflowRecord | None) -> Probe | None:
        """The probe of a member; None when it belongs to the record, or a probe of the record covers it."""
        keys = self._keys
        if record is not None and claim.key in map(keys.index, WorkflowStatus):
            return None
        if record is not None and (claim.key, claim.member) in set(expected_members(record, keys)):
            return None
        if claim.key.startswith(keys.execution("")):
            return self._probe_for_pointer(claim, record)
        repair: Command = ["ZREM", claim.key, claim.member]
        for prefix in (keys.slot_holders(""), keys.slot_waiters("")):
            if claim.key.startswith(prefix):
                key = claim.key.removeprefix(prefix)
                repair = ["slot", keys.slot_holders(key), keys.slot_waiters(key), claim.member, "leave"]
        owner = "an execution that does not exist" if record is None else "nothing in its record"
        stray = repairable_finding("stray", claim.key, f"{claim.member} belongs to {owner}", repair)

        score: Command = ["ZSCORE", claim.key, claim.member]
        return Probe([score], lambda found: [] if found[0] is None else [stray])

    def _probe_for_pointer(self, claim: Claim, record: WorkflowRecord | None) -> Probe | None:
        """A pointer to a missing execution would block its execution id for ever."""
        if record is not None:
            return None
        stray = repairable_finding(
            "stray", claim.key, f"it points to {claim.execution}, which does not exist", ["DEL", claim.key]
        )
        return Probe([["GET", claim.key]], lambda found: [stray] if found[0] == claim.execution else [])


def _audit(record: WorkflowRecord, entries: list[str] | None) -> list[RepairableFinding]:
    history = map(_parse_json_or_text, entries or [])
    return [RepairableFinding(finding) for finding in audit(record, history, dumps)]


def _evaluate_child(
    step_id: str, step: StepRecord, pointer: str | None, ttl_s: int
) -> Iterator[RepairableFinding]:
    event = _has(token=str(step.token))
    if pointer is None:
        text = f"its child {step.child} does not exist"
        yield repairable_finding("child", step_id, text, explained_by=event)
    elif ttl_s >= 0:
        text = f"its child {step.child} has ended, but the step still waits"
        yield repairable_finding("child", step_id, text, explained_by=event)


def _has_free_slot(holders: int, first_waiter: list[str]) -> bool:
    limit = first_waiter[0].partition("|")[0] if first_waiter else ""
    return limit.isdigit() and holders < int(limit)


def _has(**fields: str) -> EventPredicate:
    """A predicate for events with all of these fields; a missing field counts as empty."""
    return lambda event: all(event.get(name, "") == value for name, value in fields.items())


def _names_dispatch(workflow_execution_id: str, token: str) -> EventPredicate:
    """A predicate for events of a dispatch. A sweep that publishes a loss knows its id only."""
    names = (token, dispatch_id(token))
    return lambda event: event.get("execution") == workflow_execution_id and event.get("token") in names


def _parse_score(score: str | None) -> float | None:
    return None if score is None else float(score)


def _parse_object(text: str | None) -> dict[str, Any]:
    found = _parse_json_or_text(text or "")
    return found if isinstance(found, dict) else {}


def _parse_json_or_text(text: str) -> Any:
    try:
        return loads(text)
    except (ValueError, RecursionError):
        return text
