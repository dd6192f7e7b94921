"""The trace of an execution that has ended: spans, made from its record and its history after the fact.

    the execution                                   one span; below it:
    an attempt of a unit, from its start on         a message that a worker processes; the start is known for
                                                    the last attempt of a unit, else it is the dispatch
    its time in the queue, if it is known
    the wait for the next attempt, for a signal or for a time
    a signal that arrived                           at one moment

A retry links to the attempt before it, a wait to the signal that ended it, and a child to the step of its
parent. All ids are derived, so making the trace again gives the same spans. Secrets are redacted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.explain.timeline import Span, TimelineRow, make_timeline
from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_view import RecordView, make_record_view
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.spec.model import StepSpec
from orchestrator.application.values.trace_context import (
    TraceContext,
    context_of_attempt,
    context_of_execution,
    derive_span_id,
    parse_traceparent,
)
from orchestrator.application.values.unit_id import UnitId, step_of

MAX_UNITS = 2_000
"""The units of one execution that have spans. Of more, those that failed or ran longest are kept."""
MAX_SIGNALS = 1_000
MAX_TEXT_LENGTH = 4_000

_NAMES = {"queued": "queue", "back_off": "back off", "waiting": "wait"}

Attributes = Mapping[str, Any]
Failure = Mapping[str, Any]
Run = tuple[str, int]
"""A unit and the id of its run: each dispatch has another one."""


@dataclass(frozen=True, slots=True)
class TraceEvent:
    name: str
    at_ms: int
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class TraceLink:
    context: TraceContext
    reason: Literal["retry", "signal", "parent"]


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """A span. `error` is the message of a failure; None if the span has not failed."""

    name: str
    context: TraceContext
    parent_id: str | None
    start_ms: int
    end_ms: int
    attributes: Attributes
    is_message: bool = False
    error: str | None = None
    events: tuple[TraceEvent, ...] = ()
    links: tuple[TraceLink, ...] = ()


def make_spans(record: WorkflowRecord, entries: Iterable[Mapping[str, Any]]) -> list[TraceSpan]:
    """The spans of an execution that has ended, in the order in which they began; none if the caller of the
    execution does not keep its trace."""
    root = context_of_execution(record.workflow_execution_id, record.traceparent)
    if not root.is_sampled:
        return []
    notes = _Notes()
    timeline = make_timeline(
        StatusView(record), notes.read(entries), parse_iso_ms(record.created_at), max_rows=MAX_UNITS
    )
    maker = _SpanMaker(record, root, notes)
    spans = [span for row in timeline.rows for span in maker.spans_of(row)]
    spans += maker.spans_of_signals()
    whole = maker.span_of_execution(timeline.start_ms, timeline.end_ms, timeline.hidden_count)
    return [whole, *sorted(spans, key=lambda span: span.start_ms)]


class _Notes:
    """What the timeline does not have: the failures of attempts, and the signals."""

    def __init__(self) -> None:
        self.failures: dict[Run, Failure] = {}
        self._runs: dict[str, int] = {}
        self.signals: list[tuple[str, int, str]] = []
        self.ends_of_waits: dict[tuple[str, int], str] = {}

    def read(self, entries: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Pass on the entries, and note what they say."""
        for entry in entries:
            if entry.get("from") == StepStatus.IN_PROGRESS:
                self._note_end_of_run(entry)
            elif "signal" in entry:
                self.signals.append((entry["signal"], parse_iso_ms(entry["at"]), entry["cause"]))
            elif entry.get("from") == StepStatus.WAITING:
                self.ends_of_waits[entry["step"], parse_iso_ms(entry["at"])] = entry["cause"]
            if entry.get("to") == StepStatus.IN_PROGRESS:
                self._runs[entry["step"]] = entry["run_id"]
            yield entry

    def _note_end_of_run(self, entry: Mapping[str, Any]) -> None:
        """Note why a run failed. The entry of a retry, or of a loss, has the id of the next run."""
        run = (entry["step"], self._runs.get(entry["step"], entry["run_id"]))
        if "error" in entry:
            self.failures[run] = entry["error"]
        elif entry["to"] == StepStatus.IN_PROGRESS and entry["run_id"] != run[1]:
            self.failures[run] = {"kind": "lost", "message": entry.get("reason")}


