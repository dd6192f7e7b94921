"""The command `explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.cli.completers import execution_argument
from orchestrator.cli.errors import EXIT_INVALID
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.escaping import print_json, print_text

if TYPE_CHECKING:
    from orchestrator.application.explain.reasons import Reason
    from orchestrator.diagnosis import Explanation

MAX_REASONS = 60


@click.command()
@execution_argument
@click.argument("step", required=False, default="")
@json_option
@connection_options
@pass_target
def explain(target: Target, execution_id: str, step: str, as_json: bool) -> None:
    """Explain why an execution or a step waits or failed.

    Each reason comes with advice. ID is an execution id, a full id, or the entry id of a start that has no
    reply yet. STEP may be an item of a map (step#0) or a compensation (step#undo). The exit code is 2 for an
    unknown id.
    """
    from orchestrator.diagnosis import why
    from orchestrator.wiring import make_keys

    settings, client = target.connect()
    explanation = why(client, make_keys(settings), execution_id, step)
    if as_json:
        print_json(explanation.as_dict(), indent=2)
    else:
        print_text("\n".join(_format_explanation(explanation)))
    if explanation.is_unknown:
        raise click.exceptions.Exit(EXIT_INVALID)


def _format_explanation(explanation: Explanation, indent: str = "") -> list[str]:
    from orchestrator.application.explain.text import format_status

    lines = [f"{indent}{explanation.execution_id}: {format_status(explanation.status or 'unknown')}"]
    for reason in explanation.reasons[:MAX_REASONS]:
        lines += _format_reason(reason, f"{indent}  ")
    if not explanation.reasons:
        lines.append(f"{indent}  nothing blocks it")
    if len(explanation.reasons) > MAX_REASONS:
        lines.append(f"{indent}  and {len(explanation.reasons) - MAX_REASONS} more; --json shows all")
    for child in explanation.children:
        lines += _format_explanation(child, f"{indent}  ")
    return lines


def _format_reason(reason: Reason, indent: str) -> list[str]:
    lines = [f"{indent}{reason.words} [{reason.code}]"]
    return [*lines, f"{indent}  -> {reason.advice}"] if reason.advice else lines
