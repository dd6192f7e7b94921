"""The page Doctor: what its checks found, the most serious first."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from orchestrator.diagnosis import Level
from orchestrator.web.instance import instance_of
from orchestrator.web.rendering import render

HEADINGS = {
    Level.PROBLEM: "Problems",
    Level.WARNING: "Warnings",
    Level.OK: "In order",
}


def show(request: Request) -> Response:
    checks = instance_of(request).run_checks()
    groups = [
        (level, text, [one for one in checks if one.level is level]) for level, text in HEADINGS.items()
    ]
    return render(request, "doctor.html", groups=[group for group in groups if group[2]], checks=checks)


ROUTES = [Route("/doctor", show, name="doctor")]
