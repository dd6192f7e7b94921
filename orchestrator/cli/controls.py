"""The options and the output of commands that control executions, such as cancel, retry and pause.

Each command waits for the reply of a coordinator: what it prints has happened.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from orchestrator.application.explain.formatting import format_count, humanize
from orchestrator.cli.errors import EXIT_INVALID, InvalidRequest
from orchestrator.cli.follow import open_record_queries
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.escaping import print_json, print_text

if TYPE_CHECKING:
    from orchestrator.client import BulkResult, Client, ControlResult, ExecutionFilter
    from orchestrator.client.bulk import BulkAction

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
failure_option = click.option(
    "--failure", metavar="ID", help="With this failure: an id that `orchestrator failures` lists."
)


def control_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every control has: --by, --json, --redis-url and --prefix."""
    return by_option(json_option(connection_options(pass_target(command))))


@dataclass(frozen=True, slots=True)
class Selection:
    """The executions that the user selects instead of naming them: by a filter, by a failure, or by both."""

    execution_filter: ExecutionFilter
    failure: str | None


def find_selection(
    ids: Sequence[str], execution_filter: ExecutionFilter | None, failure: str | None
) -> Selection | None:
    """Return what selects the executions; None if the user named them. Exactly one of both is allowed."""
    from orchestrator.client import ExecutionFilter

    if bool(ids) == (execution_filter is not None or failure is not None):
        raise click.UsageError(
            "give execution ids, or a filter: --status, --name, --group, --label, --text, --since, --until,"
            " --failure"
        )
    return None if ids else Selection(execution_filter or ExecutionFilter(), failure)


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
    action: BulkAction,
    target: Target,
    selection: Selection,
    send: Callable[[Client, ExecutionFilter], BulkResult],
    yes: bool,
    as_json: bool,
) -> None:
    """Send a control to all selected executions, and print the counts. It says how many they are before it
    begins, and asks, unless the user said yes. Executions that are created meanwhile are not included."""
    from orchestrator.client import BulkResult

    client, wanted = target.client(), selection.execution_filter
    now_ms = open_record_queries(target).now_ms()
    if wanted.until_ms is None or wanted.until_ms > now_ms:
        wanted = replace(wanted, until_ms=now_ms + 1)
    count = sum(1 for _ in client.select(action, wanted, selection.failure))
    if count:
        _announce(action, count, yes)
    elif selection.failure is not None:
        print_text(_NONE_WITH_FAILURE[action].format(selection.failure), err=True)
    bulk = send(client, wanted) if count else BulkResult()
    if as_json:
        print_json({"done": bulk.done, "refused": bulk.rejected})
        return
    for one, reason in bulk.rejected.items():
        print_text(f"{one}: {reason}", err=True)
    click.echo(f"{len(bulk.done)} {_DONE[action]}, {len(bulk.rejected)} rejected")


_DONE: dict[BulkAction, str] = {"cancel": "cancelled", "retry": "retried", "delete": "deleted"}
_NONE_WITH_FAILURE: dict[BulkAction, str] = {
    "cancel": "no open execution has the failure {!r}; failed ones can be retried or deleted",
    "retry": "no failed execution has the failure {!r}; orchestrator failures lists them",
    "delete": "no failed execution has the failure {!r}; orchestrator failures lists them",
}


def _announce(action: BulkAction, count: int, yes: bool) -> None:
    from orchestrator.client.bulk import MAX_BULK_EXECUTIONS

    subject = format_count(count, "execution")
    if count >= MAX_BULK_EXECUTIONS:
        subject = f"the newest {subject}; run the command again for the others"
    if yes:
        print_text(f"{action} {subject}", err=True)
    elif action == "delete":
        confirm_deletion(subject)
    else:
        click.confirm(f"{action} {subject}?", abort=True, err=True)


def confirm_deletion(subject: str) -> None:
    """Ask on a terminal; without one nothing is deleted, because a script must say that it is meant."""
    if not has_terminal():
        raise InvalidRequest(
            f"this would permanently delete {subject}; to delete without being asked, pass --yes"
        )
    click.confirm(f"permanently delete {subject}?", abort=True, err=True)


def has_terminal() -> bool:
    """Whether a person can answer a question."""
    return sys.stdin.isatty()
