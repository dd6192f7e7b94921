"""The command `signal`."""

from __future__ import annotations

import click

from orchestrator.cli.completers import execution_argument
from orchestrator.cli.options import Target, connection_options, json_option, pass_target, read_document
from orchestrator.cli.output.escaping import print_json, print_text


@click.command()
@execution_argument
@click.argument("name", metavar="NAME")
@click.option(
    "--payload", metavar="JSON|@FILE", default="null", help="The payload: any JSON value, @FILE, or @-."
)
@json_option
@connection_options
@pass_target
def signal(target: Target, execution_id: str, name: str, payload: str, as_json: bool) -> None:
    """Send a signal to an execution.

    The step that waits for the signal continues, with the payload as its output. If no step waits yet, the
    signal is kept.
    """
    from orchestrator.redis_rq.json_codec import loads

    text = read_document(payload[1:]) if payload.startswith("@") else payload
    try:
        value = loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="--payload") from None
    is_delivered = target.client().signal(execution_id, name, value)
    if as_json:
        print_json({"execution_id": execution_id, "signal": name, "kept": not is_delivered})
    elif is_delivered:
        print_text(f"{execution_id}: signal {name!r} delivered to a waiting step")
    else:
        print_text(f"{execution_id}: signal {name!r} kept, no step waits for it yet")
