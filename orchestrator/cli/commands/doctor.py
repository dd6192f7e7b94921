"""The command `doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import (
    Target,
    add_current_directory,
    connection_options,
    json_option,
    pass_target,
)
from orchestrator.cli.output.escaping import print_json, print_text

if TYPE_CHECKING:
    from orchestrator.diagnosis import Check


@click.command()
@click.option("--strict", is_flag=True, help="Treat warnings as problems.")
@json_option
@connection_options
@pass_target
def doctor(target: Target, strict: bool, as_json: bool) -> None:
    """Check the whole system and suggest fixes.

    It checks Redis, coordinators, streams, queues and workers. The exit code is 1 if there is a problem, and
    0 otherwise.
    """
    from orchestrator.diagnosis import Level, run_checks
    from orchestrator.wiring import make_keys

    settings, client = target.connect()
    add_current_directory()
    checks = run_checks(client, make_keys(settings), settings.executors)
    failing = {Level.PROBLEM, Level.WARNING} if strict else {Level.PROBLEM}
    is_ok = not any(check.level in failing for check in checks)
    if as_json:
        print_json({"ok": is_ok, "checks": [asdict(one) for one in checks]}, indent=2)
    else:
        print_text("\n".join(_format_checks(checks)))
    raise click.exceptions.Exit(0 if is_ok else 1)


def _format_checks(checks: Sequence[Check]) -> list[str]:
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.level.value:<7}  {check.name:<{width}}  {check.found}")
        if check.advice:
            lines.append(f"{'':<7}  {'':<{width}}  -> {check.advice}")
    return lines
