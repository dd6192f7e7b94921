"""A layout as SVG.

Every node is a `<g>` with the class `node`, the class `k-<kind>` of its kind, and the class `s-<status>` of
its status. A step has the attribute `data-step`, a group of steps `data-group`. So a page shows a new
status by changing a class. There are no inline styles, no scripts and no ids: a strict Content-Security-
Policy accepts the picture, and a page may show several. The colours are in `graph.css`. A standalone
picture contains this stylesheet; an inline one needs it in its page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.resources import files

from orchestrator.application.explain.formatting import format_count, humanize
from orchestrator.drawing.icons import ICONS
from orchestrator.drawing.labels import escape_text, shorten
from orchestrator.drawing.layout import (
    BAR_HEIGHT,
    DETAIL_HEIGHT,
    DETAIL_SIZE,
    MAX_LABEL_WIDTH,
    NAME_HEIGHT,
    NAME_SIZE,
    TEXT_LEFT,
    TEXT_RIGHT,
    Layout,
    PlacedEdge,
    PlacedNode,
    Point,
    join_details,
)
from orchestrator.drawing.outline import STATUS_PRIORITY, OutlineNode

ARROWS = {"right": "m-5-4l5 4-5 4", "left": "m5-4l-5 4 5 4", "down": "m-4-5l4 5 4-5", "up": "m-4 5l4-5 4 5"}
"""The head of an arrow, drawn at the end of a path."""

STACK = 4
"""A group of steps looks like a stack: a second sheet, this far behind the first."""

BAR_LEFT = 8


def render_svg(
    layout: Layout, *, is_standalone: bool = True, link: Callable[[OutlineNode], str] | None = None
) -> str:
    """Render a layout as a file of its own, or as an element for a page. With `link`, each node is a link to
    the path that it returns for the node."""
    outline = layout.outline
    about = f"{format_count(outline.step_count, 'step')}, {format_count(len(layout.edges), 'edge')}"
    if len(outline.nodes) < outline.step_count:
        about += f", drawn as {format_count(len(outline.nodes), 'node')}"
    parts = ['<?xml version="1.0" encoding="UTF-8"?>\n'] if is_standalone else []
    parts += [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" role="{"img" if link is None else "group"}"',
        f' width="{layout.width}" height="{layout.height}" viewBox="0 0 {layout.width} {layout.height}">',
        f"<title>{escape_text(outline.title)}</title><desc>{about}</desc>\n",
    ]
    if is_standalone:
        parts.append(f"<style>\n{read_stylesheet()}</style>\n")
        parts.append('<rect class="background" width="100%" height="100%"/>\n')
    parts.append('<g class="edges">\n')
    is_down = layout.direction == "down"
    parts += [_render_edge(edge, is_down) for edge in layout.edges]
    parts.append('</g>\n<g class="nodes">\n')
    nodes = (_render_node(node, is_standalone) for node in layout.nodes)
    if link is None:
        parts += nodes
    else:
        paths = (escape_text(link(node.node)) for node in layout.nodes)
        parts += (f'<a href="{path}">{node}</a>' for path, node in zip(paths, nodes, strict=True))
    parts.append('</g>\n<g class="labels">\n')
    parts += [_render_label(edge, is_down) for edge in layout.edges if edge.edge.label]
    parts.append("</g>\n</svg>\n")
    return "".join(parts)


@cache
def read_stylesheet() -> str:
    """Read the stylesheet that an inline picture needs in its page."""
    return files("orchestrator.drawing").joinpath("graph.css").read_text(encoding="utf-8")


def _render_edge(placed: PlacedEdge, is_down: bool) -> str:
    kind = placed.edge.kind
    start, end = placed.points[0], placed.points[-1]
    is_arc = start[is_down] == end[is_down]
    path = _draw_arc(placed.points, is_down) if is_arc else _draw_line(placed.points, is_down)
    return f'<path class="edge e-{kind}" d="{path}"/>\n'


def _draw_line(points: Sequence[Point], is_down: bool) -> str:
    """Draw an edge: a curve from each point at an even place, then a straight line to the next curve."""
    x, y = points[0]
    parts = [f"M{x} {y}"]
    last = len(points) - 1
    for place in range(1, last + 1, 2):
        to_x, to_y = points[place]
        if is_down and x != to_x:
            half = (y + to_y) // 2
            parts.append(f"C{x} {half} {to_x} {half} {to_x} {to_y}")
        elif not is_down and y != to_y:
            half = (x + to_x) // 2
            parts.append(f"C{half} {y} {half} {to_y} {to_x} {to_y}")
        elif place == last:
            parts.append(f"V{to_y}" if is_down else f"H{to_x}")
        if place < last:
            x, y = points[place + 1]
            # A straight line is part of the next one if that goes on in the same direction.
            if points[place + 2][not is_down] != (x if is_down else y) or place + 2 > last:
                parts.append(f"V{y}" if is_down else f"H{x}")
    leads_back = points[-1] < points[-2] if not is_down else points[-1][1] < points[-2][1]
    parts.append(ARROWS[("up" if leads_back else "down") if is_down else ("left" if leads_back else "right")])
    return "".join(parts)


def _draw_arc(points: Sequence[Point], is_down: bool) -> str:
    """Draw the curve between two nodes of one column, beside it."""
    (x, y), (x1, y1), (x2, y2), (to_x, to_y) = points
    return f"M{x} {y}C{x1} {y1} {x2} {y2} {to_x} {to_y}{ARROWS['up' if is_down else 'left']}"


def _render_label(placed: PlacedEdge, is_down: bool) -> str:
    """Render the label of an edge, before the target."""
    x, y = placed.points[-1]
    label = escape_text(shorten(placed.edge.label, MAX_LABEL_WIDTH, DETAIL_SIZE))
    if is_down:
        return f'<text class="label" x="{x + 6}" y="{y - 9}">{label}</text>\n'
    return f'<text class="label" x="{x - 9}" y="{y - 5}" text-anchor="end">{label}</text>\n'


def _render_node(placed: PlacedNode, is_standalone: bool) -> str:
    node, width, height = placed.node, placed.width, placed.height
    status = node.status
    classes = f"node k-{node.kind}{f' s-{status}' if status else ''}{' group' if node.is_group else ''}"
    text_width = width - TEXT_LEFT - TEXT_RIGHT
    bottom = height - (BAR_HEIGHT if height >= NAME_HEIGHT + DETAIL_HEIGHT + BAR_HEIGHT else 0)
    middle = bottom // 2
    data = f'data-{"group" if node.is_group else "step"}="{escape_text(node.id)}"'
    parts = [
        f'<g class="{classes}" {data} transform="translate({placed.x} {placed.y})">',
        f"<title>{_describe(node, with_status=is_standalone)}</title>",
    ]
    if node.is_group:
        parts.append(
            f'<rect class="stack" x="{STACK}" y="{STACK}" width="{width}" height="{height}" rx="6"/>'
        )
    parts.append(f'<rect class="box" width="{width}" height="{height}" rx="6"/>')
    parts.append(f'<path class="icon" transform="translate(9 {middle - 8})" d="{ICONS[node.kind]}"/>')
    name = escape_text(shorten(node.name, text_width, NAME_SIZE, keeps_end=True))
    baseline = middle - 2 if node.details else middle + 5
    parts.append(f'<text class="name" x="{TEXT_LEFT}" y="{baseline}">{name}</text>')
    if node.details:
        details = escape_text(shorten(join_details(node), text_width, DETAIL_SIZE, keeps_end=node.is_group))
        parts.append(f'<text class="details" x="{TEXT_LEFT}" y="{middle + 13}">{details}</text>')
    if node.is_group and node.counts:
        parts += _render_bar(node, width - 2 * BAR_LEFT, height - BAR_HEIGHT)
    parts.append("</g>\n")
    return "".join(parts)


def _describe(node: OutlineNode, *, with_status: bool) -> str:
    """Describe a node in full: its name, its details and, for a file that stays as it is, its status."""
    lines = [node.name, *node.details]
    if with_status and node.counts:
        if node.is_group:
            lines += [f"{node.counts[one]} {humanize(one)}" for one in STATUS_PRIORITY if one in node.counts]
        else:
            lines[0] += f": {humanize(node.status or '')}"
    return "\n".join(map(escape_text, lines))


def _render_bar(node: OutlineNode, width: int, top: int) -> Iterator[str]:
    """Render how many steps of a group have which status, as a bar of as many colours."""
    total, done, x = sum(node.counts.values()), 0, 0
    yield f'<g class="bar" transform="translate({BAR_LEFT} {top})">'
    for status in STATUS_PRIORITY[::-1]:
        if status in node.counts:
            done += node.counts[status]
            end = max(width * done // total, x + 1)
            yield f'<rect class="s-{status}" x="{x}" width="{end - x}" height="3"/>'
            x = end
    yield "</g>"
