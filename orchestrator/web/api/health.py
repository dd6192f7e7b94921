"""Health: whether processes respond, and all that the doctor checks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from orchestrator.diagnosis import Level, ProcessFilter
from orchestrator.diagnosis import health as check_health
from orchestrator.diagnosis.health import ProcessKind
from orchestrator.web.api.models import Query, Reply
from orchestrator.web.api.route import ApiRoute, Call


class HealthQuery(Query):
    process: ProcessKind = Field("coordinator", description="Which processes; all of them must respond.")
    name: str | None = Field(None, description="Only processes whose name begins with this.")
    max_age_ms: Annotated[int, Field(ge=1, le=86_400_000)] = Field(
        10_000, description="The longest time since the last sign of life."
    )


class Pulse(Reply):
    name: str
    late_ms: int
    is_healthy: bool


class Health(Reply):
    process: str
    is_healthy: bool
    words: str
    pulses: list[Pulse]


class CheckResult(Reply):
    name: str
    level: Level
    found: str
    advice: str
    numbers: dict[str, float]


class Doctor(Reply):
    ok: bool = Field(description="Whether no check found a problem. There may be warnings.")
    checks: list[CheckResult]


def get_health(call: Call, query: HealthQuery) -> Health:
    """Check that processes respond, on all hosts, as `orchestrator health` does. The status is 503 if not."""
    process_filter = ProcessFilter(None, query.name)
    found = check_health(
        call.instance.redis, call.instance.keys, query.process, process_filter, query.max_age_ms
    )
    if not found.is_healthy:
        call.status = 503
    return Health.model_validate(found.as_dict())


def get_doctor(call: Call) -> Doctor:
    """Check Redis, coordinators, streams, queues and workers, as `orchestrator doctor` does."""
    checks = [
        CheckResult(
            name=one.name,
            level=one.level,
            found=one.found,
            advice=one.advice,
            numbers=dict(one.numbers),
        )
        for one in call.instance.run_checks()
    ]
    return Doctor(ok=all(one.level is not Level.PROBLEM for one in checks), checks=checks)


ROUTES = [
    ApiRoute(
        "GET",
        "/health",
        get_health,
        others={503: "A process does not respond, or there is none."},
        problems={400: "A parameter is wrong."},
    ),
    ApiRoute("GET", "/doctor", get_doctor, problems={}),
]
