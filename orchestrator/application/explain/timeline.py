"""When each unit of an execution was queued, ran, backed off and waited: rows of spans, from its history.

The history has the time of each change of a status, so it tells exactly when a unit was dispatched, ended,
began to wait, or was to be tried again. It does not tell everything:

- When a worker started an attempt is known for the last attempt of a unit only, from its record. Every other
  attempt has one span, `running`, from its dispatch to its end, which contains its time in the queue. So has
  a last attempt that runs for less than a second so far: its worker has not reported the start yet.
- A step that waits for a slot under a concurrency key changes no status, so that wait is not a span.
- A unit that ended without running or waiting, such as a switch or a skipped step, has no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.records.status import StepStatus

SpanKind = Literal["queued", "running", "back_off", "waiting"]

MAX_ROWS = 200

_KINDS: Mapping[str, SpanKind] = {
    StepStatus.IN_PROGRESS: "running",
    StepStatus.RETRY: "back_off",
    StepStatus.WAITING: "waiting",
    StepStatus.DEFERRED: "waiting",
    StepStatus.ON_HOLD: "waiting",
}


@dataclass(frozen=True, slots=True)
class Span:
    """What a unit did for some time.

    kind     queued: from a dispatch until a worker took it; running; back_off: from a failure until the next
             attempt; waiting: for a signal, a delay, or the release of a hold
    end_ms   None while it lasts
    attempt  the attempt; of a back_off, the next one
    status   the status to which the unit moved at the end; None while it lasts, and before a known start
    worker   the worker of the last attempt, if it is known
    """

    kind: SpanKind
    start_ms: int
    end_ms: int | None
    attempt: int
    run_id: int
    status: str | None = None
    worker: str | None = None

    def duration_ms(self, now_ms: int) -> int:
        return max((now_ms if self.end_ms is None else self.end_ms) - self.start_ms, 0)


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """A unit (a step, an item, a compensation or the webhook), its status now, and its spans in order."""

    unit: str
    status: str
    spans: tuple[Span, ...]

    @property
    def has_failed(self) -> bool:
        return self.status == StepStatus.FAILED or any(
            span.status == StepStatus.FAILED for span in self.spans
        )

    def running_ms(self, now_ms: int) -> int:
        """How long the unit ran in all attempts."""
        return sum(span.duration_ms(now_ms) for span in self.spans if span.kind == "running")


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rows in the order in which they began. `end_ms` is the end of the execution, or now.
    `hidden_count` rows were left out."""

    start_ms: int
    end_ms: int
    is_final: bool
    rows: tuple[TimelineRow, ...]
    hidden_count: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The timeline as plain JSON."""
        return {**asdict(self), "rows": [asdict(row) for row in self.rows]}


def make_timeline(
    view: StatusView, entries: Iterable[Mapping[str, Any]], now_ms: int, *, max_rows: int = MAX_ROWS
) -> Timeline:
    """Build the timeline of an execution from its history. If there are too many rows, those that failed come
    first, and then those that ran longest."""
    record = view.record
    start_ms = parse_iso_ms(record.created_at)
    end_ms = parse_iso_ms(record.ended_at) if record.ended_at is not None else now_ms
    rows = [_make_row(view, unit, spans) for unit, spans in _collect_spans(entries).items() if spans]
    kept = rows
    if len(rows) > max_rows:
        kept = sorted(rows, key=lambda row: (not row.has_failed, -row.running_ms(end_ms)))[:max_rows]
    return Timeline(
        start_ms=start_ms,
        end_ms=max(end_ms, start_ms),
        is_final=record.is_final,
        rows=tuple(sorted(kept, key=lambda row: row.spans[0].start_ms)),
        hidden_count=len(rows) - len(kept),
    )


def _collect_spans(entries: Iterable[Mapping[str, Any]]) -> dict[str, list[Span]]:
    """Turn each change of a status into the end of a span and the begin of another."""
    found: dict[str, list[Span]] = {}
    for entry in entries:
        if "to" not in entry:
            continue
        at_ms, status = parse_iso_ms(entry["at"]), entry["to"]
        spans = found.setdefault(entry["step"], [])
        if spans and spans[-1].end_ms is None:
            spans[-1] = replace(spans[-1], end_ms=at_ms, status=status)
        kind = _KINDS.get(status)
        if kind is not None:
            spans.append(Span(kind, at_ms, None, entry["attempt"], entry["run_id"]))
    return found


def _make_row(view: StatusView, unit: str, spans: list[Span]) -> TimelineRow:
    """Add what the record knows of the last attempt: its worker, and when it started."""
    step = view.record.steps.get(unit) or view.record.items.get(unit)
    if step is None:  # an item of a round that was reset
        return TimelineRow(unit, spans[-1].status or StepStatus.READY, tuple(spans))
    last = spans[-1]
    if last.kind == "running" and (last.attempt, last.run_id) == (step.attempt, step.run_id):
        last = replace(last, worker=step.worker)
        started_at = view.started_at(unit, step)
        if last.end_ms is None and view.is_queued(unit, step):
            spans = [*spans[:-1], replace(last, kind="queued")]
        elif started_at is not None:
            spans = [*spans[:-1], *_split(last, parse_iso_ms(started_at))]
        else:
            spans = [*spans[:-1], last]
    return TimelineRow(unit, view.status_of(unit, step), tuple(spans))


def _split(span: Span, started_ms: int) -> list[Span]:
    """Split a span into the time in the queue and the run. The clock of a worker may be ahead."""
    if span.end_ms is not None:
        started_ms = min(started_ms, span.end_ms)
    if started_ms <= span.start_ms:
        return [span]
    return [
        replace(span, kind="queued", end_ms=started_ms, status=None),
        replace(span, start_ms=started_ms),
    ]
