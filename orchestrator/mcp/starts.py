"""The tool that starts an execution."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from orchestrator.application.errors import OrchestratorError, StartRejected
from orchestrator.client import StartOptions
from orchestrator.client.starts import StartRequest
from orchestrator.mcp.arguments import Arguments, JsonObject, Name, WaitSeconds
from orchestrator.mcp.errors import ToolError
from orchestrator.mcp.executions import describe_execution, wait_for_end
from orchestrator.mcp.system import System
from orchestrator.mcp.tool import Tool
from orchestrator.mcp.workflows import Document, read_document, unknown_workflow

REPLY_TIMEOUT_S = 30.0
"""So long a tool waits for a coordinator: less than the minute after which many clients give up."""

NewId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:-]{1,256}$")]
LabelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
LabelValue = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class StartArguments(Arguments):
    workflow: Name | None = Field(None, description="The name of a registered workflow.")
    document: Document | None = Field(
        None, description="Instead of `workflow`: a document, as an object or as a text of YAML."
    )
    inputs: JsonObject = Field({}, description="The inputs, by name.")
    idempotency_key: NewId | None = Field(
        None,
        description="A name for this piece of work. A second start with the same key, within a day, returns"
        " the first execution and starts nothing.",
    )
    execution_id: NewId | None = Field(None, description="By default made from the time.")
    labels: dict[LabelName, LabelValue] = Field({}, description="Labels to find it by.", max_length=16)
    wait_seconds: WaitSeconds = 0


def start_execution(system: System, args: StartArguments) -> JsonObject:
    """Start a workflow: a registered one by its name, or a document. Returns the execution_id at once; with
    wait_seconds, also the execution as get_execution returns it. Always pass an idempotency_key, so that you
    can repeat the call after any error without starting the work twice."""
    if (args.workflow is None) == (args.document is None):
        raise ToolError("invalid_request", "give `workflow` or `document`: one of the two")
    source = args.workflow if args.workflow is not None else read_document(args.document or {})
    options = StartOptions(labels=args.labels, idempotency_root=args.idempotency_key)
    client = system.client
    [entry] = client.send_starts([StartRequest(source, args.inputs, args.execution_id, options)])
    if not isinstance(entry, str):
        raise entry
    [found] = client.wait_for_starts([entry], REPLY_TIMEOUT_S)
    if isinstance(found, OrchestratorError):
        raise _name_workflow(system, args.workflow, found)
    started: JsonObject = {"execution_id": found.execution_id, "existing": found.existing}
    if not args.wait_seconds:
        return started
    wait_for_end(system, found.workflow_execution_id, args.wait_seconds)
    return {**describe_execution(system, found.workflow_execution_id), **started}


def _name_workflow(system: System, workflow: str | None, error: Exception) -> Exception:
    """The error of a start; unknown_workflow if it was rejected because its workflow is not registered."""
    if not isinstance(error, StartRejected) or workflow is None or workflow in system.queries.names():
        return error
    return unknown_workflow(workflow)


TOOLS = [Tool(start_execution, changes=True, is_idempotent=False)]
