"""Why an execution does not get on: what each of its open steps waits for, in words.

Nothing is asked here but the record and the time. What only Redis knows (who holds a key, where a job stands
in its queue, whether anybody serves it) is added by `orchestrator/diagnosis/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from orchestrator.application.engine.dependencies import JoinState, join
from orchestrator.application.engine.draft import Draft
from orchestrator.application.errors import ExpressionError
from orchestrator.application.explain.root_cause import (
    describe_finish,
    describe_pending_finish,
    describe_root_cause,
)
from orchestrator.application.explain.text import (
    format_ago,
    format_duration,
    format_status,
    join_names,
    summarize_error,
)
from orchestrator.application.records.events import Moment, iso
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import ItemCounts, StepRecord
from orchestrator.application.spec.model import COMPENSATION_PART, StepSpec

S, W = StepStatus, WorkflowStatus

MAX_ITEMS_SHOWN = 10
OVERDUE_ADVICE = "nobody has acted on it: is a coordinator running? (orchestrator doctor)"


class ReasonCode(StrEnum):
    """What a record alone can say. A step, or an execution, that has ended has its status as its code."""

    PARENTS = "parents"
    PAUSED = "paused"
    HELD = "held"
    SIGNAL = "signal"
    DEFERRED = "deferred"
    DELAY = "delay"
    RETRY = "retry"
    WAITING_FOR_SLOT = "in_line"
    MAX_WORKERS = "no_room"
    MAX_PARALLEL = "max_parallel"
    READY = "ready"
    LOST = "lost"
    DISPATCHED = "dispatched"
    RUNNING = "running"
    ITEMS = "items"
    CHILD = "child"
    COMPENSATING = "compensating"
    COMPLETE = "complete"
    HALTED = "halted"
    FAILED = "failed"
    SKIPPED = "skipped"
    FILTERED = "filtered"
    CANCELLED = "cancelled"
    NEVER_RAN = "never_ran"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why something does not get on.

    `step` is a step, an item of a map (`<step>#<n>`) or a compensation (`<step>#undo`), and empty when the
    whole execution is meant. `until_ms` is when it passes by itself, `advice` what somebody can do about it.
    """

    code: str
    words: str
    step: str = ""
    until_ms: int | None = None
    advice: str = ""


def reasons(record: WorkflowRecord, now_ms: int, since_ms: int | None = None) -> list[Reason]:
    """Why the execution and each of its open steps do not get on. `since_ms` is when it came to the status
    that it has, if the caller knows."""
    found = explain_execution_status(record, now_ms, since_ms)
    if record.is_final:
        return found
    for step_id in record.graph.order:
        if not record.steps[step_id].is_final:
            found += explain_unit_status(record, step_id, now_ms)
    compensation_step = (record.ending or {}).get("undoing")
    return found + (
        explain_unit_status(record, compensation_step, now_ms) if compensation_step is not None else []
    )


def explain_unit(record: WorkflowRecord, unit: str, now_ms: int, since_ms: int | None = None) -> list[Reason]:
    """Why one step, item or compensation does not get on: with those above it that everything hangs on.
    LookupError when there is none of that name."""
    found = [*explain_execution_status(record, now_ms, since_ms), *explain_unit_status(record, unit, now_ms)]
    if any(reason.code == ReasonCode.PARENTS for reason in found):
        found += [
            reason for one in _open_above(record, unit) for reason in explain_unit_status(record, one, now_ms)
        ]
    return found


def explain_execution_status(
    record: WorkflowRecord, now_ms: int, since_ms: int | None = None
) -> list[Reason]:
    """Why the execution as a whole does not get on; nothing while only its steps matter."""
    if record.is_final:
        name, step_id = record.execution_id, (record.error or {}).get("step")
        where = f" --step {step_id}" if step_id else " --json"
        shown, again = f"orchestrator show {name}{where}", f"orchestrator retry {name}"
        advice = f"{shown} shows all of the error; {again} runs it again"
        is_failed = record.status is W.FAILED
        words = describe_finish(record, now_ms)
        return [Reason(ReasonCode(record.status.value), words, advice=advice if is_failed else "")]
    since = f" for {format_duration(now_ms - since_ms)}" if since_ms is not None else ""
    if record.status is W.PAUSED:
        words = f"the execution has been paused{since}: nothing new is dispatched, and what runs goes on"
        advice = f"orchestrator unpause {record.execution_id} lets it go on"
        return [Reason(ReasonCode.PAUSED, words, advice=advice)]
    if record.status is W.COMPENSATING:
        words = f"the execution has been undoing what was done{since}; {describe_pending_finish(record)}"
        return [Reason(ReasonCode.COMPENSATING, words)]
    if record.slot is not None and not record.slot["is_held"]:
        return [
            Reason(
                ReasonCode.WAITING_FOR_SLOT,
                _in_line(describe_unit(""), record.slot["key"], record.slot["limit"]),
            )
        ]
    return []


