"""Values of executions as people may see them: what must be hidden is hidden here, what is large is cut."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orchestrator.application.records.record_view import RecordView, make_record_view

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord

MAX_CHARS = 2_000
MAX_LINES = 40


def redact_value(record: WorkflowRecord, value: Any) -> Any:
    """What may be shown of a value that belongs to an execution. Every value that `show`, `history`
    and `watch` print passes here, or is in a report (report.py)."""
    return _shown(record)(value)


def redact_text(record: WorkflowRecord, text: str) -> str:
    return _shown(record).text(text)


def _shown(record: WorkflowRecord) -> RecordView:
    """Its secrets are looked for once, and not for every value of it."""
    if not _last or _last[0][0] is not record:
        _last[:] = [(record, make_record_view(record))]
    return _last[0][1]


_last: list[tuple[WorkflowRecord, RecordView]] = []


def format_json_line(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return _cut(text, MAX_CHARS) if len(text) > MAX_CHARS else text


def format_value_lines(value: Any) -> list[str]:
    """As indented JSON, or as it is if it is a text; cut by length and by lines."""
    whole = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    lines = whole.splitlines() or [""]
    if len(whole) <= MAX_CHARS and len(lines) <= MAX_LINES:
        return lines
    kept = whole[:MAX_CHARS].splitlines()[:MAX_LINES]
    return [*kept, _remark(whole)]


def _cut(text: str, most: int) -> str:
    return f"{text[:most]} {_remark(text)}"


def _remark(text: str) -> str:
    return f"... ({len(text.encode()):,} bytes in all; --json shows them)"
