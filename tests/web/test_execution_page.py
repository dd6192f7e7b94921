"""The page of an execution in a real browser, over a real Redis: what it shows, its actions, live updates."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browsers import PHONE, BrowserErrors, Tabs, axe_violations
from orchestrator import web
from orchestrator.invocation.executors import Executor
from processes import PatientClient, Stack
from servers.page_server import PAGE, PageServer, serve
from worlds.documents import document, step
from worlds.page_executions import ORDER, raise_error, run_execution
from worlds.redis_world import RedisWorld, durable_world, running
from worlds.waiting import in_thread, wait_until

WAIT = document({"id": "ask", "wait": {"signal": "approved"}}, step("go", after="ask"), name="approval")
EVIL = "<script>document.title='broken'</script>\x1b[2J\u202e"
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}


@contextmanager
def working(world: RedisWorld, executors: Mapping[str, Executor] | None = None) -> Iterator[None]:
    """A coordinator and a worker that go on beside the block."""
    stop = threading.Event()
    client = RedisWorld(world._connect, world.keys)

    def work() -> None:
        while not stop.wait(0.02):
            client.work(executors)

    with running(world.coordinator("live", client=world.connect(), block_ms=20)), in_thread(work):
        try:
            yield
        finally:
            stop.set()
    client.close()


def status_of(page: Page) -> Any:
    return page.locator("[data-execution-status]")


@pytest.mark.parametrize("view", ["graph", "timeline", "steps", "events", "why", "record"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_any_view(world: RedisWorld, tabs: Tabs, view: str, scheme: str) -> None:
    run_execution(world, {**ORDER, "name": "order"}, {"charge": raise_error}, execution_id="x1")

    page = tabs.open(color_scheme=scheme)
    page.goto(f"/executions/x1?view={view}&step=charge")

    expect(status_of(page)).to_have_text("failed")
    expect(page.locator("#drawer")).to_contain_text("the card was declined")
    assert axe_violations(page) == []


def test_without_scripts_everything_is_shown_and_fits_a_phone(world: RedisWorld, tabs: Tabs) -> None:
    run_execution(world, {**ORDER, "name": "order"}, {"charge": raise_error}, execution_id="x1")

    page = tabs.open(viewport=PHONE, java_script_enabled=False)
    for view in ("graph", "timeline", "steps", "events", "why", "record"):
        page.goto(f"/executions/x1?view={view}&step=charge")
        expect(page.locator("#drawer")).to_contain_text("ValueError")
        assert page.locator("body").evaluate("body => body.scrollWidth") <= PHONE["width"], view


def test_the_drawer_opens_in_place_and_by_the_keyboard_alone(world: RedisWorld, page: Page) -> None:
    run_execution(world, ORDER, execution_id="x1")
    page.goto("/executions/x1")
    page.evaluate("window.isSamePage = true")

    page.locator(".graph a").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#drawer h2")).to_contain_text("reserve")
    expect(page).to_have_url(re.compile("step=reserve"))
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    page.go_back()
    expect(page.locator("#drawer h2")).to_contain_text("reserve")

    assert page.evaluate("window.isSamePage") is True


def test_an_execution_is_watched_live_to_its_end(world: RedisWorld, page: Page) -> None:
    one = world.coordinator()
    world.begin(one, ORDER, execution_id="x1")
    page.goto("/executions/x1")
    page.evaluate("window.isSamePage = true")
    node = page.locator('.node[data-step="reserve"]')
    expect(node).to_have_class(re.compile("s-queued"))

    world.work()
    one.run_once()
    expect(node).to_have_class(re.compile("s-complete"))
    world.settle(one)

    expect(status_of(page)).to_have_text("complete")
    expect(page.locator("[data-counts]")).to_have_text(re.compile(r"^\s*3 complete\s*$"))
    expect(page.locator("[data-live-state]")).to_have_text("ended")
    expect(page.locator("#summary")).to_contain_text("Delete")
    assert page.evaluate("window.isSamePage") is True


def test_a_thousand_steps_are_watched_live(
    processes: Stack, patient_client: PatientClient, page: Page
) -> None:
    spec = document(
        {"id": "root", "fn": "nothing"},
        *({"id": f"s{n}", "fn": "nothing", "depends_on": ["root"]} for n in range(999)),
    )
    patient_client.start(spec, {}, "x1", reply_timeout_s=180)
    page.goto("/executions/x1?view=timeline")
    page.evaluate("window.isSamePage = true")

    expect(status_of(page)).to_have_text("complete")
    expect(page.locator("[data-counts]")).to_have_text(re.compile(r"^\s*1,000 complete\s*$"))
    assert page.evaluate("window.isSamePage") is True
    assert page.locator(".timeline tbody tr").count() <= 300


def test_a_signal_is_sent_by_its_form_and_a_mistake_is_shown_where_it_was_typed(
    world: RedisWorld, page: Page, browser_errors: BrowserErrors
) -> None:
    with working(world):
        run_execution_live(world, WAIT, "x1")
        page.goto("/executions/x1")
        page.get_by_label("Payload, as JSON").fill('{"ok": tru')
        page.get_by_role("button", name="Send approved").click()

        field = page.get_by_label("Payload, as JSON")
        expect(field).to_have_value('{"ok": tru')
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(page.locator(".signal .error")).to_contain_text("this is not JSON")
        browser_errors.expect("status of 422")

        field.fill('{"ok": true}')
        page.get_by_role("button", name="Send approved").click()
        expect(page.locator(".notice")).to_have_text("The signal was delivered.")
        expect(status_of(page)).to_have_text("complete")


def run_execution_live(world: RedisWorld, spec: Any, execution_id: str) -> str:
    """Start an execution that the coordinator beside the test takes on."""
    entry = world.start(spec, execution_id=execution_id)
    wait_until(lambda: world.client.exists(world.keys.reply(entry)))
    return str(world.client.get(world.keys.execution(execution_id)))


def test_a_failed_execution_is_retried_and_seen_to_complete(world: RedisWorld, page: Page) -> None:
    run_execution(world, ORDER, {"charge": raise_error}, execution_id="x1")
    with working(world):
        page.goto("/executions/x1")
        page.locator("summary", has_text="Retry").click()
        page.get_by_role("textbox", name="Reason").fill("the card works again")
        page.get_by_role("button", name="Retry").click()

        expect(status_of(page)).to_have_text("complete")
        expect(page.locator('.node[data-step="ship"]')).to_have_class(re.compile("s-complete"))


def test_an_execution_is_paused_resumed_and_cancelled(world: RedisWorld, page: Page) -> None:
    with working(world):
        weid = run_execution_live(world, WAIT, "x1")
        page.goto("/executions/x1")
        page.locator("summary", has_text="Pause").click()
        page.get_by_role("textbox", name="Reason").fill("look first")
        page.get_by_role("button", name="Pause", exact=True).click()
        expect(status_of(page)).to_have_text("paused")
        expect(page.locator("#summary")).to_contain_text("by local: look first")

        page.get_by_role("button", name="Resume", exact=True).click()
        expect(status_of(page)).to_have_text("in progress")

        page.locator("summary", has_text="Cancel").click()
        page.get_by_role("button", name="Cancel", exact=True).click()
        expect(status_of(page)).to_have_text("cancelled")

        page.locator("summary", has_text="Delete").click()
        page.get_by_role("button", name="Delete").click()
        expect(page.locator(".notice")).to_have_text("Deleted.")
    assert world.client.exists(world.keys.workflow(weid)) == 0


def test_a_step_is_run_again_from_its_drawer(world: RedisWorld, page: Page) -> None:
    weid = run_execution(world, ORDER, execution_id="x1")
    with working(world):
        page.goto("/executions/x1?step=charge")
        page.get_by_text("Rerun from here", exact=True).click()
        page.get_by_role("button", name="Rerun from here charge").click()

        expect(page.locator(".notice")).to_have_text("The steps run again.")
        expect(status_of(page)).to_have_text("complete")
        wait_until(lambda: world.record(weid).status == "complete")
    assert world.record(weid).steps["charge"].run_id == 1
    assert world.record(weid).steps["reserve"].run_id == 0


def test_a_step_is_held_and_released_from_its_drawer(world: RedisWorld, page: Page) -> None:
    with working(world):
        weid = run_execution_live(world, WAIT, "x1")
        page.goto("/executions/x1?step=ask")
        page.get_by_role("button", name="Hold").click()
        expect(page.locator("#drawer [data-status]").first).to_have_text("on hold")
        page.get_by_role("button", name="Release").click()
        expect(page.locator("#drawer [data-status]").first).to_have_text("waiting")
    assert world.record(weid).steps["ask"].status == "waiting"


def test_hostile_names_and_large_values_are_harmless(world: RedisWorld, page: Page) -> None:
    spec = document(step("a", input={"x": EVIL, "y": "z" * 1_000_000}, retry=0))

    def fail(inputs: Any) -> Any:
        raise ValueError(EVIL * 5)

    run_execution(
        world,
        {**spec, "name": "<img src=x onerror=alert(1)>"},
        {"a": fail},
        execution_id="x1",
        inputs={"evil": EVIL * 15_000},
    )
    for view in ("graph", "timeline", "steps", "events", "why", "record"):
        page.goto(f"/executions/x1?view={view}&step=a")
        expect(page.locator("#drawer")).to_contain_text("<script>")
        assert page.title() == "<img src=x onerror=alert(1)> x1 · orchestrator"
        assert len(page.content()) < 200_000
        assert page.locator("main script, main img").count() == 0
        text = page.locator("main").inner_text()
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_secrets_are_shown_nowhere(world: RedisWorld, site: PageServer) -> None:
    secret = "correct-horse-battery"

    def fail(inputs: Any) -> Any:
        raise ValueError(f"cannot use {inputs['password']}")

    spec = document(step("a", input={"password": {"var": "input.password"}}, retry=0))
    run_execution(world, spec, {"a": fail}, execution_id="x1", inputs={"password": secret})

    for view in ("graph", "timeline", "steps", "events", "why", "record"):
        found = site.get(f"/executions/x1?view={view}&step=a", headers=PAGE)
        assert found.status_code == 200
        assert secret not in found.text
    assert secret not in site.get("/executions/x1/record").text


def test_ten_thousand_steps_are_drawn_as_few_nodes_that_expand(world: RedisWorld, page: Page) -> None:
    spec = document(step("root"), *(step(f"s{n}", after="root") for n in range(9_999)))
    world.begin(world.coordinator(), spec, execution_id="x1")

    page.goto("/executions/x1")
    groups = page.locator(".graph .node.group")
    before = page.locator(".graph .node").count()
    assert 0 < before <= 1_500
    groups.first.locator("xpath=..").click()
    expect(page.get_by_role("link", name="Collapse all")).to_be_visible()
    assert before < page.locator(".graph .node").count() <= 1_500
    page.goto("/executions/x1?view=steps")
    assert page.locator("tbody tr").count() == 100
    page.get_by_role("link", name="Next").click()
    expect(page.locator(".pager")).to_contain_text("101 to 200 of 10,000")


def test_live_updates_can_be_paused_and_resumed(world: RedisWorld, page: Page) -> None:
    one = world.coordinator()
    world.begin(one, ORDER, execution_id="x1")
    page.goto("/executions/x1")
    node = page.locator('.node[data-step="reserve"]')
    expect(page.locator("[data-live-state]")).to_have_text("live")

    page.get_by_role("button", name="Pause updates").click()
    expect(page.locator("[data-live-state]")).to_have_text("paused")
    wait_until(lambda: not world.client.pubsub_channels(world.keys.changed("*")))
    world.settle(one)
    expect(node).to_have_class(re.compile("s-queued"))

    page.get_by_role("button", name="Resume updates").click()
    expect(node).to_have_class(re.compile("s-complete"))
    expect(status_of(page)).to_have_text("complete")


def test_a_page_in_the_background_has_no_stream(world: RedisWorld, page: Page) -> None:
    one = world.coordinator()
    world.begin(one, ORDER, execution_id="x1")
    page.goto("/executions/x1")
    expect(page.locator("[data-live-state]")).to_have_text("live")

    hide(page, is_hidden=True)
    wait_until(lambda: not world.client.pubsub_channels(world.keys.changed("*")))
    world.settle(one)
    hide(page, is_hidden=False)

    expect(status_of(page)).to_have_text("complete")


def hide(page: Page, *, is_hidden: bool) -> None:
    """As if the user changed to another tab: a browser without windows shows every page."""
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


def test_a_page_goes_on_after_redis_was_restarted(tmp_path: Path, tabs: Tabs) -> None:
    with durable_world(tmp_path) as (world, server), serve(web.app(server.url)) as site:
        one = world.coordinator()
        world.begin(one, ORDER, execution_id="x1")
        page = tabs.open()
        page.goto(f"{site.url}/executions/x1")
        expect(page.locator("[data-live-state]")).to_have_text("live")

        server.kill()
        expect(page.locator("[data-live-state]")).to_contain_text("Redis is unavailable")
        server.start()
        world.settle(one)

        expect(status_of(page)).to_have_text("complete")
        page.goto("about:blank")


def test_a_deleted_execution_is_told(world: RedisWorld, page: Page) -> None:
    one = world.coordinator()
    weid = run_execution(world, ORDER, execution_id="x1")
    page.goto("/executions/x1")
    expect(page.locator("[data-live-state]")).to_have_text("ended")

    world.send(world.keys.events_of(weid), {"type": "control", "execution": weid, "action": "delete"})
    world.settle(one)

    expect(page.locator("[data-live-state]")).to_have_text("this execution was deleted")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/executions/nothing", 404),
        ("/executions/x1?view=nothing", 404),
        ("/executions/x1?step=nothing", 404),
        ("/executions/x1?part=nothing", 404),
        ("/executions/x1?part=step", 400),
        ("/executions/x1?view=steps&from=x", 400),
        ("/executions/x1?view=steps&from=99999999", 200),
        ("/executions/x1?execution=other&name=x&view=events&order=old&from=1", 200),
        ("/executions/x1?expand=nothing&expand=<b>", 200),
    ],
)
def test_a_wrong_path_is_a_problem_and_no_defect(
    world: RedisWorld, site: PageServer, path: str, status: int
) -> None:
    run_execution(world, ORDER, execution_id="x1")

    found = site.get(path, headers=PAGE)

    assert found.status_code == status
    assert "<b>" not in found.text.replace("<b>3</b>", "")


def test_parents_and_children_are_links(world: RedisWorld, page: Page) -> None:
    spec = document({"id": "outer", "workflow": document(step("inner"), name="inner")})
    one = world.coordinator()
    world.begin(one, spec, execution_id="x1")
    world.settle(one)

    page.goto("/executions/x1")
    page.locator("dt", has_text="Children").locator("xpath=following-sibling::dd[1]").get_by_role(
        "link"
    ).first.click()
    expect(page.locator("dt", has_text="Parent")).to_be_visible()
    page.locator("dd", has_text="step outer of").get_by_role("link").click()
    expect(page.locator("#drawer h2")).to_contain_text("outer")
