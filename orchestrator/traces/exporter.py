"""Follows the executions that end, and sends their traces to a receiver.

    read ended executions -> load record and history -> make spans -> send -> remove the ended executions

An execution is removed after its trace was taken. So an exporter that dies, or cannot reach the receiver,
loses nothing, and may send some traces twice: the spans then have the same ids. Memory is bounded: one batch
of executions, and of each the spans of at most MAX_UNITS units.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.errors import RecordNotFound, StoreError, Unavailable
from orchestrator.application.explain.trace_spans import TraceSpan, make_spans
from orchestrator.redis_rq.connection import backoff_delays
from orchestrator.redis_rq.ended_executions import MAX_ENDS, EndedExecutions
from orchestrator.redis_rq.queries.record_queries import RecordQueries
from orchestrator.redis_rq.store import RedisStore
from orchestrator.traces.receiver import Receiver, ReceiverUnavailable, SpansRejected

logger = logging.getLogger(__name__)

BATCH_SIZE = 50
"""The executions that are read at once."""
SPANS_PER_REQUEST = 2_000
HISTORY_PAGE = 1_000
POLL_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class TraceReader:
    """Makes the traces of executions in Redis."""

    store: RedisStore
    queries: RecordQueries

    def read(self, workflow_execution_id: str) -> list[TraceSpan]:
        """The spans of an execution; none if it has not ended, is gone, or its caller does not keep them."""
        try:
            record = self.store.load(workflow_execution_id)
        except RecordNotFound:
            logger.warning("its record is gone", extra={"execution": workflow_execution_id})
            return []
        return make_spans(record, self._history(workflow_execution_id)) if record.is_final else []

    def _history(self, workflow_execution_id: str) -> Iterator[Mapping[str, Any]]:
        """The moves of a history, a page at a time."""
        first = 0
        while page := self.queries.history_range(workflow_execution_id, first, HISTORY_PAGE):
            yield from map(json.loads, page)
            first += len(page)


@dataclass(slots=True)
class TraceExporter:
    """`wait` waits for some seconds, and returns whether the exporter must stop."""

    ends: EndedExecutions
    reader: TraceReader
    receiver: Receiver
    wait: Callable[[float], bool]
    exported: int = 0
    _delays: Iterator[float] = field(default_factory=backoff_delays)

    def run(self) -> None:
        """Export until `wait` says that it must stop."""
        is_open = False
        while True:
            pause_s = 0.0
            try:
                if not is_open:
                    self.ends.open()
                    is_open = True
                pause_s = 0.0 if self.export_batch() else POLL_INTERVAL_S
                self._delays = backoff_delays()
            except (Unavailable, ReceiverUnavailable) as error:
                is_open = False  # Redis may have lost the stream
                pause_s = next(self._delays)
                logger.warning("cannot export; retrying: %s", error)
            if self.wait(pause_s):
                return

    def export_batch(self) -> int:
        """Export the oldest executions that have ended. Returns how many there were."""
        entries = self.ends.read(BATCH_SIZE)
        if len(entries) == BATCH_SIZE and self.ends.count() >= MAX_ENDS:
            logger.warning("%d executions wait; Redis drops the oldest of them", MAX_ENDS)
        batch: list[TraceSpan] = []
        done: list[str] = []
        for entry, execution in entries:
            spans = self._read(execution)
            if batch and len(batch) + len(spans) > SPANS_PER_REQUEST:
                self._finish(batch, done)
                batch, done = [], []
            batch += spans
            done.append(entry)
        if done:
            self._finish(batch, done)
        return len(entries)

    def _read(self, execution: str) -> list[TraceSpan]:
        """The spans of an execution. One that cannot be read is left out, since it must not block others."""
        try:
            return self.reader.read(execution)
        except Unavailable:
            raise
        except (StoreError, ValueError, LookupError, TypeError) as error:
            logger.error("cannot make its trace: %s", error, extra={"execution": execution})
            return []

    def _finish(self, batch: Sequence[TraceSpan], entries: list[str]) -> None:
        self._send(batch)
        self.ends.remove(entries)
        self.exported += len(entries)

    def _send(self, spans: Sequence[TraceSpan]) -> None:
        """Send spans, in several requests if there are many. What is rejected is divided by trace, so that
        one trace that cannot be taken does not take others with it."""
        for at in range(0, len(spans), SPANS_PER_REQUEST):
            part = spans[at : at + SPANS_PER_REQUEST]
            try:
                self.receiver.send(part)
            except SpansRejected as error:
                traces = _by_trace(part)
                if len(traces) == 1:
                    logger.error("a trace is left out: %s", error, extra={"trace_id": next(iter(traces))})
                    continue
                for trace in traces.values():
                    self._send(trace)


def _by_trace(spans: Sequence[TraceSpan]) -> dict[str, list[TraceSpan]]:
    traces: dict[str, list[TraceSpan]] = {}
    for span in spans:
        traces.setdefault(span.context.trace_id, []).append(span)
    return traces
