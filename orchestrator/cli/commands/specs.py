"""Commands about documents: validate, schema, register."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.commands.executors import read_catalogue
from orchestrator.cli.errors import EXIT_INVALID, InvalidRequest
from orchestrator.cli.options import (
    Target,
    connection_options,
    files_argument,
    json_option,
    pass_target,
    read_document,
    read_spec,
    write_text,
)
from orchestrator.cli.output.escaping import print_text

if TYPE_CHECKING:
    from orchestrator.worker.executors.catalogue import Catalogue


@click.command()
@files_argument
@click.option("--merge", is_flag=True, help="Take the files for one workflow, merged from left to right.")
@click.option("--check-executors", is_flag=True, help="Check that executors are there, and fit their steps.")
@click.option(
    "--executors", metavar="MODULE", multiple=True, help="The same, with this module; may be repeated."
)
@json_option
def validate(
    files: tuple[str, ...], merge: bool, check_executors: bool, executors: tuple[str, ...], as_json: bool
) -> None:
    """Say everything that is wrong with these workflows, and where.

    Executors are checked when it is asked for: those that a worker started here would find.
    """
    catalogue = _usable_catalogue(executors) if check_executors or executors else None
    documents = [files] if merge else [(name,) for name in files]
    reports = [_report(names, catalogue) for names in documents]
    if as_json:
        click.echo(json.dumps(reports, indent=2))
    else:
        for report in reports:
            print_text("\n".join(_lines(report)))
    if not all(report["valid"] for report in reports):
        raise click.exceptions.Exit(EXIT_INVALID)


def _usable_catalogue(modules: tuple[str, ...]) -> Catalogue:
    """Where a module is broken nothing can be said about the executors that may be in it."""
    catalogue = read_catalogue(modules)
    if catalogue.broken:
        raise InvalidRequest("\n".join(catalogue.broken.values()))
    return catalogue


def _report(names: tuple[str, ...], catalogue: Catalogue | None) -> dict[str, Any]:
    from orchestrator.application.errors import InvalidSpec
    from orchestrator.application.spec.validation import load_specs

    report: dict[str, Any] = {"file": " + ".join(names), "valid": False, "problems": [], "warnings": []}
    try:
        texts = [(read_document(name), name) for name in names]
        loaded = load_specs(texts)
        if catalogue is not None:
            from orchestrator.worker.executors.spec_check import check_executors

            check_executors(loaded, texts, catalogue)
    except click.UsageError as error:
        return {**report, "problems": [{"path": "", "code": "unreadable", "message": error.message}]}
    except InvalidSpec as error:
        return {**report, "problems": [problem.as_dict() for problem in error.problems]}
    warnings = [problem.as_dict() for problem in loaded.warnings]
    facts = {
        "workflow_id": loaded.workflow_id,
        "name": loaded.spec.name,
        "steps": [step.id for step in loaded.spec.steps],
    }
    return {**report, "valid": True, "warnings": warnings, **facts}


def _lines(report: dict[str, Any]) -> list[str]:
    """One line for each problem and warning, as compilers write them; one for a file without problems."""
    from orchestrator.application.errors import Problem

    name = report["file"]
    problems = [Problem(**problem) for problem in report["problems"]]
    warnings = [Problem(**problem) for problem in report["warnings"]]
    lines = [f"{problem.source or name}:{problem}" for problem in problems]
    lines += [f"{warning.source or name}:{warning} (warning)" for warning in warnings]
    if report["valid"]:
        count = len(report["steps"])
        lines.append(f"{name}: valid, {count} step{'' if count == 1 else 's'}")
    return lines


@click.command()
@click.option("-o", "--output", metavar="FILE", help="Write it to FILE instead of the standard output.")
def schema(output: str | None) -> None:
    """Print the JSON Schema of the language, for editors.

    A document whose first line is "# yaml-language-server: $schema=FILE" is then checked and completed while
    it is written.
    """
    from orchestrator.application.spec.json_schema import schema

    text = json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)


@click.command()
@files_argument
@click.option("--name", help="What to register it as; the document's own name unless given.")
@json_option
@connection_options
@pass_target
def register(target: Target, files: tuple[str, ...], name: str | None, as_json: bool) -> None:
    """Keep the workflow in FILE under a name, so that `start NAME` and producers find it.

    Several files are one document, merged from left to right.
    """
    loaded = read_spec(*files)
    name = name or loaded.spec.name
    if not name:
        written = " + ".join(files)
        raise click.UsageError(f"{written} has no name of its own: give it one, or say --name NAME")
    workflow_id = target.client().register(name, loaded.document)
    if as_json:
        click.echo(json.dumps({"name": name, "workflow_id": workflow_id}, ensure_ascii=False))
    else:
        print_text(f"{name} is now {workflow_id}")
