"""Explains why an execution makes no progress: the reason for each of its open steps.

The reasons come from the record and the time alone. `orchestrator/diagnosis/` adds what only Redis shows:
which execution holds a concurrency key, where a job is in its queue, and whether a worker serves that queue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from orchestrator.application.engine.dependencies import JoinState, evaluate_join
from orchestrator.application.engine.draft import Draft
from orchestrator.application.errors import ExpressionError
from orchestrator.application.explain.root_cause import (
    advise_after_failure,
    describe_finish,
    describe_pending_finish,
    describe_root_cause,
)
from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.explain.text import (
    describe_requester,
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
from orchestrator.application.spec.model import WEBHOOK_STEP, StepSpec
from orchestrator.application.values.unit_id import WEBHOOK_UNIT, UnitId

S, W = StepStatus, WorkflowStatus

MAX_ITEMS_SHOWN = 10
WEBHOOK_ADVICE = "this end is not posted again: correct the cause for the next executions"
OVERDUE_ADVICE = "no coordinator has acted on it; check that one is running: orchestrator doctor"


class ReasonCode(StrEnum):
    """Reasons that a record shows. A step or an execution that has ended has its status as its code."""

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
    DECLINED = "declined"
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
    """One reason why an execution or a step makes no progress.

    `step` is a step, an item of a map (`<step>#<n>`), a compensation (`<step>#undo`) or the webhook
    (`#webhook`), and empty for the execution itself. `until_ms` is when the reason goes away by itself.
    `advice` is what an operator can do.
    """

    code: str
    words: str
    step: str = ""
    until_ms: int | None = None
    advice: str = ""


def explain_execution(view: StatusView, now_ms: int, since_ms: int | None = None) -> list[Reason]:
    """Explain why the execution and each of its open steps make no progress.

    `since_ms` is when the execution reached its present status, if the caller knows it.
    """
    record = view.record
    found = explain_execution_status(record, now_ms, since_ms)
    if record.is_final:
        return found + _explain_undelivered_webhook(view, now_ms)
    for step_id in record.graph.order:
        if not record.steps[step_id].is_final:
            found += explain_unit_status(view, step_id, now_ms)
    compensation_step = (record.ending or {}).get("undoing")
    return found + (
        explain_unit_status(view, compensation_step, now_ms) if compensation_step is not None else []
    )


def _explain_undelivered_webhook(view: StatusView, now_ms: int) -> list[Reason]:
    """Explain why the end of an execution was not posted, or not yet; empty if it was, or need not be."""
    webhook = view.record.items.get(WEBHOOK_UNIT)
    if webhook is None or webhook.status is S.COMPLETE:
        return []
    return explain_unit_status(view, WEBHOOK_UNIT, now_ms)


def explain_unit(view: StatusView, unit: str, now_ms: int, since_ms: int | None = None) -> list[Reason]:
    """Explain why one step, item or compensation makes no progress, including the open steps it depends on.

    Raises LookupError if the record has no unit of that name.
    """
    record = view.record
    found = [*explain_execution_status(record, now_ms, since_ms), *explain_unit_status(view, unit, now_ms)]
    if any(reason.code == ReasonCode.PARENTS for reason in found):
        for ancestor in _blocking_ancestors(record, unit):
            found += explain_unit_status(view, ancestor, now_ms)
    return found


def explain_execution_status(
    record: WorkflowRecord, now_ms: int, since_ms: int | None = None
) -> list[Reason]:
    """Explain why the execution as a whole makes no progress; empty if only its steps hold it up."""
    if record.is_final:
        advice = advise_after_failure(record) if record.status is W.FAILED else ""
        return [Reason(ReasonCode(record.status.value), describe_finish(record, now_ms), advice=advice)]
    since = f" for {format_duration(now_ms - since_ms)}" if since_ms is not None else ""
    if record.status is W.PAUSED:
        paused = f"paused{since}{describe_requester(record.pause_details or {})}"
        words = f"the execution has been {paused}: no step is dispatched; running steps continue"
        advice = f"resume it: orchestrator unpause {record.execution_id}"
        return [Reason(ReasonCode.PAUSED, words, advice=advice)]
    if record.status is W.COMPENSATING:
        words = f"the execution has been compensating{since}; {describe_pending_finish(record)}"
        return [Reason(ReasonCode.COMPENSATING, words)]
    if record.slot is not None and not record.slot.is_held:
        words = _waits_for_slot(describe_unit(""), record.slot.key, record.slot.limit)
        return [Reason(ReasonCode.WAITING_FOR_SLOT, words)]
    return []


def explain_unit_status(view: StatusView, unit: str, now_ms: int) -> list[Reason]:
    """Explain why one unit makes no progress; for a map, its active items too."""
    query = _UnitQuery.of(view, unit, now_ms)
    record, step = query.record, query.step
    if step.is_final:
        return [_explain_final(query)]
    if record.is_final and not UnitId(unit).is_webhook:
        words = f"{query.subject} never ran: the execution is {format_status(record.status)}"
        return [query.reason(ReasonCode.NEVER_RAN, words)]
    match step.status:
        case S.READY:
            return [_explain_ready(query)]
        case S.ON_HOLD:
            words = f"{query.subject} is held (previous status: {format_status(step.held or S.READY)})"
            advice = f"release it: orchestrator release-step {record.execution_id} {unit}"
            return [query.reason(ReasonCode.HELD, words, advice=advice)]
        case S.WAITING:
            return [_explain_signal(query)]
        case S.DEFERRED:
            return [_explain_deferred(query)]
        case S.RETRY:
            return [_explain_retry(query)]
    return _explain_in_progress(query)


def describe_unit(unit: str) -> str:
    """Name a unit for people to read; the empty unit is the execution itself."""
    unit_id = UnitId(unit)
    if unit_id.is_webhook:
        return "the webhook"
    if unit_id.is_compensation:
        return f"the compensation of step {unit_id.step_id}"
    if unit_id.part:
        return f"item {unit_id.part} of step {unit_id.step_id}"
    return f"step {unit}" if unit else "the execution"


@dataclass(frozen=True, slots=True)
class _UnitQuery:
    """The unit to explain, with its record and the time."""

    view: StatusView
    unit: str
    now_ms: int
    step: StepRecord
    spec: StepSpec

    @classmethod
    def of(cls, view: StatusView, unit: str, now_ms: int) -> _UnitQuery:
        record, unit_id = view.record, UnitId(unit)
        step = record.steps[unit] if unit_id.is_step else record.items[unit]
        if unit_id.is_webhook:
            return cls(view, unit, now_ms, step, WEBHOOK_STEP)
        spec = record.spec.steps[record.graph.index[unit_id.step_id]]
        return cls(view, unit, now_ms, step, spec.compensation_step if unit_id.is_compensation else spec)

    @property
    def record(self) -> WorkflowRecord:
        return self.view.record

    @property
    def subject(self) -> str:
        return describe_unit(self.unit)

    @property
    def map_counts(self) -> ItemCounts | None:
        """The counters of the map that this unit is an item of; None for any other unit."""
        unit_id = UnitId(self.unit)
        return self.record.steps[unit_id.step_id].items if unit_id.is_item else None

    def reason(self, code: ReasonCode, words: str, until_ms: int | None = None, advice: str = "") -> Reason:
        is_overdue = until_ms is not None and until_ms <= self.now_ms
        return Reason(code, words, self.unit, until_ms, advice or (OVERDUE_ADVICE if is_overdue else ""))

    def ago(self, at: str | None) -> str:
        return format_ago(at, self.now_ms)

    def due(self, due_ms: int) -> str:
        if due_ms <= self.now_ms:
            return f"overdue by {format_duration(self.now_ms - due_ms)} (due at {iso(due_ms)})"
        return f"due in {format_duration(due_ms - self.now_ms)}, at {iso(due_ms)}"


# ---- units that wait


def _explain_ready(query: _UnitQuery) -> Reason:
    if UnitId(query.unit).is_step:
        steps = query.record.steps
        unmet = [one for one in query.record.graph.parents[query.unit] if not steps[one].is_final]
        if unmet and _must_wait(query, len(unmet)):
            join_rule = "" if query.spec.join == "all" else f" (join: {_describe_join(query.spec.join)})"
            parents = join_names(
                f"{one} ({format_status(query.view.status_of(one, steps[one]))})" for one in unmet
            )
            return query.reason(ReasonCode.PARENTS, f"{query.subject} waits for {parents}{join_rule}")
    return _explain_not_dispatched(query, f"{query.subject} is ready")


def _must_wait(query: _UnitQuery, unmet: int) -> bool:
    """Whether the step needs the parents that have not ended; a join may be met without some of them."""
    if not query.record.graph.may_join(query.unit, unmet):
        return True
    try:
        return evaluate_join(Draft(query.record, Moment(query.now_ms, "")), query.unit) is JoinState.WAIT
    except ExpressionError:
        return False  # the next decision fails the step


def _explain_signal(query: _UnitQuery) -> Reason:
    spec, until_ms = query.spec.wait, query.step.deadline_ms
    assert spec is not None, "only a wait step has the status waiting"
    words = f"{query.subject} waits for the signal {' or '.join(map(repr, spec.signals))}"
    send = f"send it: orchestrator signal {query.record.execution_id} {spec.signals[0]}"
    if until_ms is None:
        return query.reason(ReasonCode.SIGNAL, f"{words}, without a timeout", advice=send)
    then = "it fails" if spec.on_timeout == "fail" else "it continues without the signal"
    words = f"{words}; its timeout is {query.due(until_ms)}, then {then}"
    return query.reason(ReasonCode.SIGNAL, words, until_ms, send if until_ms > query.now_ms else "")


def _explain_deferred(query: _UnitQuery) -> Reason:
    until_ms = query.step.wake_at_ms
    if until_ms is None:
        return _explain_not_dispatched(query, f"{query.subject} was deferred and is now ready")
    is_delay = query.spec.kind == "delay" and not (query.spec.defer_ms and not query.step.iteration)
    state = "is a delay" if is_delay else "is deferred"
    code = ReasonCode.DELAY if is_delay else ReasonCode.DEFERRED
    return query.reason(code, f"{query.subject} {state}, {query.due(until_ms)}", until_ms)


def _explain_retry(query: _UnitQuery) -> Reason:
    step, until_ms = query.step, query.step.not_before_ms
    error = f"; the last attempt failed: {summarize_error(step.error)}" if step.error is not None else ""
    if until_ms is None:
        reason = _explain_not_dispatched(query, f"attempt {step.attempt} of {query.subject} is ready")
        return replace(reason, words=f"{reason.words}{error}")
    words = f"attempt {step.attempt} of {query.subject} is {query.due(until_ms)}{error}"
    return query.reason(ReasonCode.RETRY, words, until_ms)


def _explain_not_dispatched(query: _UnitQuery, state: str) -> Reason:
    """Explain why a unit is not dispatched although it is ready. `state` is the start of the sentence."""
    record, counts, slot = query.record, query.map_counts, query.step.slot
    if record.status is W.PAUSED:
        return query.reason(ReasonCode.PAUSED, f"{state}, but the execution is paused")
    if record.slot is not None and not record.slot.is_held:
        words = f"{state}, but the execution itself waits for a concurrency slot"
        return query.reason(ReasonCode.WAITING_FOR_SLOT, words)
    if slot is not None and not slot.is_held:
        return query.reason(ReasonCode.WAITING_FOR_SLOT, _waits_for_slot(query.subject, slot.key, slot.limit))
    if counts is not None and counts.most is not None and counts.out >= counts.most:
        words = f"{state}, but map.max_parallel ({counts.most}) is reached; items in flight: {counts.out}"
        return query.reason(ReasonCode.MAX_PARALLEL, words)
    max_workers = record.spec.max_workers
    if (
        max_workers is not None
        and record.readiness.in_flight >= max_workers
        and record.status is not W.COMPENSATING
    ):
        in_flight = join_names(name for name, unit in record.units() if unit.token is not None)
        words = f"{state}, but runner.max_workers ({max_workers}) is reached; in flight: {in_flight}"
        return query.reason(ReasonCode.MAX_WORKERS, words)
    words = f"{state}; no coordinator has dispatched it yet"
    return query.reason(ReasonCode.READY, words, advice="if this does not change, run: orchestrator doctor")


def _waits_for_slot(subject: str, key: str, limit: int) -> str:
    return f"{subject} waits for a slot of the concurrency key {key!r} (limit {limit})"


def _blocking_ancestors(record: WorkflowRecord, step_id: str) -> list[str]:
    """Return the open ancestors of a step that wait for no parent themselves, in spec order."""
    found, todo, seen = [], [step_id], {step_id}
    while todo:
        one = todo.pop()
        open_parents = [parent for parent in record.graph.parents[one] if not record.steps[parent].is_final]
        if not open_parents and one != step_id:
            found.append(one)
        todo += [parent for parent in open_parents if parent not in seen]
        seen.update(open_parents)
    return sorted(set(found), key=record.graph.index.__getitem__)


def _describe_join(wanted: Any) -> str:
    return "an expression" if isinstance(wanted, dict) else str(wanted)


# ---- units in progress


def _explain_in_progress(query: _UnitQuery) -> list[Reason]:
    step = query.step
    if step.items is not None:
        return _explain_map(query, step.items)
    if step.declined and step.token is None:
        return [_explain_declined(query)]
    if step.token is None:
        lost = f"the worker of {query.subject} was lost ({step.reason or 'cause unknown'})"
        reason = _explain_not_dispatched(query, f"{lost}; it is ready to be dispatched again")
        return [replace(reason, code=ReasonCode.LOST) if reason.code == ReasonCode.READY else reason]
    timeout = f"; its timeout is {query.due(step.deadline_ms)}" if step.deadline_ms is not None else ""
    declined = f"; {_describe_declines(query)}" if step.declined else ""
    if step.child is not None:
        started = f"requested{query.ago(step.dispatched_at)}"
        words = f"{query.subject} waits for its child {step.child}, {started}{timeout}"
        return [query.reason(ReasonCode.CHILD, words, step.deadline_ms)]
    if step.started_at is None:
        words = (
            f"{query.subject} was dispatched{query.ago(step.dispatched_at)}; no worker has reported its start"
            f" yet (workers report it after one second){declined}"
        )
        return [query.reason(ReasonCode.DISPATCHED, words)]
    worker = f" on {step.worker}" if step.worker else ""
    attempt = f" (attempt {step.attempt})" if step.attempt > 1 else ""
    started = f"started{query.ago(step.started_at)}{worker}{attempt}"
    words = f"{query.subject} {started} and is still running{timeout}"
    return [query.reason(ReasonCode.RUNNING, words, step.deadline_ms)]


def _explain_map(query: _UnitQuery, counts: ItemCounts) -> list[Reason]:
    errors = f", {counts.errors} with an error" if counts.errors else ""
    words = f"{query.subject}: {counts.settled} of {counts.count} items ended{errors}; {counts.out} in flight"
    found = [query.reason(ReasonCode.ITEMS, words)]
    names = [UnitId.for_item(query.unit, n) for n in range(counts.count)]
    ready = sum(1 for name in names if query.record.items[name].awaits_dispatch)
    if counts.fatal:
        words = f"{words}; no more items are dispatched because one failed"
        found = [query.reason(ReasonCode.ITEMS, words)]
    elif ready:
        first = query.record.readiness.due.get(query.unit, [counts.next])[0]
        item = _UnitQuery.of(query.view, UnitId.for_item(query.unit, first), query.now_ms)
        noun, verb = ("item", "is") if ready == 1 else ("items", "are")
        reason = _explain_not_dispatched(item, f"{ready} more {noun} of {query.subject} {verb} ready")
        found.append(query.reason(ReasonCode(reason.code), reason.words, advice=reason.advice))
    active = [name for name in names if _is_active(query.record.items[name])]
    for name in active[:MAX_ITEMS_SHOWN]:
        found += explain_unit_status(query.view, name, query.now_ms)
    if len(active) > MAX_ITEMS_SHOWN:
        more = f"{len(active) - MAX_ITEMS_SHOWN} more items of {query.subject} are in progress"
        found.append(query.reason(ReasonCode.ITEMS, more))
    return found


def _explain_declined(query: _UnitQuery) -> Reason:
    """Explain a unit that the last worker gave back, because it does not have the executor."""
    declines, until_ms = _describe_declines(query), query.step.not_before_ms
    if until_ms is None:
        reason = _explain_not_dispatched(
            query, f"{query.subject} is ready to be dispatched again ({declines})"
        )
        return replace(reason, code=ReasonCode.DECLINED) if reason.code == ReasonCode.READY else reason
    words = f"{query.subject} waits for a worker with its executor: {declines}; its next try is"
    return query.reason(ReasonCode.DECLINED, f"{words} {query.due(until_ms)}", until_ms)


def _describe_declines(query: _UnitQuery) -> str:
    count, fn = query.step.declined, query.spec.fn
    workers = "the last worker did" if count == 1 else f"the last {count} workers did"
    last = f" ({query.step.reason})" if query.step.reason else ""
    return f"{workers} not have the executor {fn!r}{last}"


def _is_active(item: StepRecord) -> bool:
    return item.token is not None or item.not_before_ms is not None


# ---- units that have ended


def _explain_final(query: _UnitQuery) -> Reason:
    step, ended = query.step, query.ago(query.step.ended_at)
    match step.status:
        case S.COMPLETE:
            words = f"{query.subject} completed{ended}"
        case S.HALTED:
            words = f"a branch of {query.subject} halted the execution{ended}"
        case S.FAILED:
            attempt = f" (attempt {step.attempt})" if step.attempt > 1 else ""
            words = f"{query.subject} failed{ended}{attempt}: {summarize_error(step.error or {})}"
        case _:
            why = summarize_error(step.error) if step.error is not None else step.reason or "no reason given"
            is_step = query.unit in query.record.steps
            cause = describe_root_cause(query.record, query.unit) if is_step else ""
            words = f"{query.subject} was {format_status(step.status)}{ended}: {why}{cause}"
    advice = ""
    if step.error is not None and "child" in step.error:
        advice = f"explain the child: orchestrator explain {step.error['child']}"
    elif step.status is S.FAILED and UnitId(query.unit).is_webhook:
        advice = WEBHOOK_ADVICE
    return query.reason(ReasonCode(step.status.value), words, advice=advice)
