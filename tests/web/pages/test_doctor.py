"""The page Doctor, in a real browser on real processes."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from browsers import PHONE, Tabs, axe_violations
from orchestrator.diagnosis.doctor import CHECK_NAMES
from processes import PatientClient, Stack
from worlds.documents import document, step
from worlds.redis_world import RedisWorld


def test_what_needs_attention_comes_first_with_advice(
    processes: Stack, patient_client: PatientClient, world: RedisWorld, page: Page
) -> None:
    patient_client.start(document(step("a", fn="nothing")), {}, "x")
    patient_client.wait("x")
    world.client.xadd("orchestrator:dead", {"reason": "r", "stream": "s", "entry": "1-1", "event": "{}"})
    page.goto("/doctor")

    headings = page.get_by_role("heading", level=2).all_inner_texts()
    assert headings[-1] == "In order"
    expect(page.get_by_role("region", name="Warnings")).to_contain_text("dead letters")
    expect(page.get_by_role("region", name="Warnings")).to_contain_text("orchestrator dead-letters list")
    assert page.locator("tbody tr").count() == len(CHECK_NAMES)
    page.get_by_role("link", name="Check again").click()
    expect(page.get_by_role("region", name="In order")).to_contain_text("coordinators")


def test_a_system_without_processes_has_problems(world: RedisWorld, page: Page) -> None:
    world.client.xadd(world.keys.starts, {"workflow": "x", "inputs": "{}"})
    page.goto("/doctor")

    expect(page.get_by_role("region", name="Problems")).to_contain_text("coordinators")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(world: RedisWorld, tabs: Tabs, scheme: str) -> None:
    page = tabs.open(color_scheme=scheme)
    page.goto("/doctor")

    assert axe_violations(page) == []
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert page.locator("body").evaluate("body => body.scrollWidth") <= PHONE["width"]
