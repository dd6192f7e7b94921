"""The command `dead`: events that were refused, to be read, sent again or thrown away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.commands.verify import open_redis
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.escaping import print_text
from orchestrator.cli.output.tables import escape_line

if TYPE_CHECKING:
    from orchestrator.redis_rq.dead_letters import DeadLetter, DeadLetters

EXIT_REJECTED = 2
MAX_REASON_CHARS = 100
"""Characters of a reason in a list."""

reason_option = click.option("--reason", metavar="TEXT", default="", help="Only those whose reason has it.")
entries_argument = click.argument("entries", metavar="[ENTRY...]", nargs=-1)
all_option = click.option(
    "--all", "takes_all", is_flag=True, help="All of them, or those that --reason means."
)


@click.group()
def dead() -> None:
    """Events that were refused: list them, send them again, or drop them."""


@dead.command("list")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many at most.")
@reason_option
@json_option
@connection_options
@pass_target
def list_letters(target: Target, limit: int, reason: str, as_json: bool) -> None:
    """The newest first: entry, kind, execution and reason."""
    with _letters(target) as letters:
        found = list(islice(letters.newest(reason), limit))
        if as_json:
            click.echo(json.dumps([_as_data(letters, letter) for letter in found]))
            return
        for letter in found:
            print_text(
                escape_line("  ".join((letter.entry, _what(letter), _short(_redact_letter(letter)[0]))))
            )
        if not found:
            click.echo("there are no dead letters" + (" with such a reason" if reason else ""), err=True)


@dead.command()
@click.argument("entry")
@json_option
@connection_options
@pass_target
def show(target: Target, entry: str, as_json: bool) -> None:
    """One letter with all that is left of its event."""
    with _letters(target) as letters:
        letter = letters.get(entry)
        if as_json:
            click.echo(json.dumps(_as_data(letters, letter)))
            return
        problem = letters.problem(letter)
        reason, fields = _redact_letter(letter)
        print_text(f"entry   {letter.entry}\nreason  {reason}\nevent   {letter.source} of {letter.stream}")
        for name, value in fields.items():
            print_text(f"  {name}: {value}")
        print_text(
            f"cannot be sent again: {problem}" if problem else f"orchestrator dead replay {letter.entry}"
        )


@dead.command()
@entries_argument
@all_option
@reason_option
@json_option
@connection_options
@pass_target
def replay(target: Target, entries: tuple[str, ...], takes_all: bool, reason: str, as_json: bool) -> None:
    """Send events again, as new entries of their streams, and take their letters away.

    A producer that waits for the answer to a start waits for the old entry: the new one is printed. Exit
    code 2: one of them cannot be sent again.
    """
    said: list[dict[str, Any]] = []
    with _letters(target) as letters:
        for letter in _meant(letters, entries, takes_all, reason):
            problem = letters.problem(letter)
            sent = None if problem else letters.replay(letter)
            problem = problem if problem or sent else "somebody else has taken it"
            said.append({"entry": letter.entry, "stream": letter.stream, "sent": sent, "problem": problem})
            if not as_json and sent:
                print_text(f"{letter.entry} was sent again as {sent} of {letter.stream}")
            elif not as_json:
                print_text(f"{letter.entry} cannot be sent again: {problem}", err=True)
    if as_json:
        click.echo(json.dumps(said))
    raise click.exceptions.Exit(EXIT_REJECTED if any(one["problem"] for one in said) else 0)


@dead.command()
@entries_argument
@all_option
@reason_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@connection_options
@pass_target
def drop(
    target: Target, entries: tuple[str, ...], takes_all: bool, reason: str, yes: bool, as_json: bool
) -> None:
    """Throw letters away. It asks before it does."""
    with _letters(target) as letters:
        meant = list(_meant(letters, entries, takes_all, reason))
        if meant and not yes:
            click.confirm(f"Throw {len(meant)} dead letters away for good?", abort=True, err=True)
        dropped = [letter.entry for letter in meant if letters.drop(letter)]
    click.echo(json.dumps(dropped) if as_json else f"{len(dropped)} dead letters were thrown away")


@contextmanager
def _letters(target: Target) -> Iterator[DeadLetters]:
    from orchestrator.redis_rq.dead_letters import DeadLetters

    settings = target.settings()
    with open_redis(settings) as client:
        yield DeadLetters(client, settings.keys)


def _meant(
    letters: DeadLetters, entries: tuple[str, ...], takes_all: bool, reason: str
) -> Iterator[DeadLetter]:
    if bool(entries) == takes_all:
        raise click.UsageError("name the entries of letters, or say --all: one of the two")
    if entries and reason:
        raise click.UsageError("--reason chooses among --all; an entry needs no reason")
    return iter([letters.get(entry) for entry in entries]) if entries else letters.newest(reason)


def _what(letter: DeadLetter) -> str:
    fields = letter.fields
    kind = fields.get("type", "start" if letter.stream.endswith(":starts") else "?")
    return " ".join(
        word for word in (kind, fields.get("execution") or fields.get("execution_id", "")) if word
    )


def _short(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= MAX_REASON_CHARS else f"{line[: MAX_REASON_CHARS - 1]}…"


def _redact_letter(letter: DeadLetter) -> tuple[str, dict[str, str]]:
    """The reason and the fields of an event as people may see them; a replay sends them as they are."""
    from orchestrator.application.records.record_view import RecordView
    from orchestrator.application.redaction.by_key import redact_text

    values = {name: _read(text) for name, text in letter.fields.items()}
    shown = RecordView((), [value for name, value in values.items() if name not in _OURS])
    fields = dict(letter.fields)
    for name in values.keys() - _OURS:
        value = values[name]
        if isinstance(value, str):
            fields[name] = shown.text(redact_text(fields[name]))
        elif (seen := shown(value)) != value:
            fields[name] = json.dumps(seen, ensure_ascii=False)
    return shown.text(redact_text(letter.reason)), fields


_OURS = frozenset({"token"})
"""It names a dispatch, and is no secret."""


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _as_data(letters: DeadLetters, letter: DeadLetter) -> dict[str, Any]:
    reason, fields = _redact_letter(letter)
    return {
        "entry": letter.entry,
        "reason": reason,
        "stream": letter.stream,
        "source": letter.source,
        "event": fields,
        "problem": letters.problem(letter),
    }
