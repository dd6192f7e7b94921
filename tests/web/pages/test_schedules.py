"""The page of schedules, in a real browser on real processes."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from browsers import PHONE, Tabs, axe_violations
from orchestrator.application.engine.schedules import past_slots, slot_execution_id
from orchestrator.client import Client
from processes import PatientClient, Stack
from servers.page_server import PAGE, PageServer
from worlds.documents import Json, document, step
from worlds.listed_executions import Known, seed
from worlds.redis_world import RedisWorld

FORM = {**PAGE, "Content-Type": "application/x-www-form-urlencoded"}
NAME = "weekly report/<b>"


def scheduled(cron: str = "0 9 * * 1", **inputs: Json) -> Json:
    schedule = {"cron": cron, "timezone": "Europe/Berlin", "overlap": "skip"}
    return document(step("a", fn="nothing"), name="report", schedule=schedule, inputs=inputs)


def test_a_schedule_is_paused_unpaused_and_run_now(
    processes: Stack, patient_client: PatientClient, page: Page
) -> None:
    patient_client.register(NAME, scheduled(day={"type": "string", "default": "today"}))
    schedules = patient_client.store.schedules
    page.goto("/schedules")
    row = page.get_by_role("row").filter(has_text=NAME)
    expect(row).to_contain_text("0 9 * * 1")
    expect(row.locator("time")).to_have_count(3)

    row.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_have_text("Paused.")
    expect(row).to_contain_text("none while paused")
    assert [one.is_paused for one in schedules.all()] == [True]
    row.get_by_role("button", name="Unpause").click()
    expect(page.get_by_role("status")).to_have_text("Resumed.")
    assert [one.is_paused for one in schedules.all()] == [False]

    row.get_by_role("button", name="Run").click()
    page.wait_for_url(re.compile(r"/executions/[^/]+\?notice=started"))
    [started] = patient_client.list().executions
    patient_client.wait(started.workflow_execution_id)
    assert patient_client.record(started.workflow_execution_id).inputs == {"day": "today"}
    assert started.labels == {"started_by": "run_now"}
    assert [(one.started, one.open) for one in schedules.all()] == [(0, ())]


def test_the_last_runs_are_those_of_the_last_slots_that_still_exist(world: RedisWorld, page: Page) -> None:
    client = Client(world.client, world.keys)
    client.register(NAME, scheduled("*/10 * * * *"))
    [schedule] = client.store.schedules.all()
    slots = past_slots(schedule, 5)
    ids = [slot_execution_id(NAME, at_ms) for at_ms in slots]
    runs = [Known(ids[n], slots[n], status=("failed" if n else "complete")) for n in (0, 1, 3)]
    seed(world.client, world.keys, runs)
    for one in runs:
        world.client.set(world.keys.execution(one.execution_id), one.id)

    page.goto("/schedules")

    links = page.locator(".runs a")
    expect(links).to_have_count(3)
    found = [link.get_attribute("href") or "" for link in links.all()]
    assert [one.rpartition("/")[2].replace("%3A", ":") for one in found] == [one.execution_id for one in runs]
    expect(page.locator(".runs")).to_contain_text(re.compile("complete.*failed.*failed", re.DOTALL))


@pytest.mark.parametrize("action", ["pause", "unpause", "run"])
def test_an_unknown_schedule_is_a_problem(world: RedisWorld, site: PageServer, action: str) -> None:
    Client(world.client, world.keys).register("unscheduled", document(step("a")))

    for name in ("unknown", "unscheduled", ""):
        response = site.post(f"/schedules/{action}", data={"name": name}, headers=FORM)
        assert response.status_code == 404
    assert world.client.xlen(world.keys.starts) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(world: RedisWorld, tabs: Tabs, scheme: str) -> None:
    Client(world.client, world.keys).register("report", scheduled())
    page = tabs.open(color_scheme=scheme)
    page.goto("/schedules")

    assert axe_violations(page) == []
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert page.locator("body").evaluate("body => body.scrollWidth") <= PHONE["width"]
