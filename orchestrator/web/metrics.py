"""The metrics for Prometheus."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from orchestrator.metrics.reader import CONTENT_TYPE
from orchestrator.web.instance import instance_of


def serve(request: Request) -> Response:
    """All metrics of the instance; Starlette runs this in a thread."""
    return Response(instance_of(request).metrics.render(), headers={"Content-Type": CONTENT_TYPE})


ROUTES = [Route("/metrics", serve, name="metrics")]
