"""The page of dead letters, in a real browser on real processes."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browsers import PHONE, Tabs, axe_violations
from orchestrator.redis_rq import dead_letters
from orchestrator.redis_rq.dead_letters import DeadLetters
from processes import PatientClient, Stack, wait_until
from servers.page_server import PAGE, PageServer
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

FORM = {**PAGE, "Content-Type": "application/x-www-form-urlencoded"}
KEY = "orchestrator:dead"


def bury(world: RedisWorld, reason: str, stream: str = "orchestrator:starts", event: str = "{}") -> str:
    fields: dict[Any, Any] = {"reason": reason, "stream": stream, "entry": "1-1", "event": event, "cut": "[]"}
    return str(world.client.xadd(KEY, fields))


def start(workflow: str) -> str:
    return f'{{"workflow": "{workflow}", "inputs": "{{}}", "execution_id": "resent-1"}}'


def test_a_letter_is_sent_again_when_its_cause_is_gone(
    processes: Stack, patient_client: PatientClient, world: RedisWorld, page: Page
) -> None:
    world.client.xadd(
        world.keys.starts, {"workflow": "late", "inputs": '{"password": "hunter2"}', "execution_id": "late-1"}
    )
    wait_until(lambda: world.client.xlen(KEY) == 1)
    page.goto("/dead-letters")
    row = page.locator("tbody tr")
    expect(row).to_contain_text("no workflow is registered as 'late'")
    row.locator("summary").click()
    expect(row).to_contain_text("late-1")
    assert "hunter2" not in page.content()

    patient_client.register("late", document(step("a", fn="nothing")))
    page.locator("tbody input").check()
    page.get_by_role("button", name="Send again…").click()
    expect(page.get_by_role("heading", name="Send again 1 dead letter?")).to_be_visible()
    assert axe_violations(page) == []
    page.get_by_role("button", name="Send again 1 letter").click()

    expect(page.get_by_role("status").first).to_have_text("The event was sent again.")
    wait_until(lambda: world.client.exists(world.keys.execution("late-1")))
    patient_client.wait("late-1")
    assert patient_client.record("late-1").inputs == {"password": "hunter2"}
    expect(page.get_by_text("There are none.")).to_be_visible()


def test_all_letters_with_a_reason_are_dropped_but_not_those_that_come_later(
    world: RedisWorld, page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orchestrator.web.actions")
    old = [bury(world, f"no workflow {n}") for n in range(25)]
    other = bury(world, "the disk is full")
    page.goto("/dead-letters")
    page.get_by_label("Reason contains").fill("NO workflow")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).to_have_count(25)
    page.get_by_label("With").select_option("all with this reason")
    page.get_by_role("button", name="Drop…").click()
    expect(page.get_by_role("heading", name="Permanently drop 25 dead letters?")).to_be_visible()
    expect(page.get_by_text("The first 20 are shown.")).to_be_visible()

    later = bury(world, "no workflow 99")
    page.get_by_role("button", name="Permanently drop 25 letters").click()

    expect(page.get_by_role("heading", name="25 letters dropped")).to_be_visible()
    assert [one.entry for one in DeadLetters(world.client).newest()][::-1] == [other, later]
    assert len(caplog.records) == 25
    assert caplog.records[0].getMessage() == f"drop dead letter of {old[-1]} by local: ok"


def test_what_cannot_be_sent_again_says_why_and_stays(world: RedisWorld, page: Page) -> None:
    bury(world, "one", stream="elsewhere", event='{"type": "x"}')
    bury(world, "two", event="no JSON")
    page.goto("/dead-letters")
    expect(page.get_by_text("no coordinator reads its stream 'elsewhere'")).to_be_visible()
    page.get_by_label("Select all rows of this page").check()
    page.get_by_role("button", name="Send again…").click()
    expect(page.get_by_text("2 events cannot be sent again")).to_be_visible()
    page.get_by_role("button", name="Send again 2 letters").click()

    expect(page.get_by_role("heading", name="0 letters sent again, 2 not")).to_be_visible()
    assert world.client.xlen(KEY) == 2


def test_letters_have_pages(world: RedisWorld, page: Page) -> None:
    entries = [bury(world, f"r{n}") for n in range(120)]
    page.goto("/dead-letters?reason=r")
    found = []
    while True:
        boxes = page.locator("tbody input[type=checkbox]")
        found += [box.get_attribute("value") for box in boxes.all()]
        older = page.get_by_role("link", name="Older letters")
        if older.count() == 0:
            break
        older.click()

    assert found == entries[::-1]
    page.get_by_role("link", name="Newest letters").click()
    assert page.url.endswith("/dead-letters?reason=r")


def test_a_page_reads_a_bounded_number_of_letters(
    world: RedisWorld, site: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_LETTERS_READ", 100)
    for n in range(150):
        bury(world, "wanted" if n == 0 else "other")

    text = site.get("/dead-letters?reason=wanted", headers=PAGE).text

    assert "None of the letters that were read for this page has this reason." in text
    assert "Older letters" in text


@pytest.mark.parametrize("query", ["after=x", "after=1-x", "after=1", "limit=9999", "after=1-1-1"])
def test_a_wrong_query_is_a_problem(world: RedisWorld, site: PageServer, query: str) -> None:
    assert site.get(f"/dead-letters?{query}", headers=PAGE).status_code == 400


@pytest.mark.parametrize("path", ["/dead-letters/run", "/dead-letters/preview"])
def test_an_unknown_action_is_rejected(world: RedisWorld, site: PageServer, path: str) -> None:
    entry = bury(world, "x")

    response = site.post(path, data={"action": "burn", "entries": entry}, headers=FORM)

    assert response.status_code == 400
    assert world.client.xlen(KEY) == 1


def test_a_letter_that_is_gone_or_was_never_there_is_said(world: RedisWorld, site: PageServer) -> None:
    form = {"action": "drop", "entries": "1-1 nonsense +"}

    text = site.post("/dead-letters/run", data=form, headers=FORM).text

    assert "0 letters dropped, 3 not" in text
    assert "it was sent again or dropped meanwhile" in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(world: RedisWorld, tabs: Tabs, scheme: str) -> None:
    bury(world, "no workflow", event=start("x"))
    page = tabs.open(color_scheme=scheme)
    page.goto("/dead-letters")
    page.locator("summary").click()

    assert axe_violations(page) == []
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert page.locator("body").evaluate("body => body.scrollWidth") <= PHONE["width"]
