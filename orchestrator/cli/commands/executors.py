"""The command `executors`: what a worker that is started here would find."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.errors import InvalidRequest
from orchestrator.cli.options import Target, add_current_directory, executors_option, json_option

if TYPE_CHECKING:
    from orchestrator.worker.executors.catalogue import Catalogue, CatalogueEntry

EXIT_BROKEN = 1


@click.command()
@click.argument("name", required=False)
@executors_option
@json_option
def executors(name: str | None, executors: tuple[str, ...], as_json: bool) -> None:
    """List the executors that a worker started here would find; with NAME, tell all about one.

    Exit code 1: a module cannot be imported, or an installed executor not be loaded; the others are listed.
    """
    catalogue = read_catalogue(executors)
    entries = catalogue.entries if name is None else _called(name, catalogue)
    if as_json:
        rows = [_as_json(one, is_whole=name is not None) for one in entries]
        answer = {"executors": rows, "problems": catalogue.problems}
        click.echo(json.dumps(answer, indent=2, ensure_ascii=False))
    else:
        _echo(entries, catalogue.problems, is_whole=name is not None)
    if catalogue.problems:
        raise click.exceptions.Exit(EXIT_BROKEN)


def read_catalogue(modules: tuple[str, ...]) -> Catalogue:
    """Of these modules, or else of those that the environment names, as a worker reads them."""
    from orchestrator.worker.executors.catalogue import Catalogue

    add_current_directory()
    with redirect_stdout(sys.stderr):  # what a module prints when it is imported is no part of our answer
        return Catalogue.load(modules or Target().settings().executors)


def _called(name: str, catalogue: Catalogue) -> list[CatalogueEntry]:
    """All of this name, the one that is called first; or else the one that takes every name."""
    from orchestrator.application.errors import ExecutorNotFound

    found = [one for one in catalogue.entries if one.name == name]
    taken = catalogue.find(name)
    if taken is None:
        unknown = ExecutorNotFound(name, catalogue.names, _hint(name, catalogue.names))
        raise InvalidRequest("\n".join([str(unknown), *catalogue.problems]))
    return found or [taken]


def _echo(entries: Sequence[CatalogueEntry], problems: Iterable[str], is_whole: bool) -> None:
    from orchestrator.cli.output.tables import echo_table, escape_line

    if is_whole:
        click.echo("\n\n".join("\n".join(_lines(one)) for one in entries))
    else:
        rows = [[one.name, one.origin, _takes(one), _about(one)] for one in entries]
        echo_table(["EXECUTOR", "FROM", "TAKES", "ABOUT"], rows)
    for problem in problems:
        click.echo(f"problem: {escape_line(problem)}")


def _takes(entry: CatalogueEntry) -> str:
    if entry.signature is None:
        return ""
    given = ["fn", "inputs"] if entry.kind == "catch-all" else ["inputs"]
    words = ", ".join([*given, *sorted(entry.signature.named)])
    return f"async {words}" if entry.signature.is_async else words


def _about(entry: CatalogueEntry) -> str:
    if entry.hidden_by is not None:
        return f"hidden by {entry.hidden_by}"
    if entry.signature is None:
        return str(entry.problem)
    return entry.signature.call_problem or entry.signature.summary


def _lines(entry: CatalogueEntry) -> Iterator[str]:
    """All about one executor, for people."""
    from orchestrator.cli.output.tables import escape_line, table

    yield f"{entry.name}, from {entry.origin}"
    if entry.hidden_by is not None:
        yield f"hidden by {entry.hidden_by}: that one is called instead"
    if entry.signature is None:
        yield str(entry.problem)
        return
    yield f"takes {_takes(entry)}"
    if entry.signature.call_problem:
        yield entry.signature.call_problem
    if entry.signature.doc:
        yield ""
        yield from map(escape_line, entry.signature.doc.splitlines())
    if entry.signature.keys is not None:
        rows = [[one.name, "yes" if one.is_required else "no", one.type] for one in entry.signature.keys]
        yield "\n" + table(["INPUT", "REQUIRED", "TYPE"], rows)
    if entry.module_doc:
        yield ""
        yield from map(escape_line, entry.module_doc.splitlines())
    if settings := entry.settings(os.environ):
        rows = [[name, "set" if is_set else "not set"] for name, is_set in settings.items()]
        yield "\n" + table(["VARIABLE", "HERE"], rows)


def _as_json(entry: CatalogueEntry, is_whole: bool) -> dict[str, Any]:
    """An executor as JSON; what it does not have is left out."""
    shown: dict[str, Any] = {
        "name": entry.name,
        "kind": entry.kind,
        "from": entry.where,
        "hidden_by": entry.hidden_by,
        "problem": entry.problem,
        "settings": entry.settings(os.environ) or None,
    }
    if entry.signature is not None:
        signature = entry.signature
        shown |= {
            "takes": sorted(signature.named),
            "async": signature.is_async,
            "about": signature.summary or None,
            "problem": signature.call_problem,
        }
        if is_whole:
            keys = signature.keys
            inputs = keys and [{"name": k.name, "required": k.is_required, "type": k.type} for k in keys]
            shown |= {"doc": signature.doc or None, "page": entry.module_doc or None, "inputs": inputs}
    return {name: value for name, value in shown.items() if value is not None}


def _hint(name: str, known: Sequence[str]) -> str:
    likely = get_close_matches(name, known, n=1)
    return f"; did you mean {likely[0]!r}?" if likely else ""
