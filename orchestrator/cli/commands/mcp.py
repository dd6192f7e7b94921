"""The command `mcp`."""

from __future__ import annotations

import click

from orchestrator.cli.log_options import LogOptions, log_options
from orchestrator.cli.options import Target, connection_options, pass_target


@click.command()
@click.option("--read-only", is_flag=True, help="Offer only the tools that read.")
@click.option(
    "--user",
    metavar="NAME",
    default="mcp",
    show_default=True,
    help="The requester of every change, kept in the history.",
)
@log_options("info")
@connection_options
@pass_target
def mcp(target: Target, read_only: bool, user: str, log: LogOptions) -> None:
    """Serve tools for a language model (MCP, over stdio).

    An MCP client starts this command, and ends it by closing its standard input. It needs the extra `mcp`:
    pip install 'rq-orchestrator[mcp]'. The log goes to the standard error.
    """
    from orchestrator.cli.mcp_server import serve_mcp

    serve_mcp(target, read_only, user, log)
