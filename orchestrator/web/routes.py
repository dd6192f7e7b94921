"""Every route: its path, its methods and the function that serves it, with the name that templates use.

SHARED_ROUTES belong to the application, INSTANCE_ROUTES to each instance. The role that a request needs
follows from its method alone: see access/guard.py.
"""

from __future__ import annotations

from starlette.routing import Route

from orchestrator.web import metrics
from orchestrator.web.api import routes as api_routes
from orchestrator.web.pages import (
    bulk,
    dead_letters,
    doctor,
    execution,
    execution_actions,
    executions,
    failures,
    login,
    queues,
    schedules,
    start,
    static,
)

SHARED_ROUTES = [
    Route("/", executions.home, name="home"),
    Route("/login", login.show, name="login"),
    Route("/login", login.log_in, methods=["POST"], name="log_in"),
    Route("/logout", login.log_out, methods=["POST"], name="logout"),
    Route("/healthz", static.health, name="healthz"),
    Route("/static/{file}", static.serve, name="static"),
]

INSTANCE_ROUTES = [
    *executions.ROUTES,
    *bulk.ROUTES,
    *execution.ROUTES,
    *execution_actions.ROUTES,
    *failures.ROUTES,
    *start.ROUTES,
    *queues.ROUTES,
    *schedules.ROUTES,
    *dead_letters.ROUTES,
    *doctor.ROUTES,
    *metrics.ROUTES,
    *api_routes.ROUTES,
]
PATHS = {route.name: route.path for route in (*SHARED_ROUTES, *INSTANCE_ROUTES)}
SHARED_NAMES = frozenset(route.name for route in SHARED_ROUTES)
