"""Serves the MCP server from the command line, until its standard input is closed."""

from __future__ import annotations

import signal
from importlib import import_module

import click

from orchestrator.cli.errors import Failure
from orchestrator.cli.log_options import LogOptions
from orchestrator.cli.options import Target, check_url
from orchestrator.cli.startup import configure_logging
from orchestrator.cli.web_server import leave

MISSING_EXTRA = "the MCP server needs more packages: pip install 'rq-orchestrator[mcp]'"
MAX_USER_CHARS = 200


def serve_mcp(target: Target, read_only: bool, user: str, log: LogOptions) -> None:
    """Serve the tools over stdio. The standard output belongs to the protocol, so nothing else is printed."""
    check_extra()
    from orchestrator.mcp.server import serve_stdio
    from orchestrator.mcp.system import System

    if not 0 < len(user) <= MAX_USER_CHARS or not user.isprintable():
        raise click.UsageError(f"--user: write a name of at most {MAX_USER_CHARS} characters")
    settings = target.settings()
    check_url(settings.redis_url)
    configure_logging(log, "mcp")
    # The thread that reads the standard input cannot be interrupted: the default handler ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    serve_stdio(System(settings, user, read_only))
    leave()


def check_extra() -> None:
    """Raise Failure unless the packages of the extra `mcp` are installed."""
    try:
        for name in ("mcp.server.lowlevel", "mcp_types"):
            import_module(name)
    except ModuleNotFoundError as error:
        raise Failure(f"{MISSING_EXTRA} (missing: {error.name})") from None
