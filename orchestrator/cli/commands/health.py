"""The command `health`."""

from __future__ import annotations

import socket
from typing import Any

import click

from orchestrator.cli.options import Target, connection_options, json_option, pass_target, read_ms
from orchestrator.cli.output.escaping import print_json, print_text


@click.command()
@click.argument("process", type=click.Choice(("coordinator", "worker", "redis")), default="coordinator")
@click.option("--name", metavar="NAME", help="Only processes whose name begins with NAME.")
@click.option("--any", "on_any_host", is_flag=True, help="Processes on all hosts, not only on this one.")
@click.option(
    "--max-age",
    metavar="TIME",
    default="10s",
    show_default=True,
    callback=read_ms,
    help="The longest time since the last sign of life.",
)
@json_option
@connection_options
@pass_target
def health(
    target: Target, process: Any, name: str | None, on_any_host: bool, max_age: int, as_json: bool
) -> None:
    """Check that processes on this host are responsive.

    For liveness probes: it checks all coordinators of this host, all workers, or only Redis. The exit code is
    0 if all of them respond, and 1 if one does not, if there is none, or if Redis is unavailable.
    """
    from orchestrator.diagnosis import ProcessFilter
    from orchestrator.diagnosis import health as check_health
    from orchestrator.wiring import make_keys

    settings, client = target.connect()
    process_filter = ProcessFilter(None if on_any_host else socket.gethostname(), name)
    result = check_health(client, make_keys(settings), process, process_filter, max_age)
    if as_json:
        print_json(result.as_dict(), indent=2)
    else:
        print_text(result.words)
    raise click.exceptions.Exit(0 if result.is_healthy else 1)
