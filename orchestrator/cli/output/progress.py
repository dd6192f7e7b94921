"""What `orchestrator run` shows on the standard error while it waits: in place on a terminal, else lines."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from orchestrator.cli.output.report import error_line, format_duration, humanize
from orchestrator.cli.output.tables import colour_by_status, escape_line, is_coloured
from orchestrator.cli.output.values import redact_value

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.records.step_record import StepRecord

UP_AND_CLEAR = "\x1b[1A\x1b[2K"


class Progress(Protocol):
    def print_text(self, line: str, child: str = "") -> None:
        """Show a line that is no part of the workflow: a remark, or what a child or an executor printed."""

    def show(self, record: WorkflowRecord, history: Iterable[dict[str, Any]]) -> None:
        """Show how an execution stands."""


def create_progress(stream: TextIO | None = None) -> Progress:
    stream = stream or sys.stderr
    return LiveProgress(stream) if stream.isatty() else PlainProgress(stream)


class PlainProgress:
    """A line for every transition, once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._seen = stream, 0

    def print_text(self, line: str, child: str = "") -> None:
        print(escape_line(_of(child, line)), file=self._stream, flush=True)

    def show(self, record: WorkflowRecord, history: Iterable[dict[str, Any]]) -> None:
        entries = list(history)
        for entry in entries[self._seen :]:
            if "to" in entry:
                self.print_text(self._line(record, entry))
        self._seen = len(entries)

    def _line(self, record: WorkflowRecord, entry: dict[str, Any]) -> str:
        at = datetime.fromisoformat(entry["at"]) - datetime.fromisoformat(record.created_at)
        attempt = f" (attempt {entry['attempt']})" if entry.get("attempt", 1) > 1 else ""
        why = f": {error_line(redact_value(record, entry['error']))}" if entry.get("error") else ""
        return f"{at.total_seconds():8.3f} s  {entry['step']}: {humanize(entry['to'])}{attempt}{why}"


class LiveProgress:
    """One line for each step, written over and over; what else is said goes above them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._drawn = stream, [""][:0]
        self._lock = threading.Lock()  # what children print comes from other threads
        self._began = time.monotonic()

    def print_text(self, line: str, child: str = "") -> None:
        with self._lock:
            lines = self._drawn
            self._draw([])
            self._stream.write(f"{escape_line(_of(child, line))}\n")
            self._draw(lines)

    def show(self, record: WorkflowRecord, history: Iterable[dict[str, Any]]) -> None:
        with self._lock:
            # A final execution is summed up on the standard output: then nothing remains here.
            self._draw([] if record.is_final else self._lines(record))

    def _draw(self, lines: list[str]) -> None:
        self._stream.write(UP_AND_CLEAR * len(self._drawn) + "".join(f"{line}\n" for line in lines))
        self._stream.flush()
        self._drawn = lines

    def _lines(self, record: WorkflowRecord) -> list[str]:
        """As many steps as the terminal has room for: those that move first, in the order of the spec."""
        columns, rows = shutil.get_terminal_size()
        room = max(rows - 3, 1)
        steps = list(record.steps.items())
        if len(steps) > room:
            steps = [entry for entry in steps if entry[1].status in ("in_progress", "retry")][:room]
        final = sum(1 for step in record.steps.values() if step.is_final)
        title = f"{record.spec.name or 'workflow'} {record.execution_id}: {humanize(record.status.value)}"
        elapsed = format_duration(time.monotonic() - self._began)
        width = max((len(step_id) for step_id, _ in steps), default=0)
        lines = [escape_line(f"{title}, {final} of {len(record.steps)} steps, {elapsed}")[: columns - 1]]
        return lines + [self._step_line(step_id, width, step, columns) for step_id, step in steps]

    def _step_line(self, step_id: str, width: int, step: StepRecord, columns: int) -> str:
        attempt = f"  attempt {step.attempt}" if step.attempt > 1 else ""
        plain = f"  {step_id:<{width}}  {humanize(step.status.value)}{attempt}"
        if len(plain) >= columns:
            return plain[: columns - 1]
        return colour_by_status(plain, humanize(step.status.value)) if is_coloured(self._stream) else plain


def _of(child: str, line: str) -> str:
    return f"{child}: {line}" if child else line
