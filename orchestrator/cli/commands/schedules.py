"""The command `schedules`: list, pause and unpause schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.cli.command_group import CommandGroup
from orchestrator.cli.completers import name_argument
from orchestrator.cli.errors import InvalidRequest
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.escaping import print_json, print_text

if TYPE_CHECKING:
    from orchestrator.application.engine.schedules import Schedule


@click.group(cls=CommandGroup, invoke_without_command=True)
@json_option
@connection_options
@click.pass_context
def schedules(ctx: click.Context, as_json: bool) -> None:
    """List, pause and unpause schedules.

    Without a command it lists the registered workflows that have a schedule, with their next slots.
    """
    if ctx.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError("write --json after pause or unpause")
        return
    found = ctx.ensure_object(Target).client().store.schedules.all()
    if as_json:
        from orchestrator.application.explain.schedule_json import schedule_as_dict

        print_json([schedule_as_dict(one) for one in found], indent=2)
    elif not found:
        click.echo("no registered workflow has a schedule")
    else:
        print_text("\n\n".join("\n".join(_format_schedule(one)) for one in found))


@schedules.command()
@name_argument
@json_option
@connection_options
@pass_target
def pause(target: Target, name: str, as_json: bool) -> None:
    """Start nothing by a schedule until it is unpaused.

    Running executions continue.
    """
    if not target.client().store.schedules.pause(name):
        raise _unknown_schedule(name)
    _print_change(name, as_json, is_paused=True)


@schedules.command()
@name_argument
@json_option
@connection_options
@pass_target
def unpause(target: Target, name: str, as_json: bool) -> None:
    """Continue a paused schedule.

    The `catch_up` of the schedule decides about the slots that passed during the pause.
    """
    if not target.client().store.schedules.unpause(name):
        raise _unknown_schedule(name)
    _print_change(name, as_json, is_paused=False)


def _print_change(name: str, as_json: bool, *, is_paused: bool) -> None:
    if as_json:
        print_json({"name": name, "paused": is_paused})
    else:
        print_text(f"{name} is {'paused' if is_paused else 'unpaused'}")


def _unknown_schedule(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"no workflow with a schedule is registered as {name!r}; `orchestrator schedules` lists them"
    )


def _format_schedule(schedule: Schedule) -> list[str]:
    """Format the cron, the next slots, the last execution, and the counts of past slots."""
    from orchestrator.application.engine.schedules import upcoming_slots
    from orchestrator.application.explain.schedule_json import MAX_SLOTS

    times = ", ".join(_local_time(at_ms, schedule.timezone) for at_ms in upcoming_slots(schedule, MAX_SLOTS))
    lines = [
        f"{schedule.name}: {schedule.cron} in {schedule.timezone}{' (paused)' if schedule.is_paused else ''}",
        f"  next    {times}",
        f"  last    {schedule.last or 'not started yet'}",
        f"  slots   {schedule.started} started, {schedule.missed} missed (catch_up: {schedule.catch_up}),"
        f" {schedule.skipped} skipped (overlap: {schedule.overlap})",
    ]
    if schedule.overlap != "allow":
        lines.append(f"  open    {', '.join(schedule.open) or 'none'}")
    if schedule.overlap == "queue":
        lines.append(f"  queued  {len(schedule.queued)}")
    return lines


def _local_time(at_ms: int, timezone: str) -> str:
    from datetime import datetime
    from zoneinfo import ZoneInfo

    return f"{datetime.fromtimestamp(at_ms // 1000, ZoneInfo(timezone)):%Y-%m-%d %H:%M %z}"