def explain_unit_status(record: WorkflowRecord, unit: str, now_ms: int) -> list[Reason]:
    """Why one unit does not get on; of a map, its items that are under way too."""
    look = _Look.at(record, unit, now_ms)
    step = look.step
    if step.is_final:
        return [_settled(look)]
    if record.is_final:
        words = f"{look.subject} was never run: the execution is {format_status(record.status)}"
        return [look.reason(ReasonCode.NEVER_RAN, words)]
    match step.status:
        case S.READY:
            return [_ready(look)]
        case S.ON_HOLD:
            words = f"{look.subject} is held (it was {format_status(step.held or S.READY)})"
            advice = f"orchestrator release {record.execution_id} {unit} lets it go on"
            return [look.reason(ReasonCode.HELD, words, advice=advice)]
        case S.WAITING:
            return [_waiting(look)]
        case S.DEFERRED:
            return [_deferred(look)]
        case S.RETRY:
            return [_retrying(look)]
    return _in_progress(look)


def describe_unit(unit: str) -> str:
    """A unit as people call it; the execution itself if it is empty."""
    step_id, _, part = unit.partition("#")
    if part == COMPENSATION_PART:
        return f"the compensation of step {step_id}"
    if part:
        return f"item {part} of step {step_id}"
    return f"step {step_id}" if unit else "the execution"


@dataclass(frozen=True, slots=True)
class _Look:
    """A unit that somebody asks about."""

    record: WorkflowRecord
    unit: str
    now_ms: int
    step: StepRecord
    spec: StepSpec

    @classmethod
    def at(cls, record: WorkflowRecord, unit: str, now_ms: int) -> _Look:
        step_id, _, part = unit.partition("#")
        step = record.items[unit] if part else record.steps[unit]
        spec = record.spec.steps[record.graph.index[step_id]]
        return cls(record, unit, now_ms, step, spec.compensation_step if part == COMPENSATION_PART else spec)

    @property
    def subject(self) -> str:
        return describe_unit(self.unit)

    @property
    def counts(self) -> ItemCounts | None:
        """The map that this unit is an item of."""
        step_id, _, part = self.unit.partition("#")
        return self.record.steps[step_id].items if part and part != COMPENSATION_PART else None

    def reason(self, code: ReasonCode, words: str, until_ms: int | None = None, advice: str = "") -> Reason:
        is_overdue = until_ms is not None and until_ms <= self.now_ms
        return Reason(code, words, self.unit, until_ms, advice or (OVERDUE_ADVICE if is_overdue else ""))

    def format_ago(self, at: str | None) -> str:
        return format_ago(at, self.now_ms)

    def when(self, due_ms: int) -> str:
        if due_ms <= self.now_ms:
            return f", overdue by {format_duration(self.now_ms - due_ms)} (due at {iso(due_ms)})"
        return f" in {format_duration(due_ms - self.now_ms)}, at {iso(due_ms)}"


# ---- waiting


def _ready(look: _Look) -> Reason:
    if "#" not in look.unit:
        parents = look.record.graph.parents[look.unit]
        unmet = [one for one in parents if not look.record.steps[one].is_final]
        if unmet and _must_wait(look, len(unmet)):
            joined = "" if look.spec.join == "all" else f" (its join is {_join(look.spec.join)})"
            awaited = join_names([f"{one} ({format_status(look.record.steps[one].status)})" for one in unmet])
            return look.reason(ReasonCode.PARENTS, f"{look.subject} waits for {awaited}{joined}")
    return _held_back(look, f"{look.subject} could run")


