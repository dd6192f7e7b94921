"""Draws the pictures of the documentation as SVG: boxes with arrows, and messages between processes.

A picture has no scripts and loads nothing. It contains its colours for a light and a dark page, and a
background, so that it can be read on a page whose colours do not follow the browser.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

BOX_WIDTH, BOX_HEIGHT = 132, 44
CELL_WIDTH, CELL_HEIGHT = 200, 92
MARGIN = 20
LANE_WIDTH, ROW_HEIGHT, LANE_TOP = 196, 34, 70

STYLE = """\
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
text { fill: #1c2128; }
.background { fill: #ffffff; }
.box { fill: #f5f6f8; stroke: #868e99; }
.active { fill: #c4e1ff; stroke: #0b57ad; }
.waiting { fill: #e6f1fd; stroke: #2b74c9; }
.held { fill: #fdf3c6; stroke: #937000; }
.good { fill: #dcf5e0; stroke: #23803c; }
.bad { fill: #ffe3e0; stroke: #c62828; }
.quiet { fill: #ffffff; stroke: #868e99; stroke-dasharray: 3 3; }
.arrow { fill: none; stroke: #6a727c; stroke-width: 1.4; }
.head { fill: #6a727c; }
.lane { stroke: #868e99; stroke-dasharray: 2 4; }
.small { font-size: 11px; fill: #4b535d; }
.label { font-size: 11px; fill: #353c45; }
@media (prefers-color-scheme: dark) {
  text { fill: #e8edf3; }
  .background { fill: #10151c; }
  .box { fill: #1b222b; stroke: #6c7682; }
  .active { fill: #14406f; stroke: #7dbaff; }
  .waiting { fill: #12283f; stroke: #4d94e8; }
  .held { fill: #3a2f08; stroke: #d6a517; }
  .good { fill: #13341d; stroke: #45ad5e; }
  .bad { fill: #4d1a1a; stroke: #ff8078; }
  .quiet { fill: #10151c; stroke: #6c7682; }
  .arrow { stroke: #8b949e; }
  .head { fill: #8b949e; }
  .small { fill: #b6bfca; }
  .label { fill: #c9d1da; }
}
"""


@dataclass(frozen=True)
class Box:
    name: str
    column: float
    row: float
    kind: str = "plain"
    details: str = ""

    @property
    def x(self) -> float:
        return MARGIN + self.column * CELL_WIDTH + BOX_WIDTH / 2

    @property
    def y(self) -> float:
        return MARGIN + self.row * CELL_HEIGHT + BOX_HEIGHT / 2


@dataclass(frozen=True)
class Arrow:
    start: str
    end: str
    label: str = ""
    shift: float = 0
    """How far the arrow is beside the line between the centres, for two that lead both ways."""
    at: float = 0.5
    """Where the label is, from 0 at the start to 1 at the end."""


@dataclass(frozen=True)
class Message:
    """A row of a sequence: an arrow between two lanes, or a note if both are the same."""

    start: int
    end: int
    text: str
    kind: str = "plain"


def draw_boxes(title: str, boxes: Sequence[Box], arrows: Iterable[Arrow]) -> str:
    """Boxes on a grid, and arrows between them."""
    by_name = {box.name: box for box in boxes}
    width = 2 * MARGIN + max(box.column for box in boxes) * CELL_WIDTH + BOX_WIDTH
    height = 2 * MARGIN + max(box.row for box in boxes) * CELL_HEIGHT + BOX_HEIGHT
    lines, labels = [], []
    for arrow in arrows:
        line, label = _draw_arrow(by_name[arrow.start], by_name[arrow.end], arrow)
        lines.append(line)
        labels.append(label)
    return _document(title, width, height, [*lines, *map(_draw_box, boxes), *labels])


def draw_sequence(title: str, lanes: Sequence[str], messages: Sequence[Message]) -> str:
    """Processes side by side, and what passes between them from top to bottom."""
    width = 2 * MARGIN + (len(lanes) - 1) * LANE_WIDTH + BOX_WIDTH
    height = LANE_TOP + len(messages) * ROW_HEIGHT + MARGIN + 24
    parts = []
    for number, name in enumerate(lanes):
        x = _lane_x(number)
        parts.append(f'<path class="lane" d="M{x:g} {LANE_TOP - 8}V{height - MARGIN:g}"/>')
        parts.append(_rectangle(x, MARGIN + 16, BOX_WIDTH, 32, "box"))
        parts.append(_text(x, MARGIN + 21, name))
    parts += [
        _draw_message(message, LANE_TOP + 28 + row * ROW_HEIGHT) for row, message in enumerate(messages)
    ]
    return _document(title, width, height, parts)


def _document(title: str, width: float, height: float, parts: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}">\n<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker></defs>\n'
        '<rect class="background" width="100%" height="100%" rx="8"/>\n'
    )
    return head + "\n".join(part for part in parts if part) + "\n</svg>\n"


def _draw_box(box: Box) -> str:
    parts = [
        _rectangle(box.x, box.y, BOX_WIDTH, BOX_HEIGHT, f"box {box.kind}"),
        _text(box.x, box.y - 2 if box.details else box.y + 5, box.name),
    ]
    if box.details:
        parts.append(_text(box.x, box.y + 14, box.details, "small"))
    return "\n".join(parts)


def _draw_arrow(start: Box, end: Box, arrow: Arrow) -> tuple[str, str]:
    """The line from edge to edge, and its label."""
    length = ((end.x - start.x) ** 2 + (end.y - start.y) ** 2) ** 0.5
    aside_x, aside_y = -(end.y - start.y) / length * arrow.shift, (end.x - start.x) / length * arrow.shift
    from_x, from_y = _edge(start, end.x - start.x, end.y - start.y)
    to_x, to_y = _edge(end, start.x - end.x, start.y - end.y)
    from_x, from_y, to_x, to_y = from_x + aside_x, from_y + aside_y, to_x + aside_x, to_y + aside_y
    line = _arrow_path(f"M{from_x:.1f} {from_y:.1f}L{to_x:.1f} {to_y:.1f}")
    x, y = from_x + (to_x - from_x) * arrow.at, from_y + (to_y - from_y) * arrow.at
    return line, _label_on_line(x, y, arrow.label) if arrow.label else ""


def _label_on_line(x: float, y: float, text: str) -> str:
    width = 6 + 5.9 * len(text)
    behind = _rectangle(x, y, width, 16, "background")
    return behind + _text(x, y + 4, text, "label")


def _edge(box: Box, towards_x: float, towards_y: float) -> tuple[float, float]:
    """Where a line from the centre of a box leaves it."""
    across = BOX_WIDTH / 2 / abs(towards_x) if towards_x else float("inf")
    down = BOX_HEIGHT / 2 / abs(towards_y) if towards_y else float("inf")
    share = min(across, down)
    return box.x + towards_x * share, box.y + towards_y * share


def _draw_message(message: Message, y: float) -> str:
    start, end = _lane_x(message.start), _lane_x(message.end)
    if message.start == message.end:
        width = 8 + 6.2 * len(message.text)
        box = _rectangle(start, y - 3, width, 22, f"box {message.kind}")
        return box + "\n" + _text(start, y + 1, message.text, "small")
    line = _arrow_path(f"M{start:g} {y:g}H{end + (3 if end < start else -3):g}")
    return line + "\n" + _text((start + end) / 2, y - 4, message.text, "label")


def _rectangle(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A rectangle around this centre."""
    left, top = x - width / 2, y - height / 2
    return f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height}" rx="6"/>'


def _arrow_path(path: str) -> str:
    return f'<path class="arrow" marker-end="url(#head)" d="{path}"/>'


def _lane_x(number: int) -> float:
    return MARGIN + BOX_WIDTH / 2 + number * LANE_WIDTH


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>'
