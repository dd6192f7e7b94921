"""The command `orchestrator`, its commands under their headings, and their old names."""

from __future__ import annotations

import click

from orchestrator import __version__
from orchestrator.cli.command_group import RootGroup
from orchestrator.cli.commands.cancel import cancel
from orchestrator.cli.commands.check_consistency import check_consistency
from orchestrator.cli.commands.completion import completion
from orchestrator.cli.commands.convert import convert
from orchestrator.cli.commands.coordinator import coordinator
from orchestrator.cli.commands.dead_letters import dead_letters
from orchestrator.cli.commands.delete import delete
from orchestrator.cli.commands.doctor import doctor
from orchestrator.cli.commands.executors import executors
from orchestrator.cli.commands.explain import explain
from orchestrator.cli.commands.exporter import exporter
from orchestrator.cli.commands.failures import failures
from orchestrator.cli.commands.graph import graph
from orchestrator.cli.commands.health import health
from orchestrator.cli.commands.history import history
from orchestrator.cli.commands.hold_step import hold_step
from orchestrator.cli.commands.list import list_executions
from orchestrator.cli.commands.mcp import mcp
from orchestrator.cli.commands.pause import pause
from orchestrator.cli.commands.payload import payload
from orchestrator.cli.commands.register import register
from orchestrator.cli.commands.release_step import release_step
from orchestrator.cli.commands.rerun_steps import rerun_steps
from orchestrator.cli.commands.retry import retry
from orchestrator.cli.commands.run import run
from orchestrator.cli.commands.schedules import schedules
from orchestrator.cli.commands.schema import schema
from orchestrator.cli.commands.show import show
from orchestrator.cli.commands.signal import signal
from orchestrator.cli.commands.start import start
from orchestrator.cli.commands.traces import traces
from orchestrator.cli.commands.unpause import unpause
from orchestrator.cli.commands.validate import validate
from orchestrator.cli.commands.watch import watch
from orchestrator.cli.commands.web import web
from orchestrator.cli.commands.what_if import what_if
from orchestrator.cli.commands.worker import worker
from orchestrator.cli.commands.workflows import workflows
from orchestrator.cli.options import global_connection_options


@click.group(cls=RootGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@global_connection_options
def main() -> None:
    """Durable workflows, written as data, on Redis and RQ.

    Exit codes: 0 complete or successful, 2 wrong usage, invalid workflow or rejected request, 3 halted,
    4 failed, 5 cancelled, 6 converted in part, 7 busy, try again later, 130 interrupted by ^C, 1 any other
    failure.
    """


main.add_section("Run and start", (run, start))
main.add_section("Watch and inspect", (list_executions, failures, show, watch, history, explain, payload))
main.add_section(
    "Control executions",
    (signal, pause, unpause, hold_step, release_step, cancel, retry, rerun_steps, delete),
)
main.add_section("Workflows and schedules", (register, workflows, schedules))
main.add_section(
    "Operate",
    (coordinator, worker, web, mcp, exporter, traces, doctor, health, check_consistency, dead_letters),
)
main.add_section("Authoring", (validate, graph, what_if, executors, schema, convert, completion))
main.add_aliases(
    {
        "dead": "dead-letters",
        "definitions": "workflows",
        "hold": "hold-step",
        "release": "release-step",
        "rerun": "rerun-steps",
        "status": "show",
        "verify": "check-consistency",
        "why": "explain",
    }
)