def _must_wait(look: _Look, unmet: int) -> bool:
    """Whether the parents that have not ended are needed: a join may do without some of them."""
    if not look.record.graph.may_join(look.unit, unmet):
        return True
    try:
        return join(Draft(look.record, Moment(look.now_ms, "")), look.unit) is JoinState.WAIT
    except ExpressionError:
        return False  # whoever decides upon it next will fail it


def _waiting(look: _Look) -> Reason:
    spec, until_ms = look.spec.wait, look.step.deadline_ms
    assert spec is not None, "only a wait is waiting"
    names = " or ".join(map(repr, spec.signals))
    words = f"{look.subject} waits for the signal {names}"
    send = f"orchestrator signal {look.record.execution_id} {spec.signals[0]} lets it go on"
    if until_ms is None:
        return look.reason(ReasonCode.SIGNAL, f"{words}, for as long as it takes", advice=send)
    then = "it fails" if spec.on_timeout == "fail" else "it goes on without it"
    advice = send if until_ms > look.now_ms else ""
    return look.reason(ReasonCode.SIGNAL, f"{words}; {then}{look.when(until_ms)}", until_ms, advice)


def _deferred(look: _Look) -> Reason:
    until_ms = look.step.wake_at_ms
    if until_ms is None:
        return _held_back(look, f"{look.subject} was deferred, and is due")
    is_delay = look.spec.kind == "delay" and not (look.spec.defer_ms and not look.step.iteration)
    verb = "is a delay that ends" if is_delay else "is deferred and may run"
    code = ReasonCode.DELAY if is_delay else ReasonCode.DEFERRED
    return look.reason(code, f"{look.subject} {verb}{look.when(until_ms)}", until_ms)


def _retrying(look: _Look) -> Reason:
    step, until_ms = look.step, look.step.not_before_ms
    failed = f"; the last one failed: {summarize_error(step.error)}" if step.error is not None else ""
    if until_ms is None:
        return _held_back(look, f"attempt {step.attempt} of {look.subject} is due{failed}")
    words = f"{look.subject} is tried again{look.when(until_ms)} (attempt {step.attempt}){failed}"
    return look.reason(ReasonCode.RETRY, words, until_ms)


def _held_back(look: _Look, could: str) -> Reason:
    """Of a unit that could be dispatched as far as it goes itself: what is in its way."""
    record, counts, slot = look.record, look.counts, look.step.slot
    if record.status is W.PAUSED:
        return look.reason(ReasonCode.PAUSED, f"{could}, but the execution is paused")
    if record.slot is not None and not record.slot["is_held"]:
        return look.reason(
            ReasonCode.WAITING_FOR_SLOT, f"{could}, but the execution itself has to stand in line first"
        )
    if slot is not None and not slot.is_held:
        return look.reason(ReasonCode.WAITING_FOR_SLOT, _in_line(look.subject, slot.key, slot.limit))
    if counts is not None and counts.most is not None and counts.out >= counts.most:
        words = f"{could}, but map.max_parallel is {counts.most}, and {counts.out} items are out"
        return look.reason(ReasonCode.MAX_PARALLEL, words)
    most = record.spec.max_workers
    if most is not None and record.readiness.in_flight >= most and record.status is not W.COMPENSATING:
        flying = join_names(name for name, one in record.units() if one.token is not None)
        words = f"{could}, but runner.max_workers is {most}, and so many are in flight: {flying}"
        return look.reason(ReasonCode.MAX_WORKERS, words)
    words = f"{could} at once; no coordinator has got to it yet"
    return look.reason(ReasonCode.READY, words, advice="if that stays so, look at orchestrator doctor")


def _in_line(subject: str, key: str, limit: int) -> str:
    return f"{subject} stands in line for a place under the concurrency key {key!r} (limit {limit})"


def _open_above(record: WorkflowRecord, step_id: str) -> list[str]:
    """The open steps above this one that wait for no parent themselves, in spec order."""
    found, todo, seen = [], [step_id], {step_id}
    while todo:
        one = todo.pop()
        above = [parent for parent in record.graph.parents[one] if not record.steps[parent].is_final]
        if not above and one != step_id:
            found.append(one)
        todo += [parent for parent in above if parent not in seen]
        seen.update(above)
    return sorted(set(found), key=record.graph.index.__getitem__)


