"""Hostile names and values are shown as text in every list: nothing of them runs, and nothing is hidden."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from browsers import PHONE, Tabs
from orchestrator.client import Client
from servers.page_server import PAGE, PageServer
from worlds.documents import document, step
from worlds.listed_pages import HOSTILE_TEXTS
from worlds.page_executions import run_execution
from worlds.redis_world import RedisWorld

PATHS = ("/executions", "/failures", "/start", "/queues", "/schedules", "/dead-letters", "/doctor")
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f\u200b\u202a-\u202e\u2066-\u2069]")
MAX_PAGE_BYTES = 400_000


def haunt(world: RedisWorld, text: str) -> None:
    """Put a text wherever users, executors and other programs can."""

    def fail(inputs: object) -> object:
        raise ValueError(text + "x" * 1_000_000)

    client = Client(world.client, world.keys)
    label = "".join(char for char in text if char.isprintable())
    spec = document(step("a", retry=0), name=text, description=text)
    run_execution(
        world, spec, {"a": fail}, execution_id="hostile", labels=f'{{"k": "{label.replace(chr(34), "")}"}}'
    )
    schedule = {"cron": "0 0 1 1 *"}
    inputs = {text: {"type": "string", "default": text}}
    client.register(text, document(step("a"), name=text, schedule=schedule, inputs=inputs, description=text))
    event: dict[Any, Any] = {"type": text, "execution": f"w#{text}", "data": text + "y" * 1_000_000}
    world.client.xadd(world.keys.events(1), event)
    world.client.xadd(
        "orchestrator:dead", {"reason": text * 100, "stream": text, "entry": text, "event": '{"a": 1}'}
    )
    world.settle(world.coordinator("two"))
    world.client.sadd("rq:workers", f"rq:worker:{text}")
    world.client.hset(
        f"rq:worker:{text}",
        mapping={
            "queues": f"orchestrator.{text}",
            "state": text,
            "hostname": text,
            "executors": "[1]",
            "current_job": text,
        },
    )
    world.client.hset("orchestrator:sequences", text.replace(":", ""), str(2**44))
    world.client.zadd("orchestrator:coordinators", {text: 1})


@pytest.mark.parametrize("kind", HOSTILE_TEXTS)
def test_hostile_texts_are_harmless_in_every_list(world: RedisWorld, tabs: Tabs, kind: str) -> None:
    text = HOSTILE_TEXTS[kind]
    haunt(world, text)
    page = tabs.open(viewport=PHONE)
    shown = ""
    for path in PATHS:
        page.goto(path)
        expect(page).to_have_title(re.compile("orchestrator$"))
        assert HIDDEN.search(page.locator("body").inner_text()) is None, path
        assert page.locator("main script, main img, main [onerror], main [onfocus]").count() == 0
        assert page.locator("body").evaluate("body => body.scrollWidth") <= PHONE["width"], path
        shown += page.locator("body").inner_text()
    assert str(1337 * 1337) not in shown
    page.goto("/start")
    page.locator("tbody a").first.click()
    assert HIDDEN.search(page.locator("body").inner_text()) is None
    page.goto("/start?from=hostile")
    assert HIDDEN.search(page.locator("body").inner_text()) is None


def test_values_of_a_megabyte_make_no_large_page(world: RedisWorld, site: PageServer) -> None:
    haunt(world, "plain")

    sizes = {path: len(site.get(path, headers=PAGE).content) for path in PATHS}

    assert max(sizes.values()) < MAX_PAGE_BYTES, sizes
