"""The command `validate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.commands.executors import read_catalogue
from orchestrator.cli.errors import EXIT_INVALID, InvalidRequest
from orchestrator.cli.options import files_argument, json_option, merge_option, read_document
from orchestrator.cli.output.escaping import print_json, print_text
from orchestrator.cli.output.formatting import format_count

if TYPE_CHECKING:
    from orchestrator.worker.executors.catalogue import Catalogue


@click.command()
@files_argument
@merge_option
@click.option("--check-executors", is_flag=True, help="Check that each executor exists and fits its step.")
@click.option(
    "--executors",
    metavar="MODULE",
    multiple=True,
    help="Check the executors of this module, too; may be repeated.",
)
@json_option
def validate(
    files: tuple[str, ...], merge: bool, check_executors: bool, executors: tuple[str, ...], as_json: bool
) -> None:
    """Check workflow files and list every problem.

    A warning is something that is accepted, but probably not meant; it does not change the exit code.

    With --check-executors or --executors, it also checks the executors that a worker would find in the
    current directory. To check data in Redis, use `check-consistency`.
    """
    catalogue = _read_usable_catalogue(executors) if check_executors or executors else None
    documents = [files] if merge else [(name,) for name in files]
    reports = [_check_files(names, catalogue) for names in documents]
    if as_json:
        print_json(reports, indent=2)
    else:
        for report in reports:
            print_text("\n".join(_format_report(report)))
    if not all(report["valid"] for report in reports):
        raise click.exceptions.Exit(EXIT_INVALID)


def _read_usable_catalogue(modules: tuple[str, ...]) -> Catalogue:
    """Read the executors; a module that cannot be imported ends the command, as its executors are unknown."""
    catalogue = read_catalogue(modules)
    if catalogue.broken_modules:
        raise InvalidRequest("\n".join(catalogue.broken_modules.values()))
    return catalogue


def _check_files(names: tuple[str, ...], catalogue: Catalogue | None) -> dict[str, Any]:
    from orchestrator.application.errors import InvalidSpec
    from orchestrator.cli.foreign_documents import scan_files

    report: dict[str, Any] = {"file": " + ".join(names), "valid": False, "problems": [], "warnings": []}
    try:
        loaded, found = scan_files([(read_document(name), name) for name in names])
        if catalogue is not None and loaded is not None:
            from orchestrator.worker.executors.spec_check import check_executors

            check_executors(loaded, found, catalogue)
    except click.UsageError as error:
        return {**report, "problems": [{"path": "", "code": "unreadable", "message": error.message}]}
    except InvalidSpec as error:
        return {**report, "problems": [problem.as_dict() for problem in error.problems]}
    warnings = [warning.as_dict() for warning in found.warnings]
    if loaded is None or found.has_problems:
        return {**report, "problems": [problem.as_dict() for problem in found.problems], "warnings": warnings}
    facts = {
        "workflow_id": loaded.workflow_id,
        "name": loaded.spec.name,
        "steps": [step.id for step in loaded.spec.steps],
    }
    return {**report, "valid": True, "warnings": warnings, **facts}


def _format_report(report: dict[str, Any]) -> list[str]:
    """Format each problem and warning as a compiler does, and one line for a valid file."""
    from orchestrator.application.errors import Problem

    name = report["file"]
    problems = [Problem(**problem) for problem in report["problems"]]
    warnings = [Problem(**problem) for problem in report["warnings"]]
    lines = [problem.located_in(problem.source or name) for problem in problems]
    lines += [f"{warning.located_in(warning.source or name)} (warning)" for warning in warnings]
    if report["valid"]:
        lines.append(f"{name}: valid, {format_count(len(report['steps']), 'step')}")
    return lines
