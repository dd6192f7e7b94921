"""The command `verify`: whether executions are what their histories and records say, and its repairs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.commands.completion import complete_execution_ids
from orchestrator.cli.options import Target, check_url, connection_options, json_option, pass_target
from orchestrator.cli.output.escaping import print_text

if TYPE_CHECKING:
    from orchestrator.redis_rq.connection import Client
    from orchestrator.redis_rq.verify.verifier import ReportedFinding, VerifyReport
    from orchestrator.settings import Settings

EXIT_FINDINGS_LEFT = 1


@click.command()
@click.argument("execution_id", metavar="[ID]", required=False, shell_complete=complete_execution_ids)
@click.option(
    "--repair", is_flag=True, help="Put right what lies beside the records; these stay as they are."
)
@json_option
@connection_options
@pass_target
def verify(target: Target, execution_id: str | None, repair: bool, as_json: bool) -> None:
    """Check one execution, or all: history, record, indexes, timers, leases and places.

    Safe while coordinators work. Exit code 0: nothing is wrong, or all of it was repaired; 1: something is
    left; 2: there is no such execution.
    """
    from orchestrator.redis_rq.verify.verifier import Verifier

    settings = target.settings()
    with open_redis(settings) as client:
        inspector = Verifier(client, settings.keys, settings.retention_s, repairs=repair)
        report = inspector.verify_all() if execution_id is None else inspector.verify(execution_id)
    if as_json:
        click.echo(json.dumps(_as_data(report)))
    else:
        for found in report.found:
            print_text(_line(found))
        print_text(_summary(report))
    raise click.exceptions.Exit(EXIT_FINDINGS_LEFT if report.left else 0)


@contextmanager
def open_redis(settings: Settings) -> Iterator[Client]:
    """A client of the Redis that the settings name."""
    from orchestrator.redis_rq.connection import connect

    check_url(settings.redis_url)
    with connect(settings.redis_url) as client:
        yield client


def _line(found: ReportedFinding) -> str:
    finding = found.finding
    execution = found.execution.partition("#")[2] or found.execution
    place = " ".join(word for word in (execution, finding.where) if word)
    return f"{place}: {finding.code}: {finding.words}{' (repaired)' if found.is_repaired else ''}"


def _summary(report: VerifyReport) -> str:
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(report.statuses.items()))
    said = [f"{_counted(report.executions, 'execution')} checked{f' ({statuses})' if statuses else ''}"]
    said.append(_counted(len(report.found), "finding") if report.found else "nothing is wrong")
    if len(report.left) != len(report.found):
        said.append(f"{len(report.found) - len(report.left)} repaired")
    if report.busy:
        said.append(f"{len(report.busy)} changed too fast to be checked")
    if not report.has_compared_counts:
        said.append("too many are open to be counted")
    return "; ".join(said)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _as_data(report: VerifyReport) -> dict[str, Any]:
    return {
        "executions": report.executions,
        "statuses": dict(sorted(report.statuses.items())),
        "findings": [
            {"execution": one.execution, **asdict(one.finding), "repaired": one.is_repaired}
            for one in report.found
        ],
        "busy": report.busy,
        "counted": report.has_compared_counts,
    }
