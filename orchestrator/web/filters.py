"""The filters of templates: values of users as text that is safe to show, times, durations and sizes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from markupsafe import Markup

from orchestrator.application.explain.formatting import format_duration, humanize
from orchestrator.application.records.events import iso
from orchestrator.redis_rq.event_codec import EXECUTION_ID

MAX_VALUE_CHARS = 20_000
"""More of a value is not part of a page; the API has all of it."""
MAX_TIME_DIGITS = 14
"""Times in ms with more digits are after the year 5138, and so in the id of an entry by chance."""


def escape_controls(value: object) -> str:
    """Text with control characters, and those that hide or reverse text, as escapes; line breaks stay."""
    return "\n".join(map(_escape_line, str(value).split("\n")))


def _escape_line(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def shorten(value: object, length: int = 80) -> str:
    text = escape_controls(value)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def format_json(value: Any) -> str:
    """A value as indented JSON, a string as it is; a large one is cut."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    shown = escape_controls(text[:MAX_VALUE_CHARS])
    return shown if len(text) <= MAX_VALUE_CHARS else f"{shown}\n… ({format_bytes(text)} in all)"


def format_bytes(value: Any) -> str:
    """The size of a value as JSON, or of a string."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    size = float(len(text.encode("utf-8", "surrogatepass")))
    for unit in ("bytes", "kB", "MB"):
        if size < 1000 or unit == "MB":
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("the last unit fits every size")


def time_element(iso: str | None) -> Markup:
    """A time. It is shown in the zone of the viewer by page.js, and in UTC without it and as its title."""
    if not iso:
        return Markup("")
    utc = f"{iso[:10]} {iso[11:19]} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, utc, utc)


def entry_time_element(entry: str) -> Markup:
    """The time in the id of a stream entry."""
    text = entry.partition("-")[0]
    is_time = text.isascii() and text.isdigit() and len(text) <= MAX_TIME_DIGITS
    return time_element(iso(int(text))) if is_time else Markup("")


def format_seconds(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(seconds)


def format_plural(count: int, noun: str) -> str:
    """A number with its noun: 1 execution, 2,000 executions."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_number(number: int) -> str:
    return f"{number:,}"


def is_execution_id(text: str) -> bool:
    """Whether a text can be the id of an execution, so that a path with it leads to one."""
    return EXECUTION_ID.fullmatch(text) is not None


FILTERS: Mapping[str, Callable[..., Any]] = {
    "text": escape_controls,
    "short": shorten,
    "json": format_json,
    "size": format_bytes,
    "time": time_element,
    "entry_time": entry_time_element,
    "seconds": format_seconds,
    "words": humanize,
    "number": format_number,
    "count": format_plural,
}
TESTS: Mapping[str, Callable[..., bool]] = {"execution_id": is_execution_id}
