"""The command `convert`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import json_option, read_document
from orchestrator.cli.output.escaping import format_json, print_text

if TYPE_CHECKING:
    from orchestrator.convert import ConversionResult

EXIT_INCOMPLETE = 6


@click.command()
@click.argument("file")
@click.option(
    "--from",
    "dialect",
    type=click.Choice(["flowtoy", "flow8", "runfox"]),
    help="The format of FILE; by default it is detected.",
)
@click.option("-o", "--output", metavar="OUT", help="Write to OUT instead of the standard output.")
@click.option("--force", is_flag=True, help="Overwrite OUT if it exists.")
@json_option
def convert(file: str, dialect: str | None, output: str | None, force: bool, as_json: bool) -> None:
    """Convert a flowtoy, flow8 or runfox file.

    Notes on the standard error list what could not be converted, and what has a different meaning now. FILE
    may be - for the standard input. --json prints {document, notes} instead.

    Exit codes: 0 converted, 6 converted in part, 2 the file cannot be read or its format is unknown,
    1 a library is missing.
    """
    from orchestrator.application.errors import InvalidSpec
    from orchestrator.convert import UnknownDialect
    from orchestrator.convert import convert as convert_text

    if output is not None and not force and Path(output).exists():
        raise click.UsageError(f"{output} exists already: use --force to overwrite it")
    try:
        result = convert_text(read_document(file), dialect)
    except UnknownDialect as error:
        raise click.UsageError(f"{file}: {error} with --from") from error
    except InvalidSpec as error:
        raise InvalidSpec(error.problems, file) from error
    _write(_format_json(result) if as_json else result.text, output, force)
    if not as_json:
        for note in result.notes:
            print_text(note.located_in(file), err=True)
    if not result.is_complete:
        raise click.exceptions.Exit(EXIT_INCOMPLETE)


def _format_json(result: ConversionResult) -> str:
    notes = [note.as_dict() for note in result.notes]
    return format_json({"document": result.document, "notes": notes}, indent=2) + "\n"


def _write(text: str, output: str | None, force: bool) -> None:
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        with Path(output).open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.UsageError(f"cannot write {output!r}: {error.strerror or error}") from error
