"""Commands that tell an operator the truth: why, doctor, health."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.commands.completion import execution_argument
from orchestrator.cli.errors import EXIT_INVALID
from orchestrator.cli.options import (
    Target,
    add_current_directory,
    check_url,
    connection_options,
    json_option,
    pass_target,
    read_ms,
)
from orchestrator.cli.output.escaping import print_text

if TYPE_CHECKING:
    from orchestrator.application.explain.reasons import Reason
    from orchestrator.diagnosis import Check, Explanation
    from orchestrator.redis_rq.connection import Client
    from orchestrator.settings import Settings

MAX_REASONS = 60


@click.command()
@execution_argument
@click.argument("step", required=False, default="")
@json_option
@connection_options
@pass_target
def why(target: Target, execution_id: str, step: str, as_json: bool) -> None:
    """Say why an execution, or one STEP of it, does not run (further), and what to do.

    ID is an execution id, a full id, or the id of a start that nobody has answered. STEP may be an item of a
    map (step#0) or a compensation (step#undo). The exit code is 2 for an id that nobody knows.
    """
    from orchestrator.diagnosis import why

    settings, client = _connected(target)
    found = why(client, settings.keys, execution_id, step)
    if as_json:
        click.echo(_as_json(found.as_dict()))
    else:
        print_text("\n".join(_why_lines(found)))
    if found.is_unknown:
        raise click.exceptions.Exit(EXIT_INVALID)


@click.command()
@click.option("--strict", is_flag=True, help="Warnings count as problems.")
@json_option
@connection_options
@pass_target
def doctor(target: Target, strict: bool, as_json: bool) -> None:
    """Look at Redis, coordinators, streams, queues and workers, and say what is wrong and what to do.

    The exit code is 1 if there is a problem, and 0 otherwise.
    """
    from orchestrator.diagnosis import Level, run_checks

    settings, client = _connected(target)
    add_current_directory()
    checks = run_checks(client, settings.keys, settings.executors)
    bad = {Level.PROBLEM, Level.WARNING} if strict else {Level.PROBLEM}
    is_well = not any(check.level in bad for check in checks)
    if as_json:
        listed = [
            {"name": one.name, "level": one.level.value, "found": one.found, "advice": one.advice}
            for one in checks
        ]
        click.echo(_as_json({"ok": is_well, "checks": listed}))
    else:
        print_text("\n".join(_check_lines(checks)))
    raise click.exceptions.Exit(0 if is_well else 1)


@click.command()
@click.argument("process", type=click.Choice(("coordinator", "worker", "redis")), default="coordinator")
@click.option("--name", metavar="NAME", help="Only the one of this name, or of the names that begin with it.")
@click.option("--any", "anywhere", is_flag=True, help="Those of every host, not only of this one.")
@click.option("--max-age", metavar="TIME", default="10s", show_default=True, callback=read_ms)
@json_option
@connection_options
@pass_target
def health(
    target: Target, process: Any, name: str | None, anywhere: bool, max_age: int, as_json: bool
) -> None:
    """For probes: has the loop of every coordinator (or worker) of this host come round lately?

    The exit code is 0 if so, and 1 if one of them is silent, if there is none, or if Redis is away.
    """
    from orchestrator.diagnosis import ProcessFilter, health

    settings, client = _connected(target)
    process_filter = ProcessFilter(None if anywhere else socket.gethostname(), name)
    found = health(client, settings.keys, process, process_filter, max_age)
    if as_json:
        click.echo(_as_json(found.as_dict()))
    else:
        print_text(found.words)
    raise click.exceptions.Exit(0 if found.is_healthy else 1)


def _connected(target: Target) -> tuple[Settings, Client]:
    from orchestrator.redis_rq.connection import connect

    settings = target.settings()
    check_url(settings.redis_url)
    return settings, connect(settings.redis_url)


def _why_lines(found: Explanation, indent: str = "") -> list[str]:
    from orchestrator.application.explain.text import format_status

    lines = [f"{indent}{found.execution_id}: {format_status(found.status or 'unknown')}"]
    for reason in found.reasons[:MAX_REASONS]:
        lines += _reason_lines(reason, f"{indent}  ")
    if not found.reasons:
        lines.append(f"{indent}  nothing keeps it")
    if len(found.reasons) > MAX_REASONS:
        lines.append(f"{indent}  and {len(found.reasons) - MAX_REASONS} more; --json shows all")
    for child in found.children:
        lines += _why_lines(child, f"{indent}  ")
    return lines


def _reason_lines(reason: Reason, indent: str) -> list[str]:
    lines = [f"{indent}{reason.words} [{reason.code}]"]
    return [*lines, f"{indent}  -> {reason.advice}"] if reason.advice else lines


def _check_lines(checks: list[Check]) -> list[str]:
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.level.value:<7}  {check.name:<{width}}  {check.found}")
        if check.advice:
            lines.append(f"{'':<7}  {'':<{width}}  -> {check.advice}")
    return lines


def _as_json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
