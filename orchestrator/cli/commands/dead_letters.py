"""The command `dead-letters`: list, show, replay and drop events that were rejected."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from orchestrator.application.explain.formatting import format_count
from orchestrator.cli.command_group import CommandGroup
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.escaping import escape_line, print_json, print_text

if TYPE_CHECKING:
    from orchestrator.redis_rq.dead_letters import DeadLetter, DeadLetters

EXIT_REJECTED = 2
MAX_REASON_CHARS = 100
"""The limit for a reason in a list."""

reason_option = click.option(
    "--reason", metavar="TEXT", default="", help="Only letters whose reason contains TEXT."
)
entries_argument = click.argument("entries", metavar="[ENTRY...]", nargs=-1)
all_option = click.option(
    "--all", "takes_all", is_flag=True, help="All letters, or all that --reason selects."
)


@click.group("dead-letters", cls=CommandGroup)
def dead_letters() -> None:
    """List, replay and drop rejected events."""


@dead_letters.command("list")
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Maximum number of letters."
)
@reason_option
@json_option
@connection_options
@pass_target
def list_letters(target: Target, limit: int, reason: str, as_json: bool) -> None:
    """List dead letters, newest first.

    Each line has the entry id, the type of the event, the execution and the reason.
    """
    with _open_letters(target) as letters:
        found = list(islice(letters.newest(reason), limit))
        if as_json:
            print_json([_as_dict(letters, letter) for letter in found])
            return
        for letter in found:
            text, _ = _redact_letter(letter)
            print_text(escape_line("  ".join((letter.entry, _describe_event(letter), _shorten(text)))))
        if not found:
            click.echo("no dead letters" + (" with this reason" if reason else ""), err=True)


@dead_letters.command()
@click.argument("entry")
@json_option
@connection_options
@pass_target
def show(target: Target, entry: str, as_json: bool) -> None:
    """Show a dead letter with its event."""
    with _open_letters(target) as letters:
        letter = letters.get(entry)
        if as_json:
            print_json(_as_dict(letters, letter))
            return
        problem = letters.problem(letter)
        reason, fields = _redact_letter(letter)
        print_text(f"entry   {letter.entry}\nreason  {reason}\nevent   {letter.source} of {letter.stream}")
        for name, value in fields.items():
            print_text(f"  {name}: {value}")
        command = f"orchestrator dead-letters replay {letter.entry}"
        print_text(f"cannot be replayed: {problem}" if problem else command)


@dead_letters.command()
@entries_argument
@all_option
@reason_option
@json_option
@connection_options
@pass_target
def replay(target: Target, entries: tuple[str, ...], takes_all: bool, reason: str, as_json: bool) -> None:
    """Send rejected events again and remove their letters.

    An event gets a new entry in its stream, which is printed. A producer that waits for the reply to a start
    waits for the old entry. Exit code 2: an event could not be replayed.
    """
    rows: list[dict[str, Any]] = []
    with _open_letters(target) as letters:
        for letter in _select_letters(letters, entries, takes_all, reason):
            problem = letters.problem(letter)
            sent = None if problem else letters.replay(letter)
            problem = problem if problem or sent else "it was replayed or dropped meanwhile"
            rows.append({"entry": letter.entry, "stream": letter.stream, "sent": sent, "problem": problem})
            if not as_json and sent:
                print_text(f"{letter.entry} replayed as {sent} in {letter.stream}")
            elif not as_json:
                print_text(f"{letter.entry} cannot be replayed: {problem}", err=True)
    if as_json:
        print_json(rows)
    raise click.exceptions.Exit(EXIT_REJECTED if any(row["problem"] for row in rows) else 0)


@dead_letters.command()
@entries_argument
@all_option
@reason_option
@click.option("--yes", is_flag=True, help="Do not ask for a confirmation.")
@json_option
@connection_options
@pass_target
def drop(
    target: Target, entries: tuple[str, ...], takes_all: bool, reason: str, yes: bool, as_json: bool
) -> None:
    """Permanently delete dead letters."""
    with _open_letters(target) as letters:
        selected = list(_select_letters(letters, entries, takes_all, reason))
        if selected and not yes:
            question = f"Permanently delete {format_count(len(selected), 'dead letter')}?"
            click.confirm(question, abort=True, err=True)
        dropped = [letter.entry for letter in selected if letters.drop(letter)]
    if as_json:
        print_json(dropped)
    else:
        click.echo(f"{format_count(len(dropped), 'dead letter')} dropped")


@contextmanager
def _open_letters(target: Target) -> Iterator[DeadLetters]:
    from orchestrator.redis_rq.dead_letters import DeadLetters
    from orchestrator.wiring import make_keys

    settings, client = target.connect()
    with client:
        yield DeadLetters(client, make_keys(settings))


def _select_letters(
    letters: DeadLetters, entries: tuple[str, ...], takes_all: bool, reason: str
) -> Iterator[DeadLetter]:
    if bool(entries) == takes_all:
        raise click.UsageError("give entry ids, or --all, but not both")
    if entries and reason:
        raise click.UsageError("--reason can only be used with --all")
    return iter([letters.get(entry) for entry in entries]) if entries else letters.newest(reason)


def _describe_event(letter: DeadLetter) -> str:
    fields = letter.fields
    kind = fields.get("type", "start" if letter.stream.endswith(":starts") else "?")
    execution = fields.get("execution") or fields.get("execution_id", "")
    return " ".join(part for part in (kind, execution) if part)


def _shorten(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= MAX_REASON_CHARS else f"{line[: MAX_REASON_CHARS - 1]}…"


def _redact_letter(letter: DeadLetter) -> tuple[str, dict[str, str]]:
    from orchestrator.application.explain.letter_redaction import redact_letter

    return redact_letter(letter.reason, letter.fields)


def _as_dict(letters: DeadLetters, letter: DeadLetter) -> dict[str, Any]:
    reason, fields = _redact_letter(letter)
    return {
        "entry": letter.entry,
        "reason": reason,
        "stream": letter.stream,
        "source": letter.source,
        "event": fields,
        "problem": letters.problem(letter),
    }
