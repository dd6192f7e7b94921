"""The browser of the tests shows a real page, and reports what is wrong on one."""

from __future__ import annotations

import asyncio

import pytest
from playwright.sync_api import Page, expect

from browsers import PHONE, BrowserErrors, Tabs, axe_violations
from servers.page_server import PageServer
from worlds.page_executions import ORDER, raise_error, run_execution
from worlds.redis_world import RedisWorld


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_list_shows_real_executions_and_axe_finds_nothing_serious(
    world: RedisWorld, tabs: Tabs, scheme: str
) -> None:
    run_execution(world, {**ORDER, "name": "order"}, execution_id="order-1")
    run_execution(world, {**ORDER, "name": "order"}, {"charge": raise_error}, execution_id="order-2")

    page = tabs.open(color_scheme=scheme)
    page.goto("/executions")

    row = page.get_by_role("row", name="order-1")
    expect(row).to_contain_text("complete")
    expect(page.get_by_role("row", name="order-2")).to_contain_text("failed")
    assert axe_violations(page) == []


def test_the_list_fits_a_phone_and_works_without_scripts(world: RedisWorld, tabs: Tabs) -> None:
    run_execution(world, execution_id="order-1")

    page = tabs.open(viewport=PHONE, java_script_enabled=False)
    page.goto("/executions")

    expect(page.get_by_role("row", name="order-1")).to_be_visible()
    assert page.locator("body").evaluate("body => body.scrollWidth") <= PHONE["width"]


def test_a_violation_of_the_policy_is_an_error_of_the_test(page: Page, browser_errors: BrowserErrors) -> None:
    page.goto("/executions")

    page.evaluate(
        "document.body.append(Object.assign(document.createElement('style'), {textContent: 'p {}'}))"
    )

    browser_errors.expect("Content Security Policy")


def test_an_exception_and_a_missing_file_are_errors_of_the_test(
    page: Page, browser_errors: BrowserErrors, site: PageServer
) -> None:
    page.goto("/executions")

    with page.expect_event("pageerror"), page.expect_console_message():
        page.evaluate("setTimeout(() => { throw new Error('broken script'); })")
        page.evaluate("fetch('/static/missing.js').then((found) => found.status)")

    browser_errors.expect("broken script")
    browser_errors.expect("404")


def test_axe_finds_a_field_without_a_label(page: Page) -> None:
    page.goto("/executions")

    page.evaluate("document.querySelector('main').append(document.createElement('input'))")

    assert [one.partition(":")[0] for one in axe_violations(page)] == ["label"]


def test_a_test_after_those_of_the_browser_can_start_an_event_loop_of_its_own() -> None:
    async def reply() -> str:
        return "started"

    assert asyncio.run(reply()) == "started"
