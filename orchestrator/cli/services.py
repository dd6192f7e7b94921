"""Commands that run until they are told to stop: coordinator, worker."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from orchestrator.cli.log_options import LogOptions, log_options
from orchestrator.cli.options import Target, check_url, connection_options, executors_option, pass_target
from orchestrator.cli.preparations import (
    begin_log,
    durability_warnings,
    load_executors,
    logger,
    prepare_payloads,
    wait_for_redis,
)
from orchestrator.logs import name_process

if TYPE_CHECKING:
    from orchestrator.settings import Settings

lifeline_option = click.option("--lifeline", type=int, hidden=True)
"""A pipe whose other end is held by an `orchestrator run`: when it closes, we end at once."""


@click.command()
@log_options("info")
@lifeline_option
@connection_options
@pass_target
def coordinator(target: Target, log: LogOptions, lifeline: int | None) -> None:
    """Serve events until SIGTERM: start workflows, and move them on.

    Any number of coordinators may run on one Redis; they share the work and take over from each other.
    """
    from orchestrator.embedded import hang_on, make_coordinator, process_name
    from orchestrator.redis_rq.connection import connect

    name = process_name()
    begin_log(log, name)
    settings = target.settings()
    check_url(settings.redis_url)
    client = connect(settings.redis_url)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if lifeline is not None:
        hang_on(lifeline)
    if not wait_for_redis(client, settings, stop.wait):
        return
    if lifeline is None:
        for warning in durability_warnings(client):
            logger.warning(warning)
    logger.info("coordinator %s serves %r", name, settings.prefix)
    make_coordinator(client, name, settings).run(stop)
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
    log: LogOptions,
    lifeline: int | None,
) -> None:
    """Run steps from QUEUEs ("default" unless named) until SIGTERM; a step that runs is finished first.

    It is an RQ worker, seen by `rq info`; the queue "default" is RQ's queue "orchestrator.default". Every
    step runs in a process of its own, which can be killed without any harm to others; with --concurrency
    several share one.
    """
    from orchestrator.embedded import hang_on, process_name
    from orchestrator.worker.memory import memory_limit

    name = process_name()
    begin_log(log, name)
    settings = target.settings()
    check_url(settings.redis_url)
    if lifeline is not None:
        hang_on(lifeline)
    memory_limit()
    load_executors(executors)
    prepare_payloads()
    names = [
        queue
        for short in queues or ("default",)
        for queue in settings.keys.queues(_checked_queue(short, settings.prefix))
    ]

    def work() -> None:
        own_name = name if processes == 1 else process_name()
        name_process(own_name)
        if concurrency is None:
            _work_on(settings, names, burst, own_name)
        else:
            _work_concurrently(settings, names, burst, own_name, concurrency)

    if processes == 1:
        work()
    else:
        from orchestrator.worker.pool import Pool

        raise SystemExit(Pool(work, processes, burst).serve())


def _work_concurrently(
    settings: Settings, queues: list[str], burst: bool, name: str, concurrency: int
) -> None:
    from functools import partial

    from orchestrator.redis_rq.connection import connect
    from orchestrator.worker.crew import be_a_crew
    from orchestrator.worker.harness import lease_from_environment
    from orchestrator.worker.rq_worker import connect_for_rq, make_worker
    from orchestrator.worker.supervisor import Supervisor

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    wait_for_redis(connect(settings.redis_url), settings, threading.Event().wait)
    made = make_worker(connect_for_rq(settings.redis_url), queues, name)
    logger.info("worker %s serves %s, %d steps at once", name, ", ".join(queues), concurrency)
    crew = partial(be_a_crew, settings.redis_url, queues, name, concurrency, burst)
    Supervisor(made, crew, burst, lease_from_environment()).serve()
    logger.info("worker %s has stopped", name)


def _work_on(settings: Settings, queues: list[str], burst: bool, name: str) -> None:
    """Work until told to stop. RQ ends its worker when Redis goes away: then wait, and make a new one."""
    from redis.exceptions import RedisError
    from rq.exceptions import StopRequested

    from orchestrator.embedded import process_name
    from orchestrator.redis_rq.connection import connect
    from orchestrator.worker.rq_worker import connect_for_rq, make_worker

    checking = connect(settings.redis_url)
    while True:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave)  # while it works, RQ's own handlers are in place
        wait_for_redis(checking, settings, threading.Event().wait)
        with suppress(RedisError, StopRequested):
            made = make_worker(connect_for_rq(settings.redis_url), queues, name)
            made.max_connection_wait_time = 2.0
            logger.info("worker %s serves %s", made.name, ", ".join(queues))
            try:
                made.work(burst=burst, logging_level=_level_of_rq())
                if burst:
                    return
            finally:
                if made._shutdown_requested_date is not None:
                    logger.info("worker %s has stopped", made.name)
                    raise SystemExit(0)
        name = process_name()  # RQ may take the one before for alive
        name_process(name)


def _level_of_rq() -> str:
    """RQ says five lines about a job that the harness sums up in one: only who debugs wants them."""
    return "DEBUG" if logger.isEnabledFor(logging.DEBUG) else "WARNING"


def _leave(*_: object) -> None:
    raise SystemExit(0)


def _checked_queue(name: str, prefix: str) -> str:
    from orchestrator.application.spec import ID_RULE, is_id

    if not is_id(name):
        raise click.UsageError(f"the queue {name!r}: a queue {ID_RULE}")
    if name.startswith(f"{prefix}."):
        short = name.removeprefix(f"{prefix}.")
        raise click.UsageError(f"the queue {name!r}: say {short!r}, the prefix is added by itself")
    return name
