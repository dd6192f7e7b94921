"""The command `worker`."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from orchestrator.cli.commands.coordinator import lifeline_option
from orchestrator.cli.log_options import LogOptions, log_options
from orchestrator.cli.options import Target, check_url, connection_options, executors_option, pass_target
from orchestrator.cli.startup import (
    configure_logging,
    load_executors,
    logger,
    prepare_payloads,
    wait_for_redis,
)
from orchestrator.logs import set_process_name
from orchestrator.settings import STOP_GRACE_S

if TYPE_CHECKING:
    from orchestrator.settings import Settings
    from orchestrator.worker.processes.recycling import RecyclingLimits


@click.command()
@click.argument("queues", metavar="[QUEUE]...", nargs=-1)
@executors_option
@click.option(
    "--built-in-only", is_flag=True, help="Serve the built-in executors alone, if you have none of your own."
)
@click.option("--fails-unknown", is_flag=True, hidden=True)
@click.option("--burst", is_flag=True, help="Exit when the queues are empty.")
@click.option(
    "--concurrency",
    metavar="N",
    type=click.IntRange(1, 10_000),
    help="Run up to N steps at once in one process, for async or mostly waiting executors.",
)
@click.option(
    "--processes",
    metavar="P",
    type=click.IntRange(1, 1_000),
    default=1,
    show_default=True,
    help="Number of worker processes; one that dies is replaced.",
)
@click.option(
    "--recycle-after",
    metavar="N",
    type=click.IntRange(1),
    default=1_000,
    show_default=True,
    help="Replace the work-horse after N steps; 1 gives each step its own process.",
)
@click.option(
    "--recycle-above",
    metavar="MB",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    help="Replace the work-horse when it has grown by this many megabytes.",
)
@click.option(
    "--stop-grace",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True, max=86_400),
    help="How long a stopping worker waits for Redis to take a result: by default"
    f" ORCHESTRATOR_STOP_GRACE_S, or {STOP_GRACE_S:g}.",
)
@log_options("info")
@lifeline_option
@connection_options
@pass_target
def worker(
    target: Target,
    queues: tuple[str, ...],
    executors: tuple[str, ...],
    built_in_only: bool,
    fails_unknown: bool,
    burst: bool,
    concurrency: int | None,
    processes: int,
    recycle_after: int,
    recycle_above: int,
    stop_grace: float | None,
    log: LogOptions,
    lifeline: int | None,
) -> None:
    """Run a worker until SIGTERM.

    It runs steps from the given QUEUEs, or from "default". It is an RQ worker that `rq info` shows; the queue
    "default" is RQ's queue "orchestrator.default".

    On SIGTERM or ^C it finishes the running steps first, and prints which they are. A second signal ends it
    now; the steps run again. If Redis is unavailable, it gives up a result after --stop-grace; the step runs
    again when its lease has expired.

    Steps run one after another in a child process, the work-horse. If a step must be stopped, the work-horse
    is killed and replaced. With --concurrency, several steps run at once in the child process.

    A step whose executor this worker does not have goes back to its queue, for another worker.
    """
    from orchestrator.processes import exit_with_parent, make_process_name, write_whole_lines
    from orchestrator.wiring import make_keys
    from orchestrator.worker.processes.recycling import RecyclingLimits

    name = make_process_name()
    configure_logging(log, name, has_parent=lifeline is not None)
    write_whole_lines()
    settings = target.settings()
    check_url(settings.redis_url)
    if lifeline is not None:
        exit_with_parent(lifeline)
    recycling = RecyclingLimits(recycle_after, recycle_above << 20)
    if stop_grace is not None:
        settings = replace(settings, stop_grace_s=stop_grace)
    keys = make_keys(settings)
    queue_names = [
        queue
        for short in queues or ("default",)
        for queue in keys.queues(_check_queue(short, settings.prefix))
    ]
    if executors and built_in_only:
        raise click.UsageError("--built-in-only cannot be used with --executors")
    if executors:
        settings = replace(settings, executors=executors)
    load_executors(settings, built_in_only)
    prepare_payloads(settings)

    def work() -> None:
        own_name = name if processes == 1 else make_process_name()
        set_process_name(own_name)
        _run_worker(settings, queue_names, burst, own_name, concurrency, recycling, not fails_unknown)

    if processes == 1:
        work()
    else:
        from orchestrator.worker.processes.pool import Pool

        raise SystemExit(Pool(work, processes, burst).serve())


def _run_worker(
    settings: Settings,
    queues: list[str],
    burst: bool,
    name: str,
    concurrency: int | None,
    recycling: RecyclingLimits,
    declines: bool,
) -> None:
    """Run one worker; this process becomes its supervisor."""
    from redis.exceptions import RedisError

    from orchestrator.redis_rq.connection import connect
    from orchestrator.wiring import make_supervisor
    from orchestrator.worker.processes.rq_registration import connect_for_rq, make_worker

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)
    url, rq_worker = settings.redis_url, None
    client = connect(url)
    while rq_worker is None:
        wait_for_redis(client, settings, threading.Event().wait)
        with suppress(RedisError):  # Redis is unavailable again; a running worker waits for it itself
            rq_worker = make_worker(connect_for_rq(url), queues, name)
    at_once = "" if concurrency is None else f", {concurrency} steps at once"
    logger.info("worker %s serves %s%s", name, ", ".join(queues), at_once)
    supervisor = make_supervisor(
        settings,
        rq_worker,
        queues,
        concurrency=concurrency,
        burst=burst,
        recycling=recycling,
        declines=declines,
    )
    supervisor.serve()
    logger.info("worker %s has stopped", name)


def _exit(*_: object) -> None:
    raise SystemExit(0)


def _check_queue(name: str, prefix: str) -> str:
    from orchestrator.application.spec.model import ID_RULE, is_id

    if not is_id(name):
        raise click.UsageError(f"the queue {name!r}: a queue {ID_RULE}")
    if name.startswith(f"{prefix}."):
        short = name.removeprefix(f"{prefix}.")
        raise click.UsageError(f"the queue {name!r}: write {short!r}; the prefix is added automatically")
    return name
