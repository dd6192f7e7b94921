"""The options that select executions, shared by `list`, `failures`, `cancel`, `retry` and `delete`."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Any, TypeVar, cast

import click

from orchestrator.cli.options import labels_option

F = TypeVar("F", bound=Callable[..., Any])

STATUSES = (
    "pending",
    "in_progress",
    "paused",
    "compensating",
    "complete",
    "halted",
    "failed",
    "cancelled",
)


def filter_options(*, takes_status: bool = True) -> Callable[[F], F]:
    """Add --status, --name, --group, --label, --text, --since and --until; the command receives them as
    `execution_filter`, which is None if the user gave none of them."""
    return partial(_add_filter_options, takes_status=takes_status)


def _add_filter_options(command: F, takes_status: bool) -> F:
    @wraps(command)
    def with_filter(
        *args: Any,
        status: tuple[str, ...] = (),
        name: str | None,
        group: str | None,
        label: dict[str, str],
        text: str | None,
        since: int | None,
        until: int | None,
        **others: Any,
    ) -> Any:
        from orchestrator.application.records.status import WorkflowStatus
        from orchestrator.client import ExecutionFilter

        statuses = [WorkflowStatus(one) for one in dict.fromkeys(status)]
        execution_filter = ExecutionFilter(statuses, name, group, label, since, until, text or None)
        has_filter = bool(status or label) or any(
            one is not None for one in (name, group, since, until, text or None)
        )
        return command(*args, execution_filter=execution_filter if has_filter else None, **others)

    for option in (
        click.option("--until", metavar="TIME", callback=_read_time, help="Created before this time or age."),
        click.option(
            "--since",
            metavar="TIME",
            callback=_read_time,
            help="Created after this time (2026-11-16T08:00, UTC by default) or age (2h, 7d).",
        ),
        click.option(
            "--text", metavar="TEXT", help="With TEXT in the id, the name, the group or a label, in any case."
        ),
        labels_option("With this label; may be repeated."),
        click.option("--group", metavar="NAME", help="In this group."),
        click.option("--name", metavar="NAME", help="Of the workflow with this name."),
    ):
        with_filter = option(with_filter)
    return cast(F, _status_option(with_filter) if takes_status else with_filter)


_status_option = click.option(
    "--status", type=click.Choice(STATUSES), multiple=True, help="In this status; may be repeated."
)


def _read_time(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Convert a time, or an age before now, to milliseconds since the epoch."""
    if value is None:
        return None
    from orchestrator.application.values.durations import parse_ms

    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        try:
            return round(time.time() * 1000) - parse_ms(value)
        except ValueError:
            problem = f"{value!r} is neither a time, such as 2026-11-16T08:00, nor an age, such as 2h"
            raise click.BadParameter(problem, ctx, param) from None
    return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
