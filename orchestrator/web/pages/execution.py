"""The page of an execution: its header and one of its views, and the drawer of a step.

A view is computed only when it is shown, so the page of a large execution comes quickly. The header, the
graph, the timeline and the drawer can also be loaded alone: live updates and links replace them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from orchestrator.application.explain.execution_json import as_dict
from orchestrator.application.explain.timeline import make_timeline
from orchestrator.drawing.diagram import diagram_from_view
from orchestrator.drawing.layout import lay_out
from orchestrator.drawing.outline import MAX_NODES, OutlineNode, make_outline
from orchestrator.drawing.svg import render_svg
from orchestrator.web.instance import instance_of
from orchestrator.web.live import stream
from orchestrator.web.problems import Problem
from orchestrator.web.rendering import path_of, render
from orchestrator.web.shown_execution import MAX_REASONS, PAGE_SIZE, ShownExecution

VIEWS = {
    "graph": "Graph",
    "timeline": "Timeline",
    "steps": "Steps",
    "events": "Events",
    "why": "Why",
    "record": "Record",
}
PARTS = {
    "summary": "execution_summary.html",
    "graph": "execution_graph.html",
    "timeline": "execution_timeline.html",
    "step": "execution_step.html",
}
"""What can be loaded alone, by `?part=`."""

QUERY = ("view", "step", "expand", "from", "order", "items")
"""The query parameters that links of the page keep."""

MAX_DRAWN_NODES = 300
"""With more steps, similar ones are drawn as one node. A fan of 1,000 nodes would be 44,000 pixels high."""
MAX_EXPANDED = 50


def show(request: Request) -> Response:
    shown = ShownExecution.load(instance_of(request), request.path_params["execution"])
    return render_execution(request, shown)


def render_execution(
    request: Request, shown: ShownExecution, status: int = 200, signal: Mapping[str, str] | None = None
) -> Response:
    """Render the page, or one part of it. `signal` is a form that could not be sent, with its `error`."""
    query = request.query_params
    part, unit = query.get("part"), query.get("step")
    view = query.get("view", "graph")
    if view not in VIEWS or (part is not None and part not in PARTS):
        raise Problem(404, "not_found", "this page has no such view")
    values: dict[str, Any] = {
        "shown": shown,
        "record": shown.record,
        "VIEWS": VIEWS,
        "view": view,
        "signal": signal,
        "step_path": lambda unit: _path_with(request, step=unit),
        "max_reasons": MAX_REASONS,
    }
    if part in (None, "summary"):
        values["reasons"] = shown.explain() if not shown.record.is_final and not shown.is_large else []
    if unit and part in (None, "step"):
        values["details"] = _find_details(request, shown, unit)
    elif part == "step":
        raise Problem(400, "bad_query", "name a step: ?step=NAME")
    if part is None or part in VIEWS:
        values |= _view_values(request, shown, part or view)
    return render(request, "execution.html" if part is None else PARTS[part], status, **values)


def show_raw(request: Request) -> Response:
    """The record as `show --json` prints it."""
    view = instance_of(request).client.status_view(request.path_params["execution"])
    return JSONResponse(as_dict(view))


def _view_values(request: Request, shown: ShownExecution, view: str) -> dict[str, Any]:
    match view:
        case "graph":
            return {"graph": _draw_graph(request, shown)}
        case "timeline":
            entries = shown.entries()
            return {"timeline": make_timeline(shown.view, entries, shown.now_ms)}
        case "steps":
            units = shown.steps()
            first = _read_number(request, "from", len(units))
            return {
                "rows": shown.rows(units[first : first + PAGE_SIZE]),
                "pages": _pages(request, "from", first, len(units)),
            }
        case "events":
            return _event_values(request, shown)
        case "why":
            return {"all_reasons": shown.explain()}
    return {}


def _event_values(request: Request, shown: ShownExecution) -> dict[str, Any]:
    """A page of the history: the newest entries first, or with `?order=old` the oldest."""
    is_oldest_first, total = request.query_params.get("order") == "old", shown.position
    skipped = _read_number(request, "from", total)
    if is_oldest_first:
        entries = shown.events(skipped, PAGE_SIZE)
    else:
        last = total - skipped
        entries = shown.events(max(last - PAGE_SIZE, 0), min(PAGE_SIZE, last))[::-1] if last else []
    return {
        "entries": entries,
        "is_oldest_first": is_oldest_first,
        "pages": _pages(request, "from", skipped, total),
        "order_path": _path_with(request, order=None if is_oldest_first else "old", **{"from": None}),
    }


def _draw_graph(request: Request, shown: ShownExecution) -> dict[str, Any]:
    """The picture of the graph. Nodes are links: of a step to its drawer, of a group to the same with the
    group expanded."""
    expanded = frozenset(request.query_params.getlist("expand")[:MAX_EXPANDED])
    outline = make_outline(
        diagram_from_view(shown.view), max_nodes=MAX_DRAWN_NODES, expanded=expanded, max_opened=MAX_NODES
    )

    def link(node: OutlineNode) -> str:
        if node.is_group:
            return _path_with(request, expand=[*sorted(outline.expanded), node.id], step=None)
        return _path_with(request, step=node.id)

    layout = lay_out(outline)
    return {
        "svg": render_svg(layout, is_standalone=False, link=link),
        "expanded": sorted(outline.expanded),
        "collapse_path": _path_with(request, expand=None),
        "refresh_path": _path_with(request, part="graph", view="graph", step=None),
        "is_collapsed": len(outline.nodes) < outline.step_count,
    }


def _find_details(request: Request, shown: ShownExecution, unit: str) -> dict[str, Any]:
    """What the drawer shows of a unit, with a page of the items of a map."""
    details = shown.unit_details(unit)
    items = shown.items_of(unit) if details["step"].items is not None else []
    first = _read_number(request, "items", len(items))
    return details | {
        "items": shown.rows(items[first : first + PAGE_SIZE]),
        "item_pages": _pages(request, "items", first, len(items)),
        "close_path": _path_with(request, step=None, items=None),
    }


def _read_number(request: Request, name: str, maximum: int) -> int:
    text = request.query_params.get(name, "") or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Problem(400, "bad_query", f"{name} must be a number, not {text[:40]!r}")
    return min(int(text), maximum)


def _pages(request: Request, name: str, first: int, total: int) -> dict[str, Any] | None:
    """The range that is shown, and the paths of the pages before and after it; None if all is shown."""
    if total <= PAGE_SIZE and not first:
        return None
    last = min(first + PAGE_SIZE, total)
    return {
        "first": min(first + 1, total),
        "last": last,
        "total": total,
        "before": _path_with(request, **{name: max(first - PAGE_SIZE, 0)}) if first else None,
        "after": _path_with(request, **{name: last}) if last < total else None,
    }


def _path_with(request: Request, **changes: Any) -> str:
    """The path of this page with some query parameters changed."""
    query = request.query_params
    kept = {key: query.getlist(key) for key in QUERY if key in query}
    return path_of(request, "execution", execution=request.path_params["execution"], **(kept | changes))


ROUTES = [
    Route("/executions/{execution}", show, name="execution"),
    Route("/executions/{execution}/record", show_raw, name="execution_record"),
    Route("/executions/{execution}/live", stream.serve_page, name="execution_live"),
    Route("/api/v1/executions/{execution}/events", stream.serve_program, name="api_execution_events"),
]
