"""Bulk actions: what a preview shows is what is done, in a real browser on real processes."""

from __future__ import annotations

import logging
import re

import pytest
from playwright.sync_api import Page, expect

from browsers import Tabs, axe_violations
from orchestrator.application.errors import RecordNotFound
from orchestrator.web.pages import bulk
from processes import PatientClient, Stack
from servers.page_server import PAGE, PageServer
from worlds.listed_executions import START_MS, Known, seed
from worlds.listed_pages import ADD, WAIT, failing, start_and_end
from worlds.redis_world import RedisWorld

FORM = {**PAGE, "Content-Type": "application/x-www-form-urlencoded"}


def statuses(client: PatientClient, *ids: str) -> list[str]:
    return [client.status(one).value for one in ids]


def test_the_selected_ones_are_cancelled_after_a_preview(
    processes: Stack, patient_client: PatientClient, page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orchestrator.web.actions")
    for name in ("a", "b", "c"):
        patient_client.start(WAIT, {}, name)
    page.goto("/executions")
    page.get_by_label("Select a", exact=True).check()
    page.get_by_label("Select c", exact=True).check()
    page.get_by_role("button", name="Cancel…").click()

    expect(page.get_by_role("heading", name="Cancel 2 executions?")).to_be_visible()
    assert sorted(page.locator("tbody .id").all_inner_texts()) == ["a", "c"]
    assert statuses(patient_client, "a", "b", "c") == ["in_progress"] * 3
    assert axe_violations(page) == []

    page.get_by_label("Reason").fill("ordered twice")
    page.get_by_role("button", name="Cancel 2 executions").click()

    expect(page.get_by_role("heading", name="2 executions cancelled")).to_be_visible()
    assert axe_violations(page) == []
    assert statuses(patient_client, "a", "b", "c") == ["cancelled", "in_progress", "cancelled"]
    cancelled = patient_client.record("a").cancelled or {}
    assert (cancelled["reason"], cancelled["by"]) == ("ordered twice", "local")
    assert [record.getMessage() for record in caplog.records] == [
        "cancel of c by local: ok",
        "cancel of a by local: ok",
    ]


def test_all_that_match_are_deleted_but_not_those_that_match_only_later(
    processes: Stack, patient_client: PatientClient, page: Page
) -> None:
    for number in range(3):
        start_and_end(patient_client, failing("old"), f"old-{number}")
    start_and_end(patient_client, ADD, "other", inputs={"b": 1})
    page.goto("/executions?workflow=invoice")
    page.get_by_label("With").select_option("all that match the filter")
    page.get_by_role("button", name="Delete…").click()
    expect(page.get_by_role("heading", name="Permanently delete 3 executions?")).to_be_visible()

    start_and_end(patient_client, failing("new"), "new-1")
    page.get_by_role("button", name="Permanently delete 3 executions").click()

    expect(page.get_by_role("heading", name="3 executions deleted")).to_be_visible()
    assert statuses(patient_client, "new-1", "other") == ["failed", "complete"]
    for number in range(3):
        with pytest.raises(RecordNotFound):
            patient_client.record(f"old-{number}")
    page.get_by_role("link", name="Back to the list").click()
    assert page.locator("tbody .id").all_inner_texts() == ["new-1"]


def test_an_action_that_is_rejected_says_why(
    processes: Stack, patient_client: PatientClient, page: Page
) -> None:
    """One of the selected has ended, and one is deleted between the preview and the action."""
    patient_client.start(WAIT, {}, "open")
    start_and_end(patient_client, ADD, "ended", inputs={"b": 1})
    start_and_end(patient_client, failing("x"), "deleted")
    page.goto("/executions")
    page.get_by_label("Select all rows of this page").check()
    page.get_by_role("button", name="Retry…").click()
    expect(page.get_by_role("heading", name="Retry 3 executions?")).to_be_visible()
    patient_client.delete("deleted")

    page.get_by_role("button", name="Retry 3 executions").click()

    expect(page.get_by_role("heading", name="0 executions retried, 3 rejected")).to_be_visible()
    table = page.get_by_role("table")
    expect(table).to_contain_text(re.compile("in.progress"))
    expect(table).to_contain_text("complete")


def test_a_filter_selects_only_what_can_follow_the_action(
    processes: Stack, patient_client: PatientClient, page: Page
) -> None:
    patient_client.start(WAIT, {}, "open")
    start_and_end(patient_client, ADD, "complete", inputs={"b": 1})
    start_and_end(patient_client, failing("x"), "failed")

    for action, found in {"Retry": ["failed"], "Cancel": ["open"], "Delete": ["failed", "complete"]}.items():
        page.goto("/executions")
        page.get_by_label("With").select_option("all that match the filter")
        page.get_by_role("button", name=f"{action}…").click()
        assert page.locator("tbody .id").all_inner_texts() == found, action
    page.goto("/executions?status=complete")
    page.get_by_label("With").select_option("all that match the filter")
    page.get_by_role("button", name="Retry…").click()
    expect(page.get_by_text("No execution that matches the filter can be retried.")).to_be_visible()


def test_nothing_selected_is_said(world: RedisWorld, tabs: Tabs) -> None:
    seed(world.client, world.keys, [Known("x", START_MS)])
    page = tabs.open(java_script_enabled=False)
    page.goto("/executions")

    page.get_by_role("button", name="Retry…").click()

    expect(page.get_by_text("No execution is selected.")).to_be_visible()


def test_a_preview_of_many_says_that_it_takes_the_newest(
    world: RedisWorld, site: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MAX_EXECUTIONS", 30)
    seed(world.client, world.keys, (Known(f"x{n:02}", START_MS + n, status="failed") for n in range(31)))

    text = site.post("/bulk/preview", data={"action": "retry", "scope": "all"}, headers=FORM).text

    assert "Retry 30 executions?" in text
    assert "More than 30 executions match." in text
    assert "The first 20 are shown." in text
    [ids] = re.findall(r'name="ids" value="([^"]*)"', text)
    assert ids.split() == [f"w1#x{n:02}" for n in reversed(range(1, 31))]


def test_without_a_coordinator_the_result_is_unknown_and_the_rest_is_not_sent(
    world: RedisWorld, site: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "REPLY_TIMEOUT_S", 0.05)
    monkeypatch.setattr(bulk, "BATCH_SIZE", 2)
    seed(world.client, world.keys, (Known(f"x{n}", START_MS + n, status="failed") for n in range(5)))
    ids = " ".join(f"w1#x{n}" for n in range(5))

    text = site.post("/bulk", data={"action": "retry", "ids": ids}, headers=FORM).text

    assert "not known for 2 executions" in text
    assert "not sent to 3 more" in text


@pytest.mark.parametrize(
    "form",
    [
        {"action": "explode", "ids": "w1#x"},
        {"action": "retry", "ids": "without-a-workflow"},
        {"action": "retry", "ids": "w1#" + "x" * 2_000},
        {"ids": "w1#x"},
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/bulk", "/bulk/preview"])
def test_a_form_that_no_page_sends_is_rejected(
    world: RedisWorld, site: PageServer, path: str, form: dict[str, str]
) -> None:
    response = site.post(path, data={**form, "id": form.get("ids", "")}, headers=FORM)

    assert response.status_code == 400
    assert all(world.client.xlen(world.keys.events(n)) == 0 for n in range(world.keys.partitions))
