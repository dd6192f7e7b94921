"""Tools about workflows: check a document, and list what is registered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import check_spec, load_spec
from orchestrator.mcp.arguments import Arguments, JsonObject, Name
from orchestrator.mcp.errors import ToolError
from orchestrator.mcp.system import System
from orchestrator.mcp.tool import Tool
from orchestrator.redis_rq.queries.definitions import registrations

MAX_PROBLEMS = 50

Document = JsonObject | str


class ValidateArguments(Arguments):
    document: Document = Field(description="A workflow document: an object, or a text of YAML or JSON.")


class WorkflowsArguments(Arguments):
    workflow: Name | None = Field(None, description="Return the document and the inputs of this workflow.")


def validate_workflow(system: System, args: ValidateArguments) -> JsonObject:
    """Check a workflow document, and start nothing. Returns whether it is valid, with every problem: its
    place, its code and a hint. Call it before start_execution with a document of your own."""
    try:
        loaded = read_document(args.document)
    except InvalidSpec as error:
        return {"valid": False, "problems": _list_problems(error.problems)}
    return {
        "valid": True,
        "name": loaded.spec.name,
        "steps": [step.id for step in loaded.spec.steps],
        "inputs": describe_inputs(loaded),
        "warnings": _list_problems(loaded.warnings),
    }


def list_workflows(system: System, args: WorkflowsArguments) -> JsonObject:
    """List the registered workflows, which start_execution can start by name. With `workflow`, returns that
    one with its description, the inputs that it takes, and its document."""
    if args.workflow is not None:
        return _describe_workflow(system, args.workflow)
    found = registrations(system.redis, system.keys)
    return {
        "workflows": [
            {"name": one.name, "open_executions": one.open, "is_scheduled": one.is_scheduled} for one in found
        ]
    }


def read_document(document: Document) -> LoadedSpec:
    """Check a document; raises InvalidSpec with every problem, of a text with its line."""
    return load_spec(document) if isinstance(document, str) else check_spec(document)


def describe_inputs(loaded: LoadedSpec) -> JsonObject:
    """The inputs that a workflow declares, by name; without a type an input takes any value."""
    return {name: _describe_input(one) for name, one in loaded.spec.inputs.items()}


def unknown_workflow(name: str) -> ToolError:
    return ToolError("unknown_workflow", f"no workflow is registered as {name[:200]!r}")


def _describe_workflow(system: System, name: str) -> JsonObject:
    try:
        loaded = system.client.store.load_definition(name)
    except KeyError:
        raise unknown_workflow(name) from None
    return {
        "name": name,
        "workflow_id": loaded.workflow_id,
        "description": loaded.spec.description,
        "inputs": describe_inputs(loaded),
        "document": loaded.document,
    }


def _describe_input(declared: Any) -> JsonObject:
    default = {"default": declared.default} if declared.has_default else {}
    return {"type": declared.type, "required": declared.required, **default}


def _list_problems(problems: Sequence[Problem]) -> list[JsonObject]:
    return [one.as_dict() for one in problems[:MAX_PROBLEMS]]


TOOLS = [Tool(validate_workflow), Tool(list_workflows)]
