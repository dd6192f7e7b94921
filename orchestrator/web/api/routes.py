"""Every route of the API."""

from __future__ import annotations

from orchestrator.web.api import (
    bulk,
    controls,
    dead_letters,
    executions,
    failures,
    health,
    history,
    hooks,
    payloads,
    queues,
    schedules,
    starts,
    steps,
    workflows,
)
from orchestrator.web.api.openapi import serve_document
from orchestrator.web.api.route import ROOT, ApiRoute, make_route

API_ROUTES: list[ApiRoute] = [
    route
    for module in (
        executions,
        starts,
        controls,
        bulk,
        steps,
        history,
        payloads,
        workflows,
        schedules,
        hooks,
        queues,
        dead_letters,
        failures,
        health,
    )
    for route in module.ROUTES
]

ROUTES = [
    serve_document(f"{ROOT}/openapi.json", API_ROUTES),
    *map(make_route, API_ROUTES),
]
