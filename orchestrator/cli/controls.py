"""The options and the output of commands that control executions, such as cancel, retry and pause.

Each command waits for the reply of a coordinator: what it prints has happened.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.errors import EXIT_INVALID
from orchestrator.cli.options import connection_options, json_option, pass_target
from orchestrator.cli.output.escaping import print_json, print_text
from orchestrator.cli.output.formatting import format_count, humanize

if TYPE_CHECKING:
    from orchestrator.client import BulkResult, Client, ControlResult, ExecutionFilter

EXIT_NO_REPLY = 1


def _user_name() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return None


by_option = click.option(
    "--by", metavar="NAME", default=_user_name, help="The requester, kept in the history (your user name)."
)
reason_option = click.option("--reason", metavar="TEXT", help="The reason, kept in the history.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask before changing all that a filter finds.")


def control_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every control has: --by, --json, --redis-url and --prefix."""
    return by_option(json_option(connection_options(pass_target(command))))


def names_executions(ids: Sequence[str], execution_filter: ExecutionFilter | None) -> bool:
    """Whether the user named executions; False if a filter selects them. Exactly one of both is allowed."""
    if bool(ids) == (execution_filter is not None):
        raise click.UsageError(
            "give execution ids, or a filter: --status, --name, --group, --label, --since, --until"
        )
    return bool(ids)


def send_to_each(
    ids: Sequence[str],
    send: Callable[[str], ControlResult],
    as_json: bool,
    describe: Callable[[ControlResult], str] | None = None,
) -> None:
    """Send a control to each execution, print the replies, and exit.

    After a rejection the others are still sent. Without a reply the rest is not sent, and what was done so
    far is printed.
    """
    from orchestrator.application.errors import RecordNotFound
    from orchestrator.client import ControlRejected, NoReply

    rows: list[dict[str, Any]] = []
    exit_code = 0
    for one in ids:
        try:
            reply = send(one)
        except (ControlRejected, RecordNotFound, NoReply) as error:
            exit_code = EXIT_NO_REPLY if isinstance(error, NoReply) else EXIT_INVALID
            rows.append({"execution_id": one, "ok": False, "reason": str(error)})
            if not as_json:
                print_text(f"{one}: {error}", err=True)
            if exit_code == EXIT_NO_REPLY:
                break
            continue
        rows.append({"execution_id": one, "ok": True, "status": reply.status, "changed": reply.changed})
        if not as_json:
            print_text(f"{one}: {(describe or _describe_status)(reply)}")
    if as_json:
        print_json(rows if len(ids) > 1 else rows[0])
    raise click.exceptions.Exit(exit_code)


def _describe_status(reply: ControlResult) -> str:
    return ("" if reply.changed else "already ") + humanize(reply.status)


def send_to_all(
    verb: str,
    done: str,
    client: Client,
    execution_filter: ExecutionFilter | None,
    send: Callable[[ExecutionFilter], BulkResult],
    yes: bool,
    as_json: bool,
) -> None:
    """Send a control to all executions that a filter finds, after a confirmation, and print the counts."""
    from orchestrator.client import BulkResult

    assert execution_filter is not None
    count = None if yes else sum(1 for _ in client.list_all(execution_filter))
    if count:
        click.confirm(f"{verb} {format_count(count, 'execution')}?", abort=True, err=True)
    bulk = BulkResult() if count == 0 else send(execution_filter)
    if as_json:
        print_json({"done": bulk.done, "refused": bulk.rejected})
        return
    for one, reason in bulk.rejected.items():
        print_text(f"{one}: {reason}", err=True)
    click.echo(f"{len(bulk.done)} {done}, {len(bulk.rejected)} rejected")
