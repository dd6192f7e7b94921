"""A client of the MCP server: the reference client, over stdio, for tests without async functions."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp_types import CallToolResult, InitializeResult, TextContent, Tool

from effort import IS_FULL
from processes import PATIENCE_S, ROOT
from warm_processes import WARM_SERVER

WARM_REQUEST = ROOT / "tests" / "warm_request.py"
LONG_S = 50
"""The longest time that a tool waits."""


@dataclass
class McpClient:
    """A session with the server. Its process has ended when the session is over."""

    portal: BlockingPortal
    session: ClientSession
    log: Path
    greeting: InitializeResult

    def tools(self) -> list[Tool]:
        return self.portal.call(self.session.list_tools).tools

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The result of a tool that succeeds."""
        result = self.call_raw(name, arguments)
        assert not result.is_error, result.structured_content
        return _content(result)

    def fail(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The error of a tool that fails."""
        result = self.call_raw(name, arguments)
        assert result.is_error, result.structured_content
        return _content(result)

    def follow(self, execution_id: str) -> dict[str, Any]:
        """An execution at its end, as an agent waits for it."""
        for _ in range(round(PATIENCE_S / LONG_S) + 1):
            found = self.call("get_execution", execution_id=execution_id, wait_seconds=LONG_S)
            if found["is_over"]:
                return found
        raise AssertionError(f"it has not ended: {found}")

    def call_raw(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        return self.portal.call(partial(self.session.call_tool, name, arguments))


def _content(result: CallToolResult) -> dict[str, Any]:
    """The structured content, which the text repeats."""
    import json

    [block] = result.content
    assert isinstance(block, TextContent)
    found: dict[str, Any] = result.structured_content
    assert json.loads(block.text) == found
    return found


@contextmanager
def mcp_client(redis_url: str, folder: Path, *options: str) -> Iterator[McpClient]:
    """A session with `orchestrator mcp` in a process of its own."""
    log = folder / "mcp.log"
    with log.open("a") as errors, start_blocking_portal() as portal:
        streams = stdio_client(server_parameters(redis_url, *options), errors)
        with (
            portal.wrap_async_context_manager(streams) as (incoming, outgoing),
            portal.wrap_async_context_manager(ClientSession(incoming, outgoing)) as session,
        ):
            greeting = portal.call(session.initialize)
            yield McpClient(portal, session, log, greeting)


def server_parameters(redis_url: str, *options: str) -> StdioServerParameters:
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    module = (
        ["-m", "orchestrator"]
        if IS_FULL
        else ["-I", "-S", str(WARM_REQUEST), WARM_SERVER.path, "orchestrator"]
    )
    return StdioServerParameters(
        command=sys.executable,
        args=[*module, "mcp", *options],
        env={"ORCHESTRATOR_REDIS_URL": redis_url, "PYTHONPATH": path},
        cwd=str(ROOT),
    )
