"""The page of queues and workers, in a real browser on real processes."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from browsers import PHONE, Tabs, axe_violations
from processes import PatientClient, Stack, wait_until
from worlds.documents import document, step
from worlds.redis_world import RedisWorld


def slow(seconds: int) -> dict[str, object]:
    return document(step("frames", fn="slow_add", input={"a": 1, "b": 2, "seconds": seconds}))


def test_a_busy_worker_links_to_its_step_and_a_waiting_job_is_counted(
    processes: Stack, patient_client: PatientClient, page: Page
) -> None:
    for number in range(3):
        patient_client.start(slow(600), {}, f"render-{number}")
    page.goto("/queues")

    worker = page.get_by_role("region", name="Workers").get_by_role("row").nth(1)
    expect(worker).to_contain_text("busy")
    expect(worker).to_contain_text("frames of render-")
    expect(worker).to_contain_text("slow_add")
    queue = page.get_by_role("region", name="Queues").get_by_role("row").nth(1)
    expect(queue.get_by_role("cell").nth(2)).to_have_text("2")
    expect(queue).to_contain_text("served")
    expect(page.get_by_role("region", name="Coordinators")).to_contain_text("alive")
    expect(page.get_by_role("region", name="Streams")).to_contain_text("orchestrator:starts")
    worker.get_by_role("link").click()
    page.wait_for_url("**/executions/render-*")


def test_a_queue_without_a_worker_and_a_dead_worker_are_shown(
    processes: Stack, patient_client: PatientClient, world: RedisWorld, page: Page
) -> None:
    patient_client.start(document(step("a", fn="add", queue="gpu")), {}, "waits")
    wait_until(lambda: world.client.smembers("rq:workers"))
    processes.kill(processes.processes[-1])
    page.goto("/queues")

    expect(page.get_by_role("row").filter(has_text="gpu")).to_contain_text("no live worker")
    expect(page.get_by_role("region", name="Workers")).to_contain_text("gone")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    processes: Stack, patient_client: PatientClient, tabs: Tabs, scheme: str
) -> None:
    patient_client.start(slow(600), {}, "render")
    page = tabs.open(color_scheme=scheme)
    page.goto("/queues")
    expect(page.get_by_role("region", name="Workers")).to_contain_text("frames")

    assert axe_violations(page) == []
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert page.locator("body").evaluate("body => body.scrollWidth") <= PHONE["width"]


def test_an_empty_system_says_what_to_start(world: RedisWorld, page: Page) -> None:
    page.goto("/queues")

    expect(page.get_by_text("No worker is running")).to_be_visible()
    expect(page.get_by_text("No coordinator is running")).to_be_visible()
