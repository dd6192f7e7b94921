"""Schedules of registered workflows, by the name of their workflow."""

from __future__ import annotations

from pydantic import Field

from orchestrator.application.explain.schedule_json import schedule_as_dict
from orchestrator.client import StartOptions, StartRequest
from orchestrator.web.api.models import Body, JsonObject, Name, Reply, Time
from orchestrator.web.api.route import ACTION_PROBLEMS, START_PROBLEMS, ApiRoute, Call
from orchestrator.web.api.starts import HEADERS, Started, StartQuery, read_key, send_start
from orchestrator.web.problems import Problem

RUN_LABEL = {"started_by": "run_now"}
"""The label of an execution that was started out of turn."""
PROBLEMS = {404: "No workflow of this name has a schedule.", **ACTION_PROBLEMS}


class Schedule(Reply):
    name: str = Field(description="The name of the registered workflow.")
    cron: str
    timezone: str
    catch_up: str
    overlap: str
    paused: bool
    next: list[Time]
    last: str | None = Field(description="The execution that it started last.")
    open: list[str] = Field(description="Its executions that have not ended, unless they may overlap.")
    queued: list[Time] = Field(description="Slots that wait until an execution ends.")
    started: int
    missed: int
    skipped: int


class Schedules(Reply):
    schedules: list[Schedule]


class ScheduleBody(Body):
    schedule: Name = Field(description="The name of the registered workflow.")


class RunBody(ScheduleBody):
    inputs: JsonObject = Field({})


class Paused(Reply):
    name: str
    paused: bool


def list_schedules(call: Call) -> Schedules:
    """List the schedules, with their next slots."""
    found = call.instance.client.store.schedules.all()
    return Schedules(schedules=[Schedule.model_validate(schedule_as_dict(one)) for one in found])


def pause(call: Call, body: ScheduleBody) -> Paused:
    """Start nothing by a schedule until it is unpaused. Running executions continue."""
    call.target = body.schedule
    if not call.instance.client.store.schedules.pause(body.schedule):
        raise _unknown_schedule(body.schedule)
    return Paused(name=body.schedule, paused=True)


def unpause(call: Call, body: ScheduleBody) -> Paused:
    """Continue a paused schedule. Its `catch_up` decides about the slots that passed meanwhile."""
    call.target = body.schedule
    if not call.instance.client.store.schedules.unpause(body.schedule):
        raise _unknown_schedule(body.schedule)
    return Paused(name=body.schedule, paused=False)


def run_now(call: Call, query: StartQuery, body: RunBody) -> Started:
    """Start the workflow of a schedule now, in addition to its slots.

    It is a plain start with the label `started_by=run_now`: neither `overlap` nor the counts of the schedule
    know of it.
    """
    call.target = body.schedule
    if call.instance.client.store.schedules.find(body.schedule) is None:
        raise _unknown_schedule(body.schedule)
    options = StartOptions(labels=RUN_LABEL, idempotency_root=read_key(call))
    return send_start(call, StartRequest(body.schedule, body.inputs, None, options), query)


def _unknown_schedule(name: str) -> Problem:
    return Problem(404, "unknown_schedule", f"no workflow with a schedule is registered as {name[:200]!r}")


ROUTES = [
    ApiRoute("GET", "/schedules", list_schedules, problems={}),
    ApiRoute("POST", "/schedules/pause", pause, problems=PROBLEMS),
    ApiRoute("POST", "/schedules/unpause", unpause, problems=PROBLEMS),
    ApiRoute(
        "POST",
        "/schedules/run",
        run_now,
        status=201,
        others={200: "The execution existed before.", 202: "It was sent and not waited for."},
        problems={**START_PROBLEMS, 404: PROBLEMS[404]},
        waits=True,
        headers=HEADERS,
    ),
]