class _SpanMaker:
    def __init__(self, record: WorkflowRecord, root: TraceContext, notes: _Notes) -> None:
        self._record, self._root, self._notes = record, root, notes
        self._view: RecordView = make_record_view(record)
        self._signals = [self._make_signal(*signal) for signal in notes.signals[:MAX_SIGNALS]]

    # ---- the execution

    def span_of_execution(self, start_ms: int, end_ms: int, hidden_count: int) -> TraceSpan:
        record = self._record
        caller = None if record.traceparent is None else parse_traceparent(record.traceparent)
        error = record.error if record.status is WorkflowStatus.FAILED else None
        return TraceSpan(
            record.spec.name or "workflow",
            self._root,
            None if caller is None else caller.span_id,
            start_ms,
            end_ms,
            _present(
                {
                    "orchestrator.workflow": record.spec.name,
                    "orchestrator.workflow_id": record.workflow_id,
                    "orchestrator.execution_id": record.execution_id,
                    "orchestrator.status": record.status.value,
                    "orchestrator.group": record.group,
                    "orchestrator.schedule": record.schedule,
                    "orchestrator.hidden_units": hidden_count or None,
                    **{f"orchestrator.label.{name}": value for name, value in record.labels.items()},
                    **self._error_attributes(error),
                }
            ),
            error=self._message_of(error),
            links=self._links_to_parent(),
        )

    def _links_to_parent(self) -> tuple[TraceLink, ...]:
        """The step that started this child. With a traceparent the step is the parent of the span already."""
        parent = self._record.parent
        if parent is None or self._record.traceparent is not None:
            return ()
        step = context_of_attempt(parent.execution, parent.step_id, parent.run_id, parent.attempt)
        return (TraceLink(step, "parent"),)

    # ---- units

    def spans_of(self, row: TimelineRow) -> list[TraceSpan]:
        """The spans of a unit. The webhook is posted after the end, and has none."""
        spec, found = self._record.loaded.unit_spec(row.unit), list[TraceSpan]()
        previous: TraceContext | None = None
        for span, following in zip(row.spans, [*row.spans[1:], None], strict=True):
            if span.end_ms is None or _is_before_dispatch(span, following):
                continue
            if span.kind == "running":
                found.append(self._make_attempt(row.unit, spec, span, span.end_ms, previous))
                previous = found[-1].context
            else:
                found.append(self._make_pause(row.unit, span, span.end_ms))
        return found

    def _make_attempt(
        self, unit: str, spec: StepSpec, span: Span, end_ms: int, previous: TraceContext | None
    ) -> TraceSpan:
        weid = self._record.workflow_execution_id
        is_message = spec.child is None and (spec.map is None or UnitId(unit).is_item)
        context = context_of_attempt(weid, unit, span.run_id, span.attempt, self._record.traceparent)
        error = self._failure_of(unit, span)
        attributes = {
            **self._unit_attributes(unit, span),
            "orchestrator.executor": spec.fn or None,
            "orchestrator.status": span.status,
            **(self._message_attributes(spec, span) if is_message else {}),
            **self._error_attributes(error),
        }
        return TraceSpan(
            step_of(unit) or unit,
            context,
            self._root.span_id,
            span.start_ms,
            end_ms,
            _present(attributes),
            is_message=is_message,
            error=self._message_of(error),
            events=self._exception_events(error, end_ms),
            links=() if previous is None else (TraceLink(previous, "retry"),),
        )

    def _make_pause(self, unit: str, span: Span, end_ms: int) -> TraceSpan:
        """The span of a time in the queue, a back-off or a wait."""
        parts = (unit, span.run_id, span.attempt, span.kind, span.start_ms)
        return TraceSpan(
            f"{_NAMES[span.kind]} {step_of(unit) or unit}",
            self._context(*parts),
            self._root.span_id,
            span.start_ms,
            end_ms,
            _present(self._unit_attributes(unit, span)),
            links=self._links_to_signal(unit, span.kind, end_ms),
        )

    def _unit_attributes(self, unit: str, span: Span) -> Attributes:
        step = self._record.steps.get(unit)
        return {
            "orchestrator.execution_id": self._record.execution_id,
            "orchestrator.step": step_of(unit) or unit,
            "orchestrator.item": UnitId(unit).item_index,
            "orchestrator.compensation": True if UnitId(unit).is_compensation else None,
            "orchestrator.run_id": span.run_id,
            "orchestrator.attempt": span.attempt,
            "orchestrator.child_execution_id": None if step is None else step.child,
        }

    def _message_attributes(self, spec: StepSpec, span: Span) -> Attributes:
        """Of the semantic conventions for messaging."""
        return {
            "messaging.system": "rq",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": spec.queue,
            "messaging.message.conversation_id": self._record.execution_id,
            "messaging.client.id": span.worker,
        }

    # ---- failures

    def _failure_of(self, unit: str, span: Span) -> Failure | None:
        """The failure of an attempt. The record has the traceback of the last one."""
        error = self._notes.failures.get((unit, span.run_id))
        step = self._record.steps.get(unit) or self._record.items.get(unit)
        if error is None or step is None or step.error is None or step.run_id != span.run_id:
            return error
        return step.error

    def _error_attributes(self, error: Failure | None) -> Attributes:
        return {} if error is None else {"error.type": str(error.get("type") or error.get("kind"))}

    def _message_of(self, error: Failure | None) -> str | None:
        return None if error is None else self._text(error.get("message"))

    def _exception_events(self, error: Failure | None, at_ms: int) -> tuple[TraceEvent, ...]:
        if error is None:
            return ()
        attributes = {
            "exception.type": str(error.get("type") or error.get("kind")),
            "exception.message": self._text(error.get("message")),
            "exception.stacktrace": self._text(error.get("traceback")) or None,
        }
        return (TraceEvent("exception", at_ms, _present(attributes)),)

    def _text(self, value: Any) -> str:
        """A text without secrets, cut. It may be of any type: an executor of another language wrote it."""
        redacted = self._view({"text": value})["text"]
        return str("" if redacted is None else redacted)[:MAX_TEXT_LENGTH]

    # ---- signals

    def spans_of_signals(self) -> list[TraceSpan]:
        return self._signals

    def _make_signal(self, name: str, at_ms: int, cause: str) -> TraceSpan:
        return TraceSpan(
            f"signal {name}",
            self._context("signal", cause),
            self._root.span_id,
            at_ms,
            at_ms,
            {"orchestrator.execution_id": self._record.execution_id, "orchestrator.signal": name},
        )

    def _links_to_signal(self, unit: str, kind: str, end_ms: int) -> tuple[TraceLink, ...]:
        """The signal that ended a wait before its timeout; a span is added for it."""
        wait = self._record.loaded.unit_spec(unit).wait
        cause = self._notes.ends_of_waits.get((unit, end_ms))
        if kind != "waiting" or wait is None or cause is None or len(self._signals) >= MAX_SIGNALS:
            return ()
        if self._record.steps[unit].status is not StepStatus.COMPLETE:
            return ()
        signal = self._make_signal(" or ".join(wait.signals), end_ms, cause)
        self._signals.append(signal)
        return (TraceLink(signal.context, "signal"),)

    def _context(self, *parts: str | int) -> TraceContext:
        span_id = derive_span_id(self._record.workflow_execution_id, *parts)
        return self._root._replace(span_id=span_id)


def _is_before_dispatch(span: Span, following: Span | None) -> bool:
    """Whether a run has only been prepared: after a loss, its dispatch follows."""
    if span.kind != "running" or following is None or following.run_id != span.run_id:
        return False
    return following.kind in ("running", "queued")


def _present(attributes: Attributes) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}
