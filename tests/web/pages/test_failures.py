"""The page of failures, in a real browser on real processes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browsers import PHONE, Tabs, axe_violations
from orchestrator.web.pages import failures
from processes import PatientClient, Stack
from servers.page_server import PAGE, PageServer
from worlds.documents import document, step
from worlds.listed_pages import failing, start_and_end
from worlds.redis_world import RedisWorld

FAILS_ONCE = document(
    step("post", fn="fail_until", retry=0, input={"file": {"var": "input.file"}}), name="invoice"
)
RETRYING = document(
    step(
        "pull", fn="fail", input={"message": "busy"}, retry={"max_retries": 3, "initial_delay_ms": 3_600_000}
    ),
    name="sync",
)


def test_a_failed_execution_is_found_by_its_cause_retried_and_completes(
    processes: Stack, patient_client: PatientClient, page: Page, tmp_path: Path
) -> None:
    """Its executor fails until a file exists, as after an outage of another system."""
    ready = tmp_path / "ready"
    for number in range(3):
        start_and_end(patient_client, FAILS_ONCE, f"invoice-{number}", inputs={"file": str(ready)})
    start_and_end(patient_client, failing("another cause"), "other")
    page.goto("/failures")
    cause = page.get_by_role("row").filter(has_text="the ledger is closed")
    expect(cause).to_contain_text("invoice")
    cause.get_by_role("link", name="3", exact=True).click()
    assert page.locator("tbody .id").all_inner_texts() == ["invoice-2", "invoice-1", "invoice-0"]

    ready.touch()
    page.goto("/failures")
    page.get_by_role("row").filter(has_text="the ledger is closed").get_by_role(
        "button", name="Retry"
    ).click()
    expect(page.get_by_role("heading", name="Retry 3 executions?")).to_be_visible()
    page.get_by_role("button", name="Retry 3 executions").click()

    expect(page.get_by_role("heading", name="3 executions retried")).to_be_visible()
    page.goto("/executions?workflow=invoice")
    for number in range(3):
        expect(page.get_by_role("row", name=f"invoice-{number}")).to_contain_text("complete")
    expect(page.get_by_role("row", name="other")).to_contain_text("failed")
    page.goto("/failures")
    assert page.locator("tbody tr").count() == 1


def test_a_step_that_will_be_tried_again_is_listed_and_its_executions_are_cancelled(
    processes: Stack, patient_client: PatientClient, page: Page
) -> None:
    for number in range(2):
        patient_client.start(RETRYING, {}, f"sync-{number}")
    page.goto("/failures")
    link = page.get_by_role("row").filter(has_text="busy").get_by_role("link", name="2", exact=True)
    while link.count() == 0:
        page.reload()
    link.click()
    assert sorted(page.locator("tbody .id").all_inner_texts()) == ["sync-0", "sync-1"]

    page.goto("/failures")
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel 2 executions").click()

    expect(page.get_by_role("heading", name="2 executions cancelled")).to_be_visible()
    page.goto("/failures")
    expect(page.get_by_text("Nothing has failed")).to_be_visible()


def test_the_failed_executions_of_a_cause_are_deleted(
    processes: Stack, patient_client: PatientClient, page: Page
) -> None:
    start_and_end(patient_client, failing("the first cause"), "one")
    start_and_end(patient_client, failing("the second cause"), "two")
    page.goto("/failures")
    page.get_by_role("row").filter(has_text="the second cause").get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Permanently delete 1 execution").click()

    expect(page.get_by_role("heading", name="1 execution deleted")).to_be_visible()
    page.goto("/executions")
    assert page.locator("tbody .id").all_inner_texts() == ["one"]


def test_a_filter_limits_the_failures_and_their_links(
    processes: Stack, patient_client: PatientClient, page: Page
) -> None:
    start_and_end(patient_client, failing("same", "invoice"), "in-march", group="march")
    start_and_end(patient_client, failing("same", "invoice"), "in-april", group="april")

    page.goto("/failures?group=march")
    page.get_by_role("row").filter(has_text="same").get_by_role("link", name="1", exact=True).click()

    assert page.locator("tbody .id").all_inner_texts() == ["in-march"]
    assert "group=march" in page.url


def test_a_report_that_is_not_complete_says_so_and_reads_more(
    processes: Stack,
    patient_client: PatientClient,
    site: PageServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failures, "MAX_READ", 2)
    for number in range(3):
        start_and_end(patient_client, failing("x"), f"x-{number}")

    first = site.get("/failures", headers=PAGE).text
    assert "Only the newest 2 executions were read." in first
    assert re.search(r'href="/failures\?read=all"', first)
    rest = site.get("/failures?read=all", headers=PAGE).text
    assert "Only the newest" not in rest


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    processes: Stack, patient_client: PatientClient, tabs: Tabs, scheme: str
) -> None:
    start_and_end(patient_client, failing("x"), "x")
    page = tabs.open(color_scheme=scheme)
    page.goto("/failures?group=&text=x")

    assert axe_violations(page) == []
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert page.locator("body").evaluate("body => body.scrollWidth") <= PHONE["width"]


def test_without_failures_the_page_says_so(world: RedisWorld, page: Page) -> None:
    page.goto("/failures")

    expect(page.get_by_text("Nothing has failed")).to_be_visible()
