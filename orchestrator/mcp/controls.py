"""Tools that change an execution. Each waits for the reply of a coordinator: what it returns has happened."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from orchestrator.client.controls import ControlResult
from orchestrator.mcp.arguments import Arguments, ExecutionId, JsonObject, Name, Reason
from orchestrator.mcp.starts import REPLY_TIMEOUT_S
from orchestrator.mcp.system import System
from orchestrator.mcp.tool import Tool


class SignalArguments(Arguments):
    execution_id: ExecutionId
    signal: Name = Field(description="The name of the signal. explain_execution shows which one is awaited.")
    payload: Any = Field(None, description="Any JSON value; it becomes the output of the waiting step.")


class CancelArguments(Arguments):
    execution_id: ExecutionId
    reason: Reason = None


class RetryArguments(CancelArguments):
    inputs: JsonObject | None = Field(None, description="Replaces inputs of the same names; the others stay.")


def send_signal(system: System, args: SignalArguments) -> JsonObject:
    """Send a signal, such as an approval, to an execution: the step that waits for it continues. If no step
    waits yet, the signal is kept. Do not send it twice: a second one may reach the next step that waits."""
    # An unknown id is an error here: a signal to it would be kept for an execution that never starts.
    full_id = system.client.store.full_id(args.execution_id)
    system.queries.version(full_id)
    is_delivered = system.client.signal(full_id, args.signal, args.payload, REPLY_TIMEOUT_S)
    return {"execution_id": _short_id(args), "signal": args.signal, "kept": not is_delivered}


def cancel_execution(system: System, args: CancelArguments) -> JsonObject:
    """Cancel an execution and its children; then its completed steps are compensated. It cannot be undone."""
    done = system.client.cancel(args.execution_id, args.reason, system.user, REPLY_TIMEOUT_S)
    return _describe(args, done)


def retry_execution(system: System, args: RetryArguments) -> JsonObject:
    """Run the steps again that did not complete in a failed or cancelled execution. Correct the cause first:
    explain_execution shows it. Steps that completed do not run again."""
    done = system.client.retry(args.execution_id, args.reason, system.user, args.inputs)
    return _describe(args, done)


def _describe(args: CancelArguments, done: ControlResult) -> JsonObject:
    return {"execution_id": _short_id(args), "status": done.status, "changed": done.changed}


def _short_id(args: SignalArguments | CancelArguments) -> str:
    return args.execution_id.rpartition("#")[2]


TOOLS = [
    Tool(send_signal, changes=True, is_idempotent=False),
    Tool(cancel_execution, changes=True, is_destructive=True),
    Tool(retry_execution, changes=True, is_idempotent=False),
]
