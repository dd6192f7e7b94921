"""Commands about documents: validate, schema, register."""

from __future__ import annotations

import json
from typing import Any

import click

from orchestrator.cli.failures import INVALID
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


@click.command()
@files_argument
@click.option("--merge", is_flag=True, help="Take the files for one workflow, merged from left to right.")
@json_option
def validate(files: tuple[str, ...], merge: bool, as_json: bool) -> None:
    """Say everything that is wrong with these workflows, and where."""
    reports = [_report(files)] if merge else [_report((name,)) for name in files]
    if as_json:
        click.echo(json.dumps(reports, indent=2))
    else:
        for report in reports:
            click.echo("\n".join(_lines(report)))
    if not all(report["valid"] for report in reports):
        raise click.exceptions.Exit(INVALID)


def _report(names: tuple[str, ...]) -> dict[str, Any]:
    from orchestrator.application.errors import InvalidSpec
    from orchestrator.application.validation import load_specs

    report: dict[str, Any] = {"file": " + ".join(names), "valid": False, "problems": [], "warnings": []}
    try:
        loaded = load_specs([(read_document(name), name) for name in names])
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
    from orchestrator.application.schema import schema

    text = json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)


@click.command()
@files_argument
@click.option("--name", help="What to register it as; the document's own name unless given.")
@connection_options
@pass_target
def register(target: Target, files: tuple[str, ...], name: str | None) -> None:
    """Keep the workflow in FILE under a name, so that `start NAME` and producers find it.

    Several files are one document, merged from left to right.
    """
    loaded = read_spec(*files)
    name = name or loaded.spec.name
    if not name:
        written = " + ".join(files)
        raise click.UsageError(f"{written} has no name of its own: give it one, or say --name NAME")
    workflow_id = target.client().register(name, loaded.document)
    click.echo(f"{name} is now {workflow_id}")
