"""The command `check-consistency`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from orchestrator.application.explain.formatting import format_count
from orchestrator.cli.completers import optional_execution_argument
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.escaping import print_json, print_text

if TYPE_CHECKING:
    from orchestrator.redis_rq.verify.verifier import ReportedFinding, VerifyReport

EXIT_FINDINGS_LEFT = 1


@click.command("check-consistency")
@optional_execution_argument
@click.option("--repair", is_flag=True, help="Repair indexes, timers, leases and slots; never a record.")
@json_option
@connection_options
@pass_target
def check_consistency(target: Target, execution_id: str | None, repair: bool, as_json: bool) -> None:
    """Check that the data in Redis is consistent.

    It compares the record of one execution, or of all, with its history, indexes, timers, leases and slots.
    Coordinators may run meanwhile. To check a workflow file, use `validate`.

    Exit codes: 0 nothing found, or everything repaired; 1 findings are left; 2 no such execution.
    """
    from orchestrator.redis_rq.verify.verifier import Verifier
    from orchestrator.wiring import make_keys

    settings, client = target.connect()
    with client:
        verifier = Verifier(client, make_keys(settings), settings.retention_s, repairs=repair)
        report = verifier.verify_all() if execution_id is None else verifier.verify(execution_id)
    if as_json:
        print_json(_as_dict(report))
    else:
        for found in report.found:
            print_text(_format_finding(found))
        print_text(_format_summary(report))
    raise click.exceptions.Exit(EXIT_FINDINGS_LEFT if report.unrepaired else 0)


def _format_finding(found: ReportedFinding) -> str:
    finding = found.finding
    execution = found.execution.partition("#")[2] or found.execution
    place = " ".join(part for part in (execution, finding.where) if part)
    return f"{place}: {finding.code}: {finding.words}{' (repaired)' if found.is_repaired else ''}"


def _format_summary(report: VerifyReport) -> str:
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(report.statuses.items()))
    parts = [f"{format_count(report.executions, 'execution')} checked{f' ({statuses})' if statuses else ''}"]
    parts.append(format_count(len(report.found), "finding") if report.found else "no findings")
    if len(report.unrepaired) != len(report.found):
        parts.append(f"{len(report.found) - len(report.unrepaired)} repaired")
    if report.busy:
        parts.append(f"{len(report.busy)} changed too fast to be checked")
    if not report.has_compared_counts:
        parts.append("too many open executions to compare their counts")
    return "; ".join(parts)


def _as_dict(report: VerifyReport) -> dict[str, Any]:
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
