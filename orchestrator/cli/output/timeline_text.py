"""A timeline as text: a bar for each unit, over one axis of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from orchestrator.application.explain.formatting import format_count, format_duration, humanize
from orchestrator.application.explain.timeline import SpanKind, Timeline, TimelineRow, make_timeline
from orchestrator.cli.output.overview import format_title

if TYPE_CHECKING:
    from orchestrator.application.explain.status_view import StatusView

PLAIN_WIDTH, MAX_PLAIN_LINES = 100, 200
"""The size of a timeline that is not printed on a terminal."""

MIN_BAR_WIDTH, MAX_NAME_WIDTH = 10, 28
KINDS: Sequence[SpanKind] = ("waiting", "queued", "back_off", "running")
"""The later ones are drawn over the earlier ones, where a character stands for several."""

UNICODE_SIGNS: Mapping[str, str] = {"waiting": "─", "queued": "·", "back_off": "░", "running": "█"}
ASCII_SIGNS: Mapping[str, str] = {"waiting": "-", "queued": ".", "back_off": "~", "running": "#"}
FAILED_SIGN = "x"
"""Where an attempt failed."""

LINES_BESIDE_ROWS = 4
"""The title, the axis, the legend, and space for the cursor."""


def select_signs(stream: TextIO) -> Mapping[str, str]:
    """Select the characters of the bars: those that the encoding of a stream has."""
    try:
        "".join(UNICODE_SIGNS.values()).encode(stream.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII_SIGNS
    return UNICODE_SIGNS


def format_frame(
    view: StatusView,
    entries: Iterable[Mapping[str, Any]],
    now_ms: int,
    width: int,
    max_lines: int,
    signs: Mapping[str, str],
) -> list[str]:
    """Format the title and the timeline of an execution, in at most `max_lines` lines."""
    max_rows = max(max_lines - LINES_BESIDE_ROWS, 1)
    timeline = make_timeline(view, entries, now_ms, max_rows=max_rows)
    return [format_title(view.record, now_ms), *format_timeline(timeline, width, signs)]


def format_timeline(timeline: Timeline, width: int, signs: Mapping[str, str]) -> list[str]:
    """Format a timeline as an axis, a line for each row, and a legend, at most `width` wide."""
    names = [shorten_name(row.unit) for row in timeline.rows]
    notes = [_describe_row(row, timeline.end_ms) for row in timeline.rows]
    name_width = max(map(len, names), default=0)
    bar_width = max(width - name_width - max(map(len, notes), default=0) - 4, MIN_BAR_WIDTH)
    lines = [f"{'':{name_width}}  {_draw_axis(timeline, bar_width)}"]
    lines += [
        f"{name:{name_width}}  {draw_bar(row, timeline, bar_width, signs)}  {note}"
        for name, row, note in zip(names, timeline.rows, notes, strict=True)
    ]
    legend = [f"{signs[kind]} {humanize(kind).replace(' ', '-')}" for kind in reversed(KINDS)]
    hidden = f"and {format_count(timeline.hidden_count, 'more row')}; " if timeline.hidden_count else ""
    return [*lines, f"{hidden}{'  '.join(legend)}  {FAILED_SIGN} failed attempt"]


def draw_bar(row: TimelineRow, timeline: Timeline, width: int, signs: Mapping[str, str]) -> str:
    """Draw the spans of a row. Each span has at least one character, unless a longer one covers it."""
    duration = max(timeline.end_ms - timeline.start_ms, 1)
    cells = [" "] * width
    failures = []
    for span in sorted(row.spans, key=lambda span: KINDS.index(span.kind)):
        end_ms = timeline.end_ms if span.end_ms is None else span.end_ms
        first = min(max(span.start_ms - timeline.start_ms, 0) * width // duration, width - 1)
        last = min(max(-(-(end_ms - timeline.start_ms) * width // duration) - 1, first), width - 1)
        cells[first : last + 1] = [signs[span.kind]] * (last + 1 - first)
        if span.kind == "running" and span.status in ("failed", "retry"):
            failures.append(last)
    for place in failures:
        cells[place] = FAILED_SIGN
    return "".join(cells)


def shorten_name(unit: str) -> str:
    """Leave out the middle of a long name."""
    if len(unit) <= MAX_NAME_WIDTH:
        return unit
    half = (MAX_NAME_WIDTH - 2) // 2
    return f"{unit[:half]}..{unit[-half:]}"


def _describe_row(row: TimelineRow, now_ms: int) -> str:
    """Describe how a unit ended or what it does, how long it ran, and its attempts."""
    ran_ms = row.running_ms(now_ms)
    attempts = max(span.attempt for span in row.spans)
    parts = [
        humanize(row.status),
        format_duration(ran_ms / 1000) if ran_ms else "",
        f"attempt {attempts}" if attempts > 1 else "",
    ]
    return " ".join(part for part in parts if part)


def _draw_axis(timeline: Timeline, width: int) -> str:
    """Draw the ends of the axis: the start of the execution, and how long it took or has taken so far."""
    end = format_duration((timeline.end_ms - timeline.start_ms) / 1000)
    return f"0{end:>{max(width - 1, len(end) + 1)}}"
