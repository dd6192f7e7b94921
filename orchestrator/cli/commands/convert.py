"""The command about foreign documents: convert."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import json_option, read_document
from orchestrator.cli.output.escaping import print_text

if TYPE_CHECKING:
    from orchestrator.convert import ConversionResult

EXIT_INCOMPLETE = 6


@click.command()
@click.argument("file")
@click.option(
    "--from",
    "dialect",
    type=click.Choice(["flowtoy", "flow8", "runfox"]),
    help="What FILE is written in; found out unless given.",
)
@click.option("-o", "--output", metavar="OUT", help="Where to write; the standard output unless given.")
@click.option("--force", is_flag=True, help="Write OUT although it exists.")
@json_option
def convert(file: str, dialect: str | None, output: str | None, force: bool, as_json: bool) -> None:
    """Turn a document of flowtoy, flow8 or runfox into one of ours.

    What could not be converted, and what means something else now, is told on the standard error, a line
    each. FILE may be - for the standard input. --json prints {document, notes} instead.

    Exit codes: 0 converted, 6 converted but for what the notes say, 2 cannot be read or told apart.
    """
    from orchestrator.application.errors import InvalidSpec
    from orchestrator.convert import UnknownDialect
    from orchestrator.convert import convert as convert_text

    if output is not None and not force and Path(output).exists():
        raise click.UsageError(f"{output} exists already: say --force to write over it")
    try:
        converted = convert_text(read_document(file), dialect)
    except UnknownDialect as error:
        raise click.UsageError(f"{file}: {error} with --from") from error
    except InvalidSpec as error:
        raise InvalidSpec(error.problems, file) from error
    _write(_printed(converted) if as_json else converted.text, output, force)
    if not as_json:
        for note in converted.notes:
            print_text(f"{file}: {note}{' (warning)' if note.kind == 'changed' else ''}", err=True)
    if not converted.is_complete:
        raise click.exceptions.Exit(EXIT_INCOMPLETE)


def _printed(converted: ConversionResult) -> str:
    notes = [note.as_dict() for note in converted.notes]
    return json.dumps({"document": converted.document, "notes": notes}, indent=2) + "\n"


def _write(text: str, output: str | None, force: bool) -> None:
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        with Path(output).open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.UsageError(f"cannot write {output!r}: {error.strerror or error}") from error
