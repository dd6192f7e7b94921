"""Builds keys, stores and processes from settings. Nothing else does, and no package imports this module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.application.errors import StoreError
from orchestrator.application.spec.tag_routes import TAGS_VARIABLE, TagRoutes
from orchestrator.payload_stores import PayloadSettings
from orchestrator.redis_rq.keys import PREFIX_RULE, Keys, is_prefix
from orchestrator.settings import BadSetting, Settings

if TYPE_CHECKING:
    from rq import Worker

    from orchestrator.backend.backend import Backend
    from orchestrator.client import Client
    from orchestrator.coordinator.loop import Coordinator
    from orchestrator.redis_rq.connection import Client as RedisClient
    from orchestrator.worker.processes.recycling import RecyclingLimits
    from orchestrator.worker.processes.supervisor import Supervisor


def check_settings(settings: Settings) -> None:
    """Raise BadSetting for a setting that no process could use, before anything connects."""
    make_keys(settings)
    make_routes(settings)
    make_payload_settings(settings)


def make_keys(settings: Settings) -> Keys:
    if not is_prefix(settings.prefix):
        raise BadSetting(f"ORCHESTRATOR_PREFIX {PREFIX_RULE}, not {settings.prefix[:100]!r}")
    return Keys(settings.prefix, settings.partitions)


def make_routes(settings: Settings) -> TagRoutes:
    try:
        return TagRoutes.parse(settings.tags)
    except ValueError as error:
        raise BadSetting(f"{TAGS_VARIABLE}: {error}") from None


def make_payload_settings(settings: Settings) -> PayloadSettings:
    try:
        return PayloadSettings.from_settings(settings)
    except StoreError as error:
        raise BadSetting(str(error)) from None


def make_client(settings: Settings, redis: RedisClient | None = None) -> Client:
    """A client of this Redis, or of the one that the settings name."""
    from orchestrator.client import Client

    return Client(
        redis or settings.redis_url,
        make_keys(settings),
        max_backlog=settings.max_backlog,
        settings=settings,
    )


def make_backend(settings: Settings, redis: RedisClient | None = None) -> Backend:
    """A backend on this Redis, or on the one that the settings name, beside coordinators and workers with the
    same settings."""
    from orchestrator.backend.backend import Backend
    from orchestrator.redis_rq.connection import connect
    from orchestrator.redis_rq.runner import RqRunner
    from orchestrator.redis_rq.store import RedisStore

    client, keys = redis or connect(settings.redis_url), make_keys(settings)
    return Backend(
        store=RedisStore(client, keys, settings.retention_s, make_routes(settings)),
        runner=RqRunner(client, keys),
        payloads=make_payload_settings(settings).open(client, keys),
        settings=settings,
    )


def make_coordinator(client: RedisClient, consumer: str, settings: Settings) -> Coordinator:
    """A coordinator that reads events as this consumer."""
    from orchestrator.backend.backend import Backend
    from orchestrator.coordinator.checker_process import ProcessChecker
    from orchestrator.coordinator.loop import Coordinator
    from orchestrator.redis_rq.event_log import RedisEventLog
    from orchestrator.redis_rq.keys import OwnStreams
    from orchestrator.redis_rq.runner import RqRunner
    from orchestrator.redis_rq.store import RedisStore
    from orchestrator.redis_rq.verify.partial_commits import PartialCommits

    keys, routes = make_keys(settings), make_routes(settings)
    own_streams = OwnStreams(keys)
    store = RedisStore(client, keys, settings.retention_s, routes, own_streams)
    log = RedisEventLog(
        client,
        consumer,
        keys,
        settings.grace_ms,
        settings.retention_s,
        max_queued=settings.max_queued,
        own_streams=own_streams,
    )
    backend = Backend(store=store, runner=RqRunner(client, keys), settings=settings)
    repair = PartialCommits(client, keys, settings.retention_s).repair
    return Coordinator(
        backend, log, definitions=store, routes=routes, repair=repair, checker=ProcessChecker()
    )


def make_supervisor(
    settings: Settings,
    rq_worker: Worker,
    queues: Sequence[str],
    *,
    concurrency: int | None,
    burst: bool,
    recycling: RecyclingLimits,
    declines: bool = True,
) -> Supervisor:
    """The supervisor of one worker: a work-horse, or with `concurrency` a child that runs steps at once.
    Unless it `declines`, a step whose executor is missing fails."""
    from orchestrator.invocation.executors import BUILT_IN
    from orchestrator.redis_rq.connection import connect
    from orchestrator.redis_rq.declined import ANY_EXECUTOR
    from orchestrator.redis_rq.job_taker import JobTaker, WorkerQueues
    from orchestrator.worker.harness import load_executors
    from orchestrator.worker.processes.concurrent_child import run_concurrent_child
    from orchestrator.worker.processes.published_executors import PublishedExecutors
    from orchestrator.worker.processes.supervisor import Supervisor
    from orchestrator.worker.processes.work_horse import run_work_horse

    name, keys = rq_worker.name, make_keys(settings)
    worker_queues = WorkerQueues(name, queues, keys, is_single=concurrency is None)
    child: Callable[..., None]
    taker = None
    if concurrency is None:
        child = partial(run_work_horse, settings, worker_queues, burst, recycling, declines=declines)
        taker = JobTaker(connect(settings.redis_url, decodes=False), worker_queues, lambda: 0)
    else:
        child = partial(run_concurrent_child, settings, worker_queues, concurrency, burst, declines=declines)
    found = load_executors(settings.executors)
    names = [*found.names, *BUILT_IN, *((ANY_EXECUTOR,) if found.has_catch_all else ())]
    executors = PublishedExecutors(rq_worker, keys, names, slots=concurrency or 1)
    return Supervisor(rq_worker, child, burst, settings.lease_s, taker, executors)
