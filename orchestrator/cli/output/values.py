"""Values of executions as people may see them: secrets are redacted, large values are cut."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orchestrator.application.records.record_view import RecordView, make_record_view

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord

MAX_CHARS = 2_000
MAX_LINES = 40


def redact_value(record: WorkflowRecord, value: Any) -> Any:
    """Redact the secrets in a value of an execution. Every value that `show`, `history` and `watch` print
    passes through here, or through execution_json.py."""
    return _view_of(record)(value)


def redact_text(record: WorkflowRecord, text: str) -> str:
    return _view_of(record).text(text)


def _view_of(record: WorkflowRecord) -> RecordView:
    """The view of the last record is kept, so that its secrets are collected once and not for each value."""
    if not _last_view or _last_view[0][0] is not record:
        _last_view[:] = [(record, make_record_view(record))]
    return _last_view[0][1]


_last_view: list[tuple[WorkflowRecord, RecordView]] = []


def format_json_line(value: Any) -> str:
    """Format a value as JSON on one line; a large one is cut."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} {_size_note(text)}"


def format_value_lines(value: Any) -> list[str]:
    """Format a value as indented JSON, or a string as it is; a large one is cut by length and by lines."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    lines = text.splitlines() or [""]
    if len(text) <= MAX_CHARS and len(lines) <= MAX_LINES:
        return lines
    kept = text[:MAX_CHARS].splitlines()[:MAX_LINES]
    return [*kept, _size_note(text)]


def _size_note(text: str) -> str:
    return f"... ({len(text.encode()):,} bytes in all; --json shows them)"
