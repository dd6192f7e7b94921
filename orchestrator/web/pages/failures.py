"""The page of failures: the failed and retrying executions by their cause."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from orchestrator.redis_rq.queries.failures import MAX_EXECUTIONS
from orchestrator.web.execution_filters import format_times, read_filters, read_limit
from orchestrator.web.instance import instance_of
from orchestrator.web.rendering import render

MAX_READ = 10_000
"""So many failed executions, and as many steps that wait for their next attempt, are read for a page."""


def show(request: Request) -> Response:
    filters, limit = read_filters(request.query_params), read_limit(request.query_params)
    reads_all = request.query_params.get("read") == "all"
    report = instance_of(request).failures.report(filters.wanted, MAX_EXECUTIONS if reads_all else MAX_READ)
    return render(
        request,
        "failures.html",
        report=report,
        groups=report.groups[:limit],
        filters=filters,
        texts={**filters.texts, "status": []},
        times=format_times(filters.wanted),
        names=instance_of(request).queries.names(),
        is_filtered=any(filters.texts.values()),
        reads_all=reads_all,
        max_all=MAX_EXECUTIONS,
    )


ROUTES = [Route("/failures", show, name="failures")]
