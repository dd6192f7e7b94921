"""The page of executions, in a real browser on real processes."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from browsers import PHONE, Tabs, axe_violations
from processes import PatientClient, Stack
from servers.page_server import PAGE, PageServer
from worlds.listed_executions import START_MS, Known, seed
from worlds.listed_pages import ADD, WAIT, failing, start_and_end
from worlds.redis_world import RedisWorld
from worlds.waiting import wait_until


def ids(page: Page) -> list[str]:
    return page.locator("tbody tr .id").all_inner_texts()


@pytest.fixture
def some(processes: Stack, patient_client: PatientClient) -> PatientClient:
    """Three executions: complete, failed, and waiting."""
    labels = {"customer": "acme"}
    start_and_end(patient_client, ADD, "sum-1", inputs={"b": 2}, labels=labels, group="march")
    start_and_end(patient_client, failing("the ledger is closed"), "invoice-1", labels=labels)
    patient_client.start(WAIT, {}, "approval-1")
    return patient_client


def test_a_row_shows_the_error_of_a_failed_execution_and_the_step_of_an_open_one(
    some: PatientClient, page: Page
) -> None:
    page.goto("/executions")

    assert ids(page) == ["approval-1", "invoice-1", "sum-1"]
    expect(page.get_by_role("row", name="approval-1")).to_contain_text("review (waiting)")
    failed = page.get_by_role("row", name="invoice-1")
    expect(failed).to_contain_text("post")
    expect(failed).to_contain_text("ValueError: the ledger is closed")
    counts = page.get_by_role("list", name="Executions by status")
    expect(counts).to_contain_text(re.compile("1 in progress.*1 complete.*1 failed", re.DOTALL))


def test_statuses_are_toggled_and_every_filter_is_in_the_url(some: PatientClient, page: Page) -> None:
    page.goto("/executions?label=customer%3Dacme")
    assert ids(page) == ["invoice-1", "sum-1"]

    page.get_by_role("link", name="1 failed").click()
    assert ids(page) == ["invoice-1"]
    page.get_by_role("link", name="1 complete").click()
    assert ids(page) == ["invoice-1", "sum-1"]
    page.get_by_role("link", name="1 failed").click()
    assert ids(page) == ["sum-1"]

    assert page.url.endswith("?status=complete&label=customer%3Dacme")
    page.get_by_label("Search").fill("MARCH")
    page.get_by_role("button", name="Filter").click()
    assert ids(page) == ["sum-1"]
    for part in ("status=complete", "label=customer%3Dacme", "text=MARCH"):
        assert part in page.url
    page.get_by_role("link", name="Clear filters").click()
    assert len(ids(page)) == 3


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("workflow=sums", ["sum-1"]),
        ("group=march", ["sum-1"]),
        ("since=2000-01-01T00:00", ["approval-1", "invoice-1", "sum-1"]),
        ("until=2000-01-01T00:00", []),
        ("status=failed&status=complete", ["invoice-1", "sum-1"]),
        ("text=APPROVAL", ["approval-1"]),
        ("failure=nothing", []),
    ],
)
def test_each_filter_selects(some: PatientClient, page: Page, query: str, found: list[str]) -> None:
    page.goto(f"/executions?{query}")

    assert ids(page) == found


def test_the_times_of_a_filter_stay_in_the_form(page: Page) -> None:
    page.goto("/executions?since=2026-03-01T10:00%2B02:00&until=2026-03-01T09:00:30")

    expect(page.get_by_label("Since (UTC)")).to_have_value("2026-03-01T08:00")
    expect(page.get_by_label("Until (UTC)")).to_have_value("2026-03-01T09:00:30")
    expect(page.locator("details.filter-more")).to_have_attribute("open", "")


@pytest.mark.parametrize("query", ["status=asleep", "label=x", "since=soon", "limit=0", "after=nonsense"])
def test_a_wrong_filter_is_a_problem_with_its_reason(site: PageServer, query: str) -> None:
    response = site.get(f"/executions?{query}", headers=PAGE)

    assert response.status_code == 400
    assert "Bad request" in response.text


def test_pages_lead_on_to_the_oldest_and_back_to_the_newest(world: RedisWorld, page: Page) -> None:
    seed(world.client, world.keys, (Known(f"x{n:03}", START_MS + n, name="order") for n in range(120)))
    newest_first = [f"x{n:03}" for n in reversed(range(120))]

    page.goto("/executions?workflow=order")
    found = [ids(page)]
    for _ in range(2):
        page.get_by_role("link", name="Older executions").click()
        found.append(ids(page))

    assert [one for ids_of_page in found for one in ids_of_page] == newest_first
    expect(page.get_by_role("link", name="Older executions")).to_have_count(0)
    page.get_by_role("link", name="Newest executions").click()
    assert ids(page) == newest_first[:50]
    assert page.url.endswith("/executions?workflow=order")


def test_the_list_updates_by_itself_and_keeps_selection_and_focus(
    processes: Stack, patient_client: PatientClient, page: Page
) -> None:
    patient_client.start(WAIT, {}, "first")
    page.goto("/executions")
    page.get_by_label("Select first").check()
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="first")).to_be_focused()

    start_and_end(patient_client, ADD, "second", inputs={"b": 1})

    expect(page.get_by_role("row", name="second")).to_contain_text("complete")
    expect(page.get_by_label("Select first")).to_be_checked()
    expect(page.get_by_label("Select second")).not_to_be_checked()
    expect(page.get_by_role("link", name="first")).to_be_focused()
    expect(page.locator("tr.selected .id")).to_have_text("first")
    expect(page.get_by_role("status")).to_have_text("1 selected")


def test_updates_can_be_paused_and_stay_so(world: RedisWorld, page: Page) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.resource_type))
    page.goto("/executions")
    page.get_by_label("Update every 5 s").uncheck()
    page.reload()

    expect(page.get_by_label("Update every 5 s")).not_to_be_checked()
    page.clock.install()
    page.reload()
    requests.clear()
    page.clock.run_for(20_000)
    assert "fetch" not in requests
    page.get_by_label("Update every 5 s").check()
    page.clock.run_for(6_000)
    wait_until(lambda: "fetch" in requests)


def test_a_page_that_cannot_update_says_so_and_goes_on(world: RedisWorld, tabs: Tabs) -> None:
    page = tabs.open()
    page.goto("/executions")
    page.route("**/executions", lambda route: route.abort())
    expect(page.get_by_text("Cannot update; trying again")).to_be_visible()

    page.unroute("**/executions")

    expect(page.get_by_text("Update every 5 s")).to_be_visible()
    tabs.errors.expect("ERR_FAILED")


def test_the_keyboard_moves_selects_opens_and_helps(some: PatientClient, page: Page) -> None:
    page.goto("/executions")
    page.keyboard.press("/")
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.press("j")
    expect(page.get_by_label("Search")).to_have_value("j")

    page.get_by_role("heading", name="Executions").click()
    for key in "jjkjx":
        page.keyboard.press(key)
    expect(page.get_by_role("link", name="invoice-1")).to_be_focused()
    expect(page.get_by_label("Select invoice-1")).to_be_checked()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/executions/sum-1")


def test_times_are_in_the_zone_of_the_viewer_and_utc_on_hover(world: RedisWorld, tabs: Tabs) -> None:
    seed(world.client, world.keys, [Known("x", 1_790_000_000_000)])

    page = tabs.open(timezone_id="Asia/Tokyo")
    page.goto("/executions")

    time = page.locator("tbody time").first
    expect(time).to_have_attribute("title", "2026-09-21 14:13:20 UTC")
    expect(time).to_have_text("21/09/2026, 23:13:20")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(some: PatientClient, tabs: Tabs, scheme: str) -> None:
    page = tabs.open(color_scheme=scheme)
    page.goto("/executions?status=failed&status=complete&status=in_progress&text=1")

    assert axe_violations(page) == []


def test_it_fits_a_phone(some: PatientClient, tabs: Tabs) -> None:
    page = tabs.open(viewport=PHONE)
    page.goto("/executions")

    assert page.locator("body").evaluate("body => body.scrollWidth") <= PHONE["width"]
    page.get_by_role("link", name="Doctor").click()
    page.wait_for_url("**/doctor")


def test_without_scripts_it_lists_filters_and_shows_times(some: PatientClient, tabs: Tabs) -> None:
    page = tabs.open(java_script_enabled=False)
    page.goto("/executions")
    page.get_by_label("Search").fill("invoice")
    page.get_by_role("button", name="Filter").click()

    assert ids(page) == ["invoice-1"]
    expect(page.locator("tbody time").first).to_contain_text("UTC")


def test_a_user_who_only_reads_sees_no_actions(world: RedisWorld, serve_page: object) -> None:
    seed(world.client, world.keys, [Known("x", START_MS)])
    reading = serve_page(read_only=True)  # type: ignore[operator]

    text = reading.get("/executions", headers=PAGE).text

    assert ">x</a>" in text
    assert 'type="checkbox"' not in text
    assert "Retry" not in text
