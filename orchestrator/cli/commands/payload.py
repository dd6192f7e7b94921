"""The command `payload`."""

from __future__ import annotations

import click

from orchestrator.cli.errors import InvalidRequest
from orchestrator.cli.options import Target, connection_options, pass_target
from orchestrator.cli.output.escaping import print_json


@click.command()
@click.argument("payload_id", metavar="ID")
@connection_options
@pass_target
def payload(target: Target, payload_id: str) -> None:
    """Print a large value that is stored by reference.

    ID is the value of $payload in a record. The value is read from the store in ORCHESTRATOR_PAYLOADS, and
    printed as JSON.
    """
    from orchestrator.application.values.payload_refs import is_payload_id

    if not is_payload_id(payload_id):
        raise InvalidRequest(f"a payload id has 64 digits of 0 to 9 and a to f, not {payload_id[:100]!r}")
    print_json(target.client().payload(payload_id))