# ---- under way


def _in_progress(look: _Look) -> list[Reason]:
    step = look.step
    if step.items is not None:
        return _map(look, step.items)
    if step.token is None:
        lost = f"the worker of {look.subject} was lost ({step.reason or 'nobody knows why'})"
        again = _held_back(look, f"{lost}; it could be dispatched again")
        return [
            look.reason(ReasonCode.LOST, again.words, advice=again.advice) if again.code == "ready" else again
        ]
    until = f"; it times out{look.when(step.deadline_ms)}" if step.deadline_ms is not None else ""
    if step.child is not None:
        words = (
            f"{look.subject} waits for its child {step.child}, asked for{look.format_ago(step.dispatched_at)}"
        )
        return [look.reason(ReasonCode.CHILD, words + until, step.deadline_ms)]
    if step.started_at is None:
        words = (
            f"{look.subject} was dispatched{look.format_ago(step.dispatched_at)}, and no worker has said that"
            " it began (they do after a second)"
        )
        return [look.reason(ReasonCode.DISPATCHED, words)]
    where = f" on {step.worker}" if step.worker else ""
    tries = f" (attempt {step.attempt})" if step.attempt > 1 else ""
    words = f"{look.subject} began{look.format_ago(step.started_at)}{where}{tries} and has not ended{until}"
    return [look.reason(ReasonCode.RUNNING, words, step.deadline_ms)]


def _map(look: _Look, counts: ItemCounts) -> list[Reason]:
    errors = f", {counts.errors} of them with an error" if counts.errors else ""
    words = (
        f"{look.subject}: {counts.settled} of {counts.count} items have ended{errors}; {counts.out} are out"
    )
    found = [look.reason(ReasonCode.ITEMS, words)]
    names = [f"{look.unit}#{n}" for n in range(counts.count)]
    waits = sum(1 for name in names if look.record.items[name].awaits_dispatch)
    if counts.fatal:
        found = [look.reason(ReasonCode.ITEMS, f"{words}, and after a failed one no other is dispatched")]
    elif waits:
        first = look.record.readiness.due.get(look.unit, [counts.next])[0]
        item = _Look.at(look.record, f"{look.unit}#{first}", look.now_ms)
        what = "item" if waits == 1 else "items"
        kept = _held_back(item, f"{waits} more {what} of {look.subject} could run")
        found.append(look.reason(ReasonCode(kept.code), kept.words, advice=kept.advice))
    active = [name for name in names if _is_under_way(look.record.items[name])]
    for name in active[:MAX_ITEMS_SHOWN]:
        found += explain_unit_status(look.record, name, look.now_ms)
    if len(active) > MAX_ITEMS_SHOWN:
        more = f"{len(active) - MAX_ITEMS_SHOWN} more items of {look.subject} are under way"
        found.append(look.reason(ReasonCode.ITEMS, more))
    return found


def _is_under_way(item: StepRecord) -> bool:
    return item.token is not None or item.not_before_ms is not None


# ---- at an end


def _settled(look: _Look) -> Reason:
    step, ended = look.step, look.format_ago(look.step.ended_at)
    match step.status:
        case S.COMPLETE:
            words = f"{look.subject} completed{ended}"
        case S.HALTED:
            words = f"a branch of {look.subject} halted the execution{ended}"
        case S.FAILED:
            tries = f" (attempt {step.attempt})" if step.attempt > 1 else ""
            words = f"{look.subject} failed for good{ended}{tries}: {summarize_error(step.error or {})}"
        case _:
            why = (
                summarize_error(step.error)
                if step.error is not None
                else step.reason or "no reason was given"
            )
            began = describe_root_cause(look.record, look.unit) if look.unit in look.record.steps else ""
            words = f"{look.subject} was {format_status(step.status)}{ended}: {why}{began}"
    advice = ""
    if step.error is not None and "child" in step.error:
        advice = f"the child tells more: orchestrator why {step.error['child']}"
    return look.reason(ReasonCode(step.status.value), words, advice=advice)


def _join(wanted: Any) -> str:
    return "an expression" if isinstance(wanted, dict) else str(wanted)
