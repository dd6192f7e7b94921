"""The page of schedules: their next and last slots, and their actions.

`run now` is an ordinary start of the registered workflow with the defaults of its inputs, as by a slot.
It has the label `started_by=run_now`, and is not a slot: the schedule neither counts nor waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from orchestrator.application.engine.schedules import Schedule, past_slots, slot_execution_id, upcoming_slots
from orchestrator.application.explain.schedule_json import MAX_SLOTS
from orchestrator.application.records.events import iso
from orchestrator.client import ExecutionFilter, Summary
from orchestrator.web.actions import log_action
from orchestrator.web.api.schedules import RUN_LABEL
from orchestrator.web.forms import Form, with_form
from orchestrator.web.instance import Instance, instance_of
from orchestrator.web.problems import Problem, find_problem
from orchestrator.web.rendering import path_of, render

MAX_RUNS = 5
MAX_OPEN_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule with its next slots, and the executions of its last ones that still exist."""

    schedule: Schedule
    upcoming: list[str]
    runs: list[Summary]


def show(request: Request) -> Response:
    instance = instance_of(request)
    schedules = instance.client.store.schedules.all()
    runs = _find_runs(instance, schedules)
    rows = [
        ScheduleRow(one, [iso(at_ms) for at_ms in upcoming_slots(one, MAX_SLOTS)], runs[one.name])
        for one in schedules
    ]
    return render(request, "schedules.html", rows=rows, max_open=MAX_OPEN_SHOWN)


@with_form
def pause(request: Request, form: Form) -> Response:
    return _change(request, form, is_paused=True)


@with_form
def unpause(request: Request, form: Form) -> Response:
    return _change(request, form, is_paused=False)


@with_form
def run_now(request: Request, form: Form) -> Response:
    name = form.get("name", "")
    if instance_of(request).client.store.schedules.find(name) is None:
        log_action(request, "run now", name, "not_found")
        raise _unknown(name)
    try:
        started = instance_of(request).client.start(name, labels=RUN_LABEL)
    except Exception as error:
        problem = find_problem(error)
        log_action(request, "run now", name, problem.code if problem is not None else "internal")
        raise
    log_action(request, "run now", name, f"started {started.execution_id}")
    to = path_of(request, "execution", execution=started.execution_id, notice="started")
    return RedirectResponse(to, 303)


ROUTES = [
    Route("/schedules", show, name="schedules"),
    Route("/schedules/pause", pause, methods=["POST"], name="pause_schedule"),
    Route("/schedules/unpause", unpause, methods=["POST"], name="unpause_schedule"),
    Route("/schedules/run", run_now, methods=["POST"], name="run_schedule"),
]


def _change(request: Request, form: Form, *, is_paused: bool) -> Response:
    schedules, name = instance_of(request).client.store.schedules, form.get("name", "")
    change, word = (schedules.pause, "pause") if is_paused else (schedules.unpause, "unpause")
    if not change(name):
        log_action(request, f"{word} schedule", name, "not_found")
        raise _unknown(name)
    log_action(request, f"{word} schedule", name, "ok")
    return RedirectResponse(path_of(request, "schedules", notice=word), 303)


def _find_runs(instance: Instance, schedules: Sequence[Schedule]) -> Mapping[str, list[Summary]]:
    """The executions of the last slots of each schedule, in two round trips for all of them."""
    wanted = {
        one.name: [slot_execution_id(one.name, slot_ms) for slot_ms in past_slots(one, MAX_RUNS)]
        for one in schedules
    }
    full_ids = instance.queries.find_full_ids([id_ for ids in wanted.values() for id_ in ids])
    if not full_ids:
        return {name: [] for name in wanted}
    found = {one.execution_id: one for one in instance.listing.find(full_ids.values(), ExecutionFilter())}
    return {name: [found[one] for one in ids if one in found] for name, ids in wanted.items()}


def _unknown(name: str) -> Problem:
    return Problem(404, "not_found", f"no workflow with a schedule is registered as {name[:80]!r}")
