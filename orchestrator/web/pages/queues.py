"""The page of queues and workers, with the coordinators and their streams."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from orchestrator.application.records.events import parse_iso_ms
from orchestrator.redis_rq.queries.rq_workers import (
    RqQueue,
    RqWorker,
    find_current_steps,
    rq_queues,
    rq_workers,
)
from orchestrator.web.instance import instance_of
from orchestrator.web.rendering import render

MAX_WORKERS_SHOWN = 200
MAX_EXECUTORS_SHOWN = 12


def show(request: Request) -> Response:
    instance = instance_of(request)
    inspection = instance.inspection
    now_ms, queues, workers = inspection.now_ms(), rq_queues(inspection), rq_workers(inspection)
    prefix = f"{instance.keys.prefix}."
    ours = [one for one in workers if any(queue.startswith(prefix) for queue in one.queues)]
    shown = sorted(ours, key=lambda one: (not one.is_alive, one.name))[:MAX_WORKERS_SHOWN]
    return render(
        request,
        "queues.html",
        queues=[(one, _age_s(one, now_ms)) for one in queues],
        workers=shown,
        worker_count=len(ours),
        other_count=len(workers) - len(ours),
        served={queue.removeprefix(prefix) for one in ours if one.is_alive for queue in one.queues},
        steps=find_current_steps(inspection, shown),
        coordinators=inspection.coordinators(),
        streams=inspection.streams(),
        now_ms=now_ms,
        prefix=prefix,
        queue_names=lambda worker: _queue_names(worker, prefix),
        max_executors=MAX_EXECUTORS_SHOWN,
    )


ROUTES = [Route("/queues", show, name="queues")]


def _queue_names(worker: RqWorker, prefix: str) -> list[str]:
    """The queues of a worker, each once: RQ has a queue for each priority."""
    return list(dict.fromkeys(queue.removeprefix(prefix).partition(":")[0] for queue in worker.queues))


def _age_s(queue: RqQueue, now_ms: int) -> float | None:
    """How long the oldest job of a queue has waited."""
    return None if queue.oldest_at is None else max(now_ms - parse_iso_ms(queue.oldest_at), 0) / 1000
