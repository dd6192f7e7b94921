"""Runs a tool: checks that this server may run it, reads its arguments, and returns a result or an error."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.diagnosis.known_errors import find_known_error
from orchestrator.mcp import controls, executions, starts, steps, workflows
from orchestrator.mcp.arguments import JsonObject, read_arguments
from orchestrator.mcp.errors import ADVICE, ToolError
from orchestrator.mcp.folding import fold
from orchestrator.mcp.system import System
from orchestrator.mcp.tool import Tool

logger = logging.getLogger("orchestrator.mcp")

TOOLS: Sequence[Tool] = [
    *workflows.TOOLS,
    *starts.TOOLS,
    *executions.TOOLS,
    *steps.TOOLS,
    *controls.TOOLS,
]
"""All tools, in the order in which a client sees them."""
_BY_NAME = {one.name: one for one in TOOLS}
MAX_LOGGED_CHARS = 300


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call returns to the client: a result, or an error with a code."""

    content: JsonObject
    is_error: bool = False


def list_tools(system: System) -> list[Tool]:
    """The tools of this server; one that only reads has none that change something."""
    return [one for one in TOOLS if not (one.changes and system.is_read_only)]


def call_tool(system: System, name: str, arguments: Mapping[str, Any] | None) -> CallResult:
    """Call a tool. An error is a result too: the model can correct itself."""
    try:
        tool = _find_tool(system, name)
        content = fold(tool.serve(system, read_arguments(tool.arguments, arguments or {})))
        result = CallResult(content)
    except Exception as error:
        result = CallResult(fold(_explain(error).as_dict()), is_error=True)
    _log(system, name, arguments or {}, result)
    return result


def _find_tool(system: System, name: str) -> Tool:
    tool = _BY_NAME.get(name)
    if tool is None:
        raise ToolError("unknown_tool", f"there is no tool {name[:80]!r}")
    if tool.changes and system.is_read_only:
        raise ToolError("read_only", f"this server only reads: {name} is rejected")
    return tool


def _explain(error: Exception) -> ToolError:
    """The error as a client sees it. A defect is logged with its traceback, and its text is not shown."""
    if isinstance(error, ToolError):
        return error
    known = find_known_error(error)
    if known is None:
        logger.error("a call failed because of a defect", exc_info=error)
        return ToolError("internal", "the call failed because of a defect of this server")
    code = known.code if known.code in ADVICE else "error"
    return ToolError(code, known.message, known.problems, known.more)


def _log(system: System, name: str, arguments: Mapping[str, Any], result: CallResult) -> None:
    """One line for each call that may have changed something, with its user and its result."""
    tool = _BY_NAME.get(name)
    if tool is None or not tool.changes:
        return
    found = (result.content.get("execution_id"), arguments.get("execution_id"), arguments.get("workflow"))
    target = next((one for one in found if one), "a document")
    outcome = result.content["code"] if result.is_error else "ok"
    logger.info("%s of %s by %s: %s", name, _one_line(target), _one_line(system.user), outcome)


def _one_line(value: object) -> str:
    return repr(str(value)[:MAX_LOGGED_CHARS])[1:-1]
