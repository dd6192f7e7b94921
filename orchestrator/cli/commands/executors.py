"""The command `executors`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from difflib import get_close_matches
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.errors import InvalidRequest
from orchestrator.cli.options import Target, add_current_directory, executors_option, json_option
from orchestrator.cli.output.escaping import escape_line, print_json

if TYPE_CHECKING:
    from orchestrator.worker.executors.catalogue import Catalogue, CatalogueEntry

EXIT_BROKEN = 1


@click.command()
@click.argument("name", required=False)
@executors_option
@json_option
def executors(name: str | None, executors: tuple[str, ...], as_json: bool) -> None:
    """List the executors that a worker would find here.

    With NAME it shows everything about one executor. Exit code 1: a module cannot be imported, or an
    installed executor cannot be loaded; the others are listed.
    """
    catalogue = read_catalogue(executors)
    entries = catalogue.entries if name is None else _find_entries(name, catalogue)
    if as_json:
        rows = [_as_dict(one, is_whole=name is not None) for one in entries]
        result = {"executors": rows, "problems": catalogue.problems}
        print_json(result, indent=2)
    else:
        _print_entries(entries, catalogue.problems, is_whole=name is not None)
    if catalogue.problems:
        raise click.exceptions.Exit(EXIT_BROKEN)


def read_catalogue(modules: tuple[str, ...]) -> Catalogue:
    """Read the executors of these modules, or of ORCHESTRATOR_EXECUTORS, as a worker does.

    A built-in that lacks one of its libraries can be loaded, but each of its calls would fail. It is read as
    one that cannot be loaded.
    """
    from orchestrator.worker.executors.catalogue import Catalogue

    add_current_directory()
    with redirect_stdout(sys.stderr):  # a module may print while it is imported
        found = Catalogue.load(modules or Target().settings().executors)
    return replace(found, entries=tuple(map(_without_missing_library, found.entries)))


def _without_missing_library(entry: CatalogueEntry) -> CatalogueEntry:
    """Replace the function of a built-in by the problem, if a library that its module lists in `REQUIRES` is
    not installed."""
    if entry.kind != "built-in" or entry.executor is None:
        return entry
    required = getattr(sys.modules[entry.executor.__module__], "REQUIRES", {})
    for library, command in required.items():
        if find_spec(library) is None:
            problem = f"the executor {entry.name!r} needs {library}, which is not installed here: {command}"
            return replace(entry, executor=None, problem=problem)
    return entry


def _find_entries(name: str, catalogue: Catalogue) -> list[CatalogueEntry]:
    """Find all executors with this name, first the one that is called; or else the catch-all executor."""
    from orchestrator.application.errors import ExecutorNotFound

    entries = [one for one in catalogue.entries if one.name == name]
    called = catalogue.find(name)
    if called is None:
        unknown = ExecutorNotFound(name, catalogue.names, _suggest(name, catalogue.names))
        raise InvalidRequest("\n".join([str(unknown), *catalogue.problems]))
    return entries or [called]


def _print_entries(entries: Sequence[CatalogueEntry], problems: Iterable[str], is_whole: bool) -> None:
    from orchestrator.cli.output.tables import print_table

    if is_whole:
        click.echo("\n\n".join("\n".join(_format_entry(one)) for one in entries))
    else:
        rows = [[one.name, one.origin, _format_parameters(one), _format_note(one)] for one in entries]
        print_table(["EXECUTOR", "FROM", "TAKES", "ABOUT"], rows)
    for problem in problems:
        click.echo(f"problem: {escape_line(problem)}")


def _format_parameters(entry: CatalogueEntry) -> str:
    if entry.signature is None:
        return ""
    positional = ["fn", "inputs"] if entry.kind == "catch-all" else ["inputs"]
    text = ", ".join([*positional, *sorted(entry.signature.requested_parameters)])
    return f"async {text}" if entry.signature.is_async else text


def _format_note(entry: CatalogueEntry) -> str:
    if entry.hidden_by is not None:
        return f"hidden by {entry.hidden_by}"
    if entry.signature is None:
        return str(entry.problem)
    return entry.signature.call_problem or entry.signature.summary


def _format_entry(entry: CatalogueEntry) -> Iterator[str]:
    """Format everything about one executor."""
    from orchestrator.cli.output.tables import format_table

    yield f"{entry.name}, from {entry.origin}"
    if entry.hidden_by is not None:
        yield f"hidden by {entry.hidden_by}, which is called instead"
    if entry.signature is None:
        yield str(entry.problem)
        return
    yield f"takes {_format_parameters(entry)}"
    if entry.signature.call_problem:
        yield entry.signature.call_problem
    if entry.signature.doc:
        yield ""
        yield from map(escape_line, entry.signature.doc.splitlines())
    if entry.signature.keys is not None:
        rows = [[one.name, "yes" if one.is_required else "no", one.type] for one in entry.signature.keys]
        yield "\n" + format_table(["INPUT", "REQUIRED", "TYPE"], rows)
    if entry.module_doc:
        yield ""
        yield from map(escape_line, entry.module_doc.splitlines())
    if settings := entry.settings(os.environ):
        rows = [[name, "set" if is_set else "not set"] for name, is_set in settings.items()]
        yield "\n" + format_table(["VARIABLE", "HERE"], rows)


def _as_dict(entry: CatalogueEntry, is_whole: bool) -> dict[str, Any]:
    """An executor for --json; fields without a value are left out."""
    fields: dict[str, Any] = {
        "name": entry.name,
        "kind": entry.kind,
        "from": entry.where,
        "hidden_by": entry.hidden_by,
        "problem": entry.problem,
        "settings": entry.settings(os.environ) or None,
    }
    if entry.signature is not None:
        signature = entry.signature
        fields |= {
            "takes": sorted(signature.requested_parameters),
            "async": signature.is_async,
            "about": signature.summary or None,
            "problem": signature.call_problem,
        }
        if is_whole:
            keys = signature.keys
            inputs = keys and [{"name": k.name, "required": k.is_required, "type": k.type} for k in keys]
            fields |= {"doc": signature.doc or None, "page": entry.module_doc or None, "inputs": inputs}
    return {name: value for name, value in fields.items() if value is not None}


def _suggest(name: str, known: Sequence[str]) -> str:
    similar = get_close_matches(name, known, n=1)
    return f"; did you mean {similar[0]!r}?" if similar else ""
