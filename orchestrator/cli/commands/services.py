"""Commands that run until they are told to stop: coordinator, worker."""

from __future__ import annotations

import gc
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from orchestrator.cli.log_options import LogOptions, log_options
from orchestrator.cli.options import Target, check_url, connection_options, executors_option, pass_target
from orchestrator.cli.startup import (
    configure_logging,
    durability_warnings,
    load_executors,
    logger,
    prepare_payloads,
    wait_for_redis,
)
from orchestrator.logs import set_process_name

if TYPE_CHECKING:
    from orchestrator.settings import Settings
    from orchestrator.worker.processes.recycling import RecyclingLimits

lifeline_option = click.option("--lifeline", type=int, hidden=True)
"""A pipe whose other end is held by an `orchestrator run`: when it closes, we end at once."""

COLLECT_AFTER = 50_000
"""Of a coordinator: how many objects it makes before garbage is looked for. Hardly any of it is in circles,
and to look through all records that it keeps takes an eighth of its time at Python's own pace."""


@click.command()
@log_options("info")
@lifeline_option
@connection_options
@pass_target
def coordinator(target: Target, log: LogOptions, lifeline: int | None) -> None:
    """Serve events until SIGTERM: start workflows, and move them on.

    Any number of coordinators may run on one Redis; they share the work and take over from each other.
    """
    from orchestrator.embedded import make_coordinator
    from orchestrator.processes import exit_with_parent, make_process_name
    from orchestrator.redis_rq.connection import connect
    from orchestrator.redis_rq.pinned_connection import PinnedConnection

    name = make_process_name()
    configure_logging(log, name)
    settings = target.settings()
    check_url(settings.redis_url)
    client = connect(settings.redis_url)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if lifeline is not None:
        exit_with_parent(lifeline)
    if not wait_for_redis(client, settings, stop.wait):
        return
    if lifeline is None:
        for warning in durability_warnings(client):
            logger.warning(warning)
    logger.info("coordinator %s serves %r", name, settings.prefix)
    serving = make_coordinator(PinnedConnection(client), name, settings)
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)
    serving.run(stop)
    logger.info("coordinator %s has stopped", name)


@click.command()
@click.argument("queues", metavar="[QUEUE]...", nargs=-1)
@executors_option
@click.option("--burst", is_flag=True, help="End when the queues are empty.")
@click.option(
    "--concurrency",
    metavar="N",
    type=click.IntRange(1, 10_000),
    help="Run up to N steps at once in one process: for executors that are async, or wait a lot.",
)
@click.option(
    "--processes",
    metavar="P",
    type=click.IntRange(1, 1_000),
    default=1,
    show_default=True,
    help="So many workers, started and watched over by this one.",
)
@click.option(
    "--recycle-after",
    metavar="N",
    type=click.IntRange(1),
    default=1_000,
    show_default=True,
    help="Replace the process that runs the steps after so many; with 1, each has a process of its own.",
)
@click.option(
    "--recycle-above",
    metavar="MB",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    help="Replace it too when it has grown by so many megabytes.",
)
@log_options("info")
@lifeline_option
@connection_options
@pass_target
def worker(
    target: Target,
    queues: tuple[str, ...],
    executors: tuple[str, ...],
    burst: bool,
    concurrency: int | None,
    processes: int,
    recycle_after: int,
    recycle_above: int,
    log: LogOptions,
    lifeline: int | None,
) -> None:
    """Run steps from QUEUEs ("default" unless named) until SIGTERM; a step that runs is finished first.

    It is an RQ worker, seen by `rq info`; the queue "default" is RQ's queue "orchestrator.default". Steps run
    one after the other in a process beside this one, which is killed with a step that must end, and replaced;
    with --concurrency several run in it at once.
    """
    from orchestrator.processes import exit_with_parent, make_process_name
    from orchestrator.worker.memory_limit import memory_limit
    from orchestrator.worker.processes.recycling import RecyclingLimits

    name = make_process_name()
    configure_logging(log, name)
    settings = target.settings()
    check_url(settings.redis_url)
    if lifeline is not None:
        exit_with_parent(lifeline)
    memory_limit()
    recycling = RecyclingLimits(recycle_after, recycle_above << 20)
    load_executors(executors)
    prepare_payloads()
    names = [
        queue
        for short in queues or ("default",)
        for queue in settings.keys.queues(_checked_queue(short, settings.prefix))
    ]

    def work() -> None:
        own_name = name if processes == 1 else make_process_name()
        set_process_name(own_name)
        _serve(settings, names, burst, own_name, concurrency, recycling)

    if processes == 1:
        work()
    else:
        from orchestrator.worker.processes.pool import Pool

        raise SystemExit(Pool(work, processes, burst).serve())


def _serve(
    settings: Settings,
    queues: list[str],
    burst: bool,
    name: str,
    concurrency: int | None,
    recycling: RecyclingLimits,
) -> None:
    """One worker: its supervisor is this process."""
    from functools import partial

    from redis.exceptions import RedisError

    from orchestrator.redis_rq.connection import connect
    from orchestrator.redis_rq.job_taker import JobTaker, WorkerQueues
    from orchestrator.worker.harness import lease_from_environment
    from orchestrator.worker.processes.concurrent_child import run_concurrent_child
    from orchestrator.worker.processes.rq_registration import connect_for_rq, make_worker
    from orchestrator.worker.processes.supervisor import Supervisor
    from orchestrator.worker.processes.work_horse import run_work_horse

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    url, made = settings.redis_url, None
    checking = connect(url)
    while made is None:
        wait_for_redis(checking, settings, threading.Event().wait)
        with suppress(RedisError):  # it may have gone again; who serves waits for it by himself
            made = make_worker(connect_for_rq(url), queues, name)
    station = WorkerQueues(name, queues, settings.keys, is_single=concurrency is None)
    if concurrency is None:
        logger.info("worker %s serves %s", name, ", ".join(queues))
        child = partial(run_work_horse, url, station, burst, recycling)
        taker = JobTaker(connect(url, decodes=False), station, lambda: 0)
        supervisor = Supervisor(made, child, burst, lease_from_environment(), taker)
    else:
        logger.info("worker %s serves %s, %d steps at once", name, ", ".join(queues), concurrency)
        child = partial(run_concurrent_child, url, station, concurrency, burst)
        supervisor = Supervisor(made, child, burst, lease_from_environment())
    supervisor.serve()
    logger.info("worker %s has stopped", name)


def _leave(*_: object) -> None:
    raise SystemExit(0)


def _checked_queue(name: str, prefix: str) -> str:
    from orchestrator.application.spec.model import ID_RULE, is_id

    if not is_id(name):
        raise click.UsageError(f"the queue {name!r}: a queue {ID_RULE}")
    if name.startswith(f"{prefix}."):
        short = name.removeprefix(f"{prefix}.")
        raise click.UsageError(f"the queue {name!r}: say {short!r}, the prefix is added by itself")
    return name
