"""The command `validate`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from orchestrator.application.explain.formatting import format_count
from orchestrator.cli.commands.executors import read_catalogue
from orchestrator.cli.errors import EXIT_INVALID, InvalidRequest
from orchestrator.cli.options import Target, files_argument, json_option, merge_option, read_workflow_text
from orchestrator.cli.output.escaping import print_json, print_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.application.errors import Problem
    from orchestrator.application.spec.model import LoadedSpec
    from orchestrator.application.spec.report import Report
    from orchestrator.worker.executors.catalogue import Catalogue

CODES_HINT = "The page docs/errors.md explains each code in brackets."


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
    catalogue = _read_usable_catalogue(executors, files) if check_executors or executors else None
    documents = [files] if merge else [(name,) for name in files]
    reports = [_check_files(names, catalogue) for names in documents]
    if as_json:
        print_json(reports, indent=2)
    else:
        for report in reports:
            print_text("\n".join(_format_report(report)))
        if sys.stderr.isatty() and any(report["problems"] or report["warnings"] for report in reports):
            click.echo(CODES_HINT, err=True)
    if not all(report["valid"] for report in reports):
        raise click.exceptions.Exit(EXIT_INVALID)


def _read_usable_catalogue(modules: tuple[str, ...], files: tuple[str, ...]) -> Catalogue:
    """Read the executors; a module that cannot be imported ends the command, as its executors are unknown.

    The steps of a Python file are executors too.
    """
    from orchestrator.cli.python_files import find_executor_modules

    own = find_executor_modules(files).names
    catalogue = read_catalogue((*(modules or Target().settings().executors), *own) if own else modules)
    if catalogue.broken_modules:
        raise InvalidRequest("\n".join(catalogue.broken_modules.values()))
    return catalogue


def _scan_files(names: tuple[str, ...]) -> tuple[LoadedSpec | None, Report, Sequence[Problem]]:
    """Read a workflow with its problems and its warnings."""
    from orchestrator.application.spec.report import Report
    from orchestrator.cli.foreign_documents import scan_files
    from orchestrator.cli.python_files import is_python_name, load_python_spec

    if len(names) == 1 and is_python_name(names[0]):
        loaded = load_python_spec(names[0])
        return loaded, Report(loaded.document), loaded.warnings
    scanned, report = scan_files([(read_workflow_text(name), name) for name in names])
    return scanned, report, report.warnings


def _check_files(names: tuple[str, ...], catalogue: Catalogue | None) -> dict[str, Any]:
    from orchestrator.application.errors import InvalidSpec

    report: dict[str, Any] = {"file": " + ".join(names), "valid": False, "problems": [], "warnings": []}
    try:
        loaded, found, warned = _scan_files(names)
        if catalogue is not None and loaded is not None:
            from orchestrator.worker.executors.spec_check import check_executors

            check_executors(loaded, found, catalogue)
    except click.UsageError as error:
        return {**report, "problems": [{"path": "", "code": "unreadable", "message": error.message}]}
    except InvalidSpec as error:
        return {**report, "problems": [problem.as_dict() for problem in error.problems]}
    warnings = [warning.as_dict() for warning in warned]
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
