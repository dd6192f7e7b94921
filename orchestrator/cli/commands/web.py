"""The command `web`."""

from __future__ import annotations

import re

import click

from orchestrator.cli.log_options import LogOptions, log_options
from orchestrator.cli.options import Target, connection_options, pass_target


def _read_root_path(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """A path with one slash before each part, and none at its end."""
    if value and not re.fullmatch(r"(/[\w.~-]+)+/?", value, re.ASCII):
        raise click.BadParameter(f"{value!r}: write a path, such as /flows", ctx, param)
    return value.rstrip("/")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8321,
    show_default=True,
    help="The port; 0 takes a free one.",
)
@click.option(
    "--token-file", metavar="FILE", help="Users, their roles and tokens; the page then has a login."
)
@click.option("--read-only", is_flag=True, help="Reject every action.")
@click.option(
    "--allow-host",
    metavar="NAME",
    multiple=True,
    help="A further host name of this page, for a page without tokens; may be repeated.",
)
@click.option(
    "--instance",
    metavar="NAME=URL[,PREFIX]",
    multiple=True,
    help="Show several systems, each below its name; may be repeated.",
)
@click.option(
    "--root-path",
    metavar="PATH",
    default="",
    callback=_read_root_path,
    help="The path that a proxy before this page removes, such as /flows.",
)
@click.option("--new-token", is_flag=True, help="Print a new token for the file of tokens, and exit.")
@log_options("info")
@connection_options
@pass_target
def web(
    target: Target,
    host: str,
    port: int,
    token_file: str | None,
    read_only: bool,
    allow_host: tuple[str, ...],
    instance: tuple[str, ...],
    root_path: str,
    new_token: bool,
    log: LogOptions,
) -> None:
    """Serve the web page and the HTTP API.

    It needs the extra `web`: pip install 'rq-orchestrator[web]'. It listens on this machine only; any other
    address needs a --token-file.
    """
    from orchestrator.cli.web_server import WebOptions, print_new_token, serve_web

    if new_token:
        print_new_token()
        return
    serve_web(target, WebOptions(host, port, token_file, read_only, allow_host, instance, root_path), log)
