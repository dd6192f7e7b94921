"""The steps of an execution: all of them, one with everything about it, the graph, and why it waits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from orchestrator.application.explain.execution_json import step_as_dict
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_view import make_record_view
from orchestrator.application.records.replay import list_attempts
from orchestrator.application.records.step_log import filter_by_step
from orchestrator.application.values.unit_id import UnitId, step_of
from orchestrator.diagnosis import why
from orchestrator.diagnosis.why import UnknownStep
from orchestrator.drawing.diagram import diagram_from_view
from orchestrator.drawing.layout import lay_out
from orchestrator.drawing.outline import MAX_NODES, make_outline
from orchestrator.drawing.svg import render_svg
from orchestrator.web.api.executions import Step
from orchestrator.web.api.history import Attempt, Line, make_line
from orchestrator.web.api.models import Json, Name, Query, Reply
from orchestrator.web.api.route import ApiRoute, Call


class StepsQuery(Query):
    step: str | None = Field(None, description="Only this step, with its items and its compensation.")


class Steps(Reply):
    """The steps in the order of the document, then items of maps and compensations; by unit."""

    steps: dict[str, Step]


class StepQuery(Query):
    step: Name = Field(description="A step, an item (STEP#0) or a compensation (STEP#undo).")


class StepDetails(Step):
    """Everything about one step, item or compensation."""

    step: str
    inputs: Json = Field(
        description="The inputs of its last dispatch, while its job exists or if the history has values."
    )
    lines: list[Line]
    attempts: list[Attempt] | None = Field(description="Null if the history has no values.")


class WhyQuery(Query):
    step: str | None = Field(None, description="Explain this step, item or compensation.")


class Reason(Reply):
    """One reason: a code for programs, words for people, and advice for operators."""

    code: str
    words: str
    step: str = Field(description="The step, item or compensation; empty for the execution.")
    until_ms: int | None = Field(description="When the reason goes away by itself, in ms since 1970.")
    advice: str


class Explanation(Reply):
    execution_id: str
    workflow_execution_id: str | None
    status: str | None = Field(description="Null if no coordinator has handled the start yet.")
    reasons: list[Reason]
    children: list[Explanation] = Field(description="The executions that it waits for.")


class Node(Reply):
    id: str
    title: str | None
    kind: str
    layer: int = Field(description="The length of the longest path to it.")
    marks: list[str]
    status: str | None


class Edge(Reply):
    source: str
    target: str
    kind: str
    label: str


class Graph(Reply):
    name: str | None
    execution_id: str | None
    nodes: list[Node]
    edges: list[Edge]


def list_steps(call: Call, execution: Name, query: StepsQuery) -> Steps:
    """List the steps of an execution, or one step with its items."""
    view = call.instance.client.status_view(execution)
    record = view.record
    if query.step is not None:
        _check_unit(record, query.step)
    redact = make_record_view(record)
    items = sorted(record.items.items(), key=lambda one: _order_of(record, one[0]))
    every = (*record.steps.items(), *items)
    units = (one for one in every if query.step in (None, one[0], step_of(one[0])))
    return Steps(steps={unit: Step(**step_as_dict(view, unit, one, redact)) for unit, one in units})


def get_step(call: Call, execution: Name, query: StepQuery) -> StepDetails:
    """Get everything about one step: its inputs, output, error, attempts and log lines."""
    instance, unit = call.instance, query.step
    view = instance.client.status_view(execution)
    record = view.record
    _check_unit(record, unit)
    step = record.steps[unit] if unit in record.steps else record.items[unit]
    redact = make_record_view(record)
    lines = filter_by_step(instance.client.store.log_lines(record.workflow_execution_id), unit)
    history = instance.client.store.history(record.workflow_execution_id) if record.delta else None
    attempts = None if history is None else list_attempts(history, unit)
    inputs = None if step.token is None else instance.queries.inputs_of(step.token)
    if inputs is None and attempts:
        inputs = attempts[-1].inputs
    return StepDetails(
        **step_as_dict(view, unit, step, redact),
        step=unit,
        inputs=redact(inputs),
        lines=[make_line(one, redact) for one in lines],
        attempts=None
        if attempts is None
        else [Attempt.model_validate(redact(one.as_dict())) for one in attempts],
    )


def explain(call: Call, execution: Name, query: WhyQuery) -> Explanation:
    """Explain why an execution or a step waits or failed, as `orchestrator explain` does.

    The id may also be the entry of a start that has no reply yet.
    """
    found = why(call.instance.redis, call.instance.keys, execution, query.step or "")
    return Explanation.model_validate(found.as_dict())


def get_graph(call: Call, execution: Name) -> Graph:
    """Get the graph of an execution: steps with their statuses, and which waits for which."""
    return Graph.model_validate(diagram_from_view(call.instance.client.status_view(execution)).as_dict())


class PictureQuery(Query):
    max_nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = Field(
        MAX_NODES, description="With more steps, similar ones are drawn as one node."
    )


def get_picture(call: Call, execution: Name, query: PictureQuery) -> str:
    """Get the graph of an execution as a picture: SVG, in light and dark colours."""
    diagram = diagram_from_view(call.instance.client.status_view(execution))
    return render_svg(lay_out(make_outline(diagram, max_nodes=query.max_nodes)))


def _order_of(record: WorkflowRecord, unit: str) -> tuple[int, int, str]:
    """Items come in the order of their steps, by their number."""
    unit_id = UnitId(unit)
    index = unit_id.item_index
    return record.graph.index.get(unit_id.step_id, -1), -1 if index is None else index, unit


def _check_unit(record: WorkflowRecord, unit: str) -> None:
    if unit not in record.steps and unit not in record.items:
        raise UnknownStep(record, unit)


ROUTES = [
    ApiRoute("GET", "/executions/{execution}/steps", list_steps),
    ApiRoute("GET", "/executions/{execution}/step", get_step),
    ApiRoute("GET", "/executions/{execution}/explain", explain),
    ApiRoute("GET", "/executions/{execution}/graph", get_graph),
    ApiRoute("GET", "/executions/{execution}/graph.svg", get_picture, media="image/svg+xml"),
]
