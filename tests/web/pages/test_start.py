"""The page Start: forms made from declared inputs, in a real browser on real processes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browsers import PHONE, BrowserErrors, Tabs, axe_violations
from orchestrator.client import Client
from processes import PatientClient, Stack
from servers.page_server import PAGE, PageServer
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

FORM = {**PAGE, "Content-Type": "application/x-www-form-urlencoded"}
ORDER = document(
    step("reserve", fn="nothing"),
    step("ship", fn="nothing", after="reserve"),
    name="order",
    description="Ships an order.",
    inputs={
        "sku": {"type": "string", "required": True},
        "amount": {"type": "number", "default": 12.5},
        "count": {"type": "integer"},
        "express": {"type": "boolean"},
        "address": {"type": "object"},
        "tags": {"type": "array"},
        "anything": {},
    },
)
YAML = "name: pasted\ninputs: {n: {type: integer, required: true}}\nsteps:\n- {id: a, fn: nothing}\n"


def fill(page: Page, **texts: str) -> None:
    for name, text in texts.items():
        page.locator(f"[name='input.{name}']").fill(text)


def inputs_of(client: Client, page: Page) -> dict[str, Any]:
    """The inputs of the execution whose page is open."""
    page.wait_for_url(re.compile(r"/executions/[^/?]+\?notice=started"))
    execution_id = page.url.rpartition("/")[2].partition("?")[0]
    return client.record(execution_id).inputs


@pytest.fixture
def client(processes: Stack, patient_client: PatientClient) -> PatientClient:
    patient_client.register("order", ORDER)
    return patient_client


def test_a_start_by_form_with_every_type_of_input(client: PatientClient, page: Page) -> None:
    page.goto("/start")
    page.get_by_role("link", name="order", exact=True).click()
    expect(page.get_by_text("Ships an order.", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="Graph of the steps")).to_contain_text("reserve")
    fill(page, sku="A-1", count="3", address='{"city": "Rome"}', tags='["a", "b"]', anything="[1, null]")
    page.get_by_label("express").select_option("true")
    page.get_by_text("Other inputs").click()
    page.get_by_label("Inputs that the workflow does not declare").fill('{"note": "extra"}')
    page.get_by_text("Execution id, labels, group and priority").click()
    page.get_by_label("Execution id").fill("by-form")
    page.get_by_label("Labels").fill("customer=acme\n\nkind=big\n")
    page.get_by_label("Group", exact=True).fill("march")
    page.get_by_label("Priority").select_option("2")
    page.get_by_role("button", name="Start", exact=True).click()

    assert inputs_of(client, page) == {
        "sku": "A-1",
        "amount": 12.5,
        "count": 3,
        "express": True,
        "address": {"city": "Rome"},
        "tags": ["a", "b"],
        "anything": [1, None],
        "note": "extra",
    }
    record = client.record("by-form")
    assert (record.labels, record.group, record.priority) == (
        {"customer": "acme", "kind": "big"},
        "march",
        2,
    )
    client.wait("by-form")


def test_a_wrong_value_is_marked_at_its_field_and_what_was_typed_stays(
    client: PatientClient, page: Page, browser_errors: BrowserErrors
) -> None:
    page.goto("/start?workflow=order")
    fill(page, amount="twelve", count="1.5", address="[1]", tags="{", anything="plain")
    page.get_by_role("button", name="Start", exact=True).click()

    expect(page.get_by_role("alert")).to_contain_text("Nothing was started: 6 fields need another value.")
    for name, problem in {
        "sku": "this input is required",
        "amount": "write a number",
        "count": "write a whole number",
        "address": "write a JSON object",
        "tags": "write a JSON list",
        "anything": "a text needs double quotes",
    }.items():
        field = page.locator(f"[name='input.{name}']")
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_have_accessible_description(re.compile(problem))
    expect(page.locator("[name='input.amount']")).to_have_value("twelve")
    expect(page.locator("[name='input.tags']")).to_have_value("{")
    assert axe_violations(page) == []
    assert client.list().executions == []
    browser_errors.expect("422")

    fill(page, sku="A-1", amount="1", count="1", address="{}", tags="[]", anything="")
    page.get_by_role("button", name="Start", exact=True).click()
    assert inputs_of(client, page)["amount"] == 1


def test_a_form_that_is_sent_twice_starts_one_execution(client: PatientClient, site: PageServer) -> None:
    text = site.get("/start?workflow=order", headers=PAGE).text
    [form_id] = re.findall(r'name="form" value="([^"]+)"', text)
    form = {"workflow": "order", "input.sku": "A-1", "form": form_id}

    places = [site.post("/start", data=form, headers=FORM).headers["location"] for _ in range(2)]

    assert places[0].replace("started", "existing") == places[1]
    assert len(client.list().executions) == 1


def test_an_execution_fills_the_form_except_for_its_secrets(
    client: PatientClient, page: Page, browser_errors: BrowserErrors
) -> None:
    spec = document(
        step("a", fn="nothing"),
        name="paid",
        inputs={
            "text": {"type": "string"},
            "card": {"type": "object"},
            "api_token": {"type": "string", "required": True},
        },
    )
    client.register("paid", spec)
    inputs = {
        "text": "two\nlines",
        "card": {"number": 4, "password": "hunter2hunter2"},
        "api_token": "tok-12345678",
        "bell": "\x07",
        "same": "uses tok-12345678 too",
    }
    client.start("paid", inputs, "first", labels={"customer": "acme"}, group="march", priority=4)

    page.goto("/start?from=first")
    expect(page.locator("[name='input.text']")).to_have_value("two\nlines")
    expect(page.locator("[name='input.card']")).to_have_value("")
    expect(page.locator("[name='input.api_token']")).to_have_value("")
    expect(page.locator("[name='input.api_token']")).to_have_attribute("type", "password")
    expect(page.get_by_text("This value is secret. Enter it again.")).to_have_count(3)
    assert "hunter2" not in page.content()
    assert "tok-12345678" not in page.content()
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("1 field needs another value")
    browser_errors.expect("422")

    fill(page, api_token="another-token")
    page.get_by_role("button", name="Start", exact=True).click()

    assert inputs_of(client, page) == {"text": "two\nlines", "api_token": "another-token", "bell": "\x07"}
    newest = client.list().executions[0].execution_id
    record = client.record(newest)
    assert (record.labels, record.group, record.priority) == ({"customer": "acme"}, "march", 4)


def test_the_document_of_an_execution_that_is_not_registered_is_started_again(
    client: PatientClient, page: Page
) -> None:
    client.start(document(step("a", fn="nothing"), name="once"), {"n": [1]}, "first")

    page.goto("/start?from=first")
    expect(page.get_by_text("the document of that execution is started")).to_be_visible()
    page.get_by_role("button", name="Start", exact=True).click()

    assert inputs_of(client, page) == {"n": [1]}
    first, second = (client.record(one.execution_id) for one in client.list().executions)
    assert first.workflow_id == second.workflow_id


def test_a_pasted_document_is_checked_and_started(
    client: PatientClient, page: Page, browser_errors: BrowserErrors
) -> None:
    page.goto("/start")
    page.get_by_text("Start a document without registering it").click()
    page.get_by_label("Document").fill("steps:\n- {id: a, fn: nothing, depends_on: [b]}\n")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("alert")).to_contain_text("unknown_dependency")

    page.get_by_label("Document").fill(YAML)
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", name="Start pasted")).to_be_visible()
    fill(page, n="x")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_text("write a whole number")).to_be_visible()
    browser_errors.expect("422")
    fill(page, n="7")
    page.get_by_role("button", name="Start", exact=True).click()

    assert inputs_of(client, page) == {"n": 7}


def test_a_start_that_a_coordinator_rejects_says_why(
    client: PatientClient, page: Page, browser_errors: BrowserErrors
) -> None:
    client.start("order", {"sku": "x"}, "taken")
    page.goto("/start?workflow=order")
    fill(page, sku="y")
    page.get_by_text("Execution id, labels, group and priority").click()
    page.get_by_label("Execution id").fill("taken")
    page.get_by_role("button", name="Start", exact=True).click()

    expect(page.get_by_role("alert")).to_contain_text("already exists")
    expect(page.locator("[name='input.sku']")).to_have_value("y")
    browser_errors.expect("409")


@pytest.mark.parametrize(
    ("path", "form", "status"),
    [
        ("/start", {}, 400),
        ("/start", {"workflow": "unknown"}, 404),
        ("/start", {"from": "unknown"}, 404),
        ("/start", {"workflow": "order", "input.sku": "a", "labels": "x"}, 422),
        ("/start", {"workflow": "order", "input.sku": "a", "priority": "9"}, 422),
        ("/start", {"workflow": "order", "input.sku": "a", "other_inputs": "[]"}, 422),
        ("/start", {"workflow": "order", "input.sku": "a", "other_inputs": '{"sku": "b"}'}, 422),
        ("/start", {"workflow": "order", "input.sku": "a", "input.count": "9" * 5_000}, 422),
        ("/start", {"workflow": "order", "input.sku": "a", "input.tags": "[" * 100_000}, 422),
        ("/start/document", {"document": "steps: ["}, 422),
        ("/start/document", {"document": ""}, 400),
    ],
)
def test_a_wrong_form_starts_nothing(
    world: RedisWorld, site: PageServer, path: str, form: dict[str, str], status: int
) -> None:
    Client(world.client, world.keys).register("order", ORDER)

    response = site.post(path, data=form, headers=FORM)

    assert response.status_code == status, response.text
    assert world.client.xlen(world.keys.starts) == 0


def test_workflows_are_found_by_their_name(world: RedisWorld, page: Page) -> None:
    for name in ("order", "a name/with ?&#%\u202e", "other"):
        Client(world.client, world.keys).register(name, ORDER)
    page.goto("/start")
    assert page.locator("tbody tr").count() == 3

    page.get_by_label("Search").fill("NAME")
    page.get_by_role("button", name="Filter").click()
    page.locator("tbody a").click()

    expect(page.get_by_role("heading", name="Start a name/with ?&#%\\u202e")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(world: RedisWorld, tabs: Tabs, scheme: str) -> None:
    Client(world.client, world.keys).register("order", ORDER)
    page = tabs.open(color_scheme=scheme)

    for path in ("/start", "/start?workflow=order"):
        page.goto(path)
        for summary in page.locator("summary").all():
            summary.click()
        assert axe_violations(page) == []
        page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        assert page.locator("body").evaluate("body => body.scrollWidth") <= PHONE["width"]


def test_the_shown_document_has_no_secrets(world: RedisWorld, site: PageServer) -> None:
    spec = document(step("a", fn="nothing", input={"password": "hunter2hunter2"}))
    Client(world.client, world.keys).register("secretive", spec)

    text = site.get("/start?workflow=secretive", headers=PAGE).text

    assert "hunter2" not in text
    assert "&lt;redacted&gt;" in text
