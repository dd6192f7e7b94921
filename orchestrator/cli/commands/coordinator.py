"""The command `coordinator`."""

from __future__ import annotations

import gc
import math
import signal
import threading
import time

import click

from orchestrator.cli.log_options import LogOptions, log_options
from orchestrator.cli.options import Target, connection_options, pass_target
from orchestrator.cli.startup import configure_logging, durability_warnings, logger, wait_for_redis
from orchestrator.processes import REPEATED_SIGNAL_S

COLLECT_AFTER = 50_000
"""Objects that the coordinator allocates between two runs of the garbage collector. Few of its objects form
cycles, and with Python's default the collector would scan the cached records for an eighth of the time."""


def collect_seldom() -> None:
    """Have the garbage collector pass over what is there already, and run seldom."""
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)


lifeline_option = click.option("--lifeline", type=int, hidden=True)
"""The file descriptor of a pipe from `orchestrator run`; when it closes, this process exits at once."""


@click.command()
@log_options("info")
@lifeline_option
@connection_options
@pass_target
def coordinator(target: Target, log: LogOptions, lifeline: int | None) -> None:
    """Run a coordinator until SIGTERM.

    A coordinator reads events, starts workflows and dispatches their steps. Several coordinators may run on
    one Redis; they share the work and take over from each other. On SIGTERM or ^C it finishes the events that
    it has read. A second signal ends it now, and another coordinator takes them over.
    """
    from orchestrator.processes import exit_with_parent, make_process_name
    from orchestrator.redis_rq.pinned_connection import PinnedConnection
    from orchestrator.wiring import make_coordinator

    name = make_process_name()
    configure_logging(log, name, has_parent=lifeline is not None)
    settings, client = target.connect()
    stop = StopRequest()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop.on_signal)
    if lifeline is not None:
        exit_with_parent(lifeline)
    if not wait_for_redis(client, settings, stop.wait):
        return
    if lifeline is None:
        for warning in durability_warnings(client):
            logger.warning(warning)
    logger.info("coordinator %s serves %r", name, settings.prefix)
    service = make_coordinator(PinnedConnection(client), name, settings)
    collect_seldom()
    threading.Thread(target=_announce_stop, args=[stop], name="stop", daemon=True).start()
    service.run(stop)
    logger.info("coordinator %s has stopped", name)


class StopRequest(threading.Event):
    """Set by the first signal. A second one ends the process at once, which loses nothing: another
    coordinator takes over the events that were read and not acknowledged."""

    _requested_at = -math.inf

    def on_signal(self, number: int, _: object) -> None:
        if not self.is_set():
            self._requested_at = time.monotonic()
            self.set()
        elif time.monotonic() - self._requested_at > REPEATED_SIGNAL_S:
            raise SystemExit(128 + number)


def _announce_stop(stop: StopRequest) -> None:
    """Log the stop, in a thread: a signal handler must not log."""
    stop.wait()
    logger.info("stopping after the events that were read; a second SIGTERM or Ctrl-C ends it now")
