"""Commands that tell executions what to do, such as cancel, retry, pause and signal.

Each waits for the coordinator's answer: what it prints has happened.
"""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.commands.completion import complete_execution_ids, execution_argument
from orchestrator.cli.errors import EXIT_INVALID
from orchestrator.cli.filters import filter_options
from orchestrator.cli.options import (
    Target,
    connection_options,
    corrections_option,
    json_option,
    pass_target,
    read_document,
)
from orchestrator.cli.output.escaping import print_text

if TYPE_CHECKING:
    from orchestrator.client import BulkResult, Client, ControlResult, ExecutionFilter

EXIT_NO_REPLY = 1


def _me() -> str | None:
    """Whose word it is, unless it is said."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return None


ids_argument = click.argument(
    "ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_execution_ids
)
some_ids_argument = click.argument("ids", metavar="[ID...]", nargs=-1, shell_complete=complete_execution_ids)
by_option = click.option("--by", metavar="NAME", default=_me, help="Who wants it; you, unless given.")
reason_option = click.option("--reason", metavar="TEXT", help="Why: it is kept in the history.")


def control_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every command has that tells executions something: who wants it, JSON, and which Redis."""
    return by_option(json_option(connection_options(pass_target(command))))


@click.command()
@some_ids_argument
@filter_options
@reason_option
@by_option
@click.option("--yes", is_flag=True, help="Do not ask before cancelling all that a filter finds.")
@json_option
@connection_options
@pass_target
def cancel(
    target: Target,
    ids: tuple[str, ...],
    execution_filter: ExecutionFilter | None,
    reason: str | None,
    by: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Cancel executions: those named, or all that a filter finds.

    What runs is stopped, what has completed is undone if it has a compensation.
    """
    client = target.client()
    if ids_or_filter(ids, execution_filter):
        send_to_each(ids, lambda one: client.cancel(one, reason, by), as_json)
    else:
        _in_bulk("cancel", client, execution_filter, client.cancel_all, (reason, by), yes, as_json)


@click.command()
@some_ids_argument
@filter_options
@corrections_option
@reason_option
@by_option
@click.option("--yes", is_flag=True, help="Do not ask before retrying all that a filter finds.")
@json_option
@connection_options
@pass_target
def retry(
    target: Target,
    ids: tuple[str, ...],
    execution_filter: ExecutionFilter | None,
    inputs: dict[str, Any],
    reason: str | None,
    by: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Run again what did not complete of executions that failed or were cancelled.

    Those named, or all that a filter finds. What has completed keeps its output.
    """
    client = target.client()
    if ids_or_filter(ids, execution_filter):
        send_to_each(ids, lambda one: client.retry(one, reason, by, inputs or None), as_json)
    elif inputs:
        raise click.UsageError("--inputs is for executions that are named")
    else:
        _in_bulk("retry", client, execution_filter, client.retry_all, (reason, by), yes, as_json)


@click.command()
@execution_argument
@click.option("--from", "step", metavar="STEP", required=True, help="The step to begin with.")
@corrections_option
@reason_option
@control_options
def rerun(
    target: Target,
    execution_id: str,
    step: str,
    inputs: dict[str, Any],
    reason: str | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Run a step of an execution that has ended again, with all that depends on it."""
    client = target.client()
    send_to_each([execution_id], lambda one: client.rerun(one, step, reason, by, inputs or None), as_json)


@click.command()
@ids_argument
@control_options
def pause(target: Target, ids: tuple[str, ...], by: str | None, as_json: bool) -> None:
    """Dispatch no more steps of executions; what runs goes on, and its results count."""
    client = target.client()
    send_to_each(ids, lambda one: client.pause(one, by), as_json)


@click.command()
@ids_argument
@control_options
def unpause(target: Target, ids: tuple[str, ...], by: str | None, as_json: bool) -> None:
    """Let executions go on that were paused."""
    client = target.client()
    send_to_each(ids, lambda one: client.unpause(one, by), as_json)


@click.command()
@execution_argument
@click.argument("step", metavar="STEP")
@control_options
def hold(target: Target, execution_id: str, step: str, by: str | None, as_json: bool) -> None:
    """Keep a step where it is until it is released; one that is in progress cannot be held."""
    client = target.client()

    def words(answered: ControlResult) -> str:
        return f"step {step!r} is {'' if answered.changed else 'already '}on hold"

    send_to_each([execution_id], lambda one: client.hold(one, step, by), as_json, words)


@click.command()
@execution_argument
@click.argument("step", metavar="STEP")
@control_options
def release(target: Target, execution_id: str, step: str, by: str | None, as_json: bool) -> None:
    """Let a step go on that is on hold."""
    client = target.client()
    said = f"step {step!r} is released"
    send_to_each([execution_id], lambda one: client.release(one, step, by), as_json, lambda _: said)


@click.command()
@ids_argument
@json_option
@connection_options
@pass_target
def delete(target: Target, ids: tuple[str, ...], as_json: bool) -> None:
    """Keep nothing of executions that have ended: neither record nor history."""
    client = target.client()
    send_to_each(ids, client.delete, as_json)


@click.command()
@execution_argument
@click.argument("name", metavar="NAME")
@click.option("--payload", metavar="JSON|@FILE", default="null", help="What to say: any JSON value.")
@json_option
@connection_options
@pass_target
def signal(target: Target, execution_id: str, name: str, payload: str, as_json: bool) -> None:
    """Say something to an execution: the step that waits for it goes on."""
    from orchestrator.redis_rq.event_codec import loads

    text = read_document(payload[1:]) if payload.startswith("@") else payload
    try:
        said = loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="--payload") from None
    was_awaited = target.client().signal(execution_id, name, said)
    if as_json:
        click.echo(json.dumps({"execution_id": execution_id, "signal": name, "kept": not was_awaited}))
    elif was_awaited:
        print_text(f"{execution_id}: a step has taken the signal {name!r}")
    else:
        print_text(f"{execution_id}: no step waits for the signal {name!r} yet; it is kept")


def ids_or_filter(ids: tuple[str, ...], execution_filter: ExecutionFilter | None) -> bool:
    """Whether executions were named; they are named or filtered, never both."""
    if bool(ids) == (execution_filter is not None):
        raise click.UsageError(
            "name executions, or say which by --status, --name, --group, --label, --since, --until"
        )
    return bool(ids)


def send_to_each(
    ids: tuple[str, ...] | list[str],
    tell: Callable[[str], ControlResult],
    as_json: bool,
    words: Callable[[ControlResult], str] | None = None,
) -> None:
    """Tell one after the other; one that refuses does not keep the others from hearing. Where nobody answers
    the others are not told either, and what was done before is said."""
    from orchestrator.application.errors import RecordNotFound
    from orchestrator.client import ControlRejected, NoReply

    rows: list[dict[str, Any]] = []
    exit_code = 0
    for one in ids:
        try:
            answered = tell(one)
        except (ControlRejected, RecordNotFound, NoReply) as error:
            exit_code = EXIT_NO_REPLY if isinstance(error, NoReply) else EXIT_INVALID
            rows.append({"execution_id": one, "ok": False, "reason": str(error)})
            if not as_json:
                print_text(f"{one}: {error}", err=True)
            if exit_code == EXIT_NO_REPLY:
                break
            continue
        rows.append({"execution_id": one, "ok": True, "status": answered.status, "changed": answered.changed})
        if not as_json:
            print_text(f"{one}: {(words or _words)(answered)}")
    if as_json:
        click.echo(json.dumps(rows if len(ids) > 1 else rows[0], ensure_ascii=False))
    raise click.exceptions.Exit(exit_code)


def _words(answered: ControlResult) -> str:
    return ("" if answered.changed else "already ") + answered.status.replace("_", " ")


def _in_bulk(
    what: str,
    client: Client,
    execution_filter: ExecutionFilter | None,
    tell_all: Callable[..., BulkResult],
    said: tuple[str | None, str | None],
    yes: bool,
    as_json: bool,
) -> None:
    from orchestrator.client import BulkResult

    assert execution_filter is not None
    count = None if yes else sum(1 for _ in client.list_all(execution_filter))
    if count:
        click.confirm(f"{what} {count} execution{'s' * (count > 1)}?", abort=True, err=True)
    bulk = BulkResult() if count == 0 else tell_all(execution_filter, *said)
    if as_json:
        click.echo(json.dumps({"done": bulk.done, "refused": bulk.rejected}, ensure_ascii=False))
        return
    for one, reason in bulk.rejected.items():
        print_text(f"{one}: {reason}", err=True)
    click.echo(f"{len(bulk.done)} followed, {len(bulk.rejected)} refused")
