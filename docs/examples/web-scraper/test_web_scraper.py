"""Tests of the web scraper: `pytest` in this folder. The executor `http` is mocked, so nothing is called."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.testing import WorkflowTest

WORKFLOW = Path(__file__).with_name("workflow.yaml")
SITE = "http://shop.example"
Start = Callable[[int], WorkflowTest]


class Unavailable(Exception):
    """As the executor raises it for 503."""


class Rejected(Exception):
    """As the executor raises it for 404."""

    non_retryable = True


def page(inputs: dict[str, Any]) -> dict[str, Any]:
    html = f"<title> {inputs['path']} </title><a href='/'>home</a><a name='x'>"
    return {"status": 200, "url": f"{inputs['base_url']}/{inputs['path']}", "text": html}


@pytest.fixture
def start(
    workflow_test: type[WorkflowTest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], WorkflowTest]:
    monkeypatch.setenv("PAGES_DB", str(tmp_path / "pages.db"))

    def start(count: int) -> WorkflowTest:
        paths = [f"p{n}" for n in range(count)]
        return workflow_test(WORKFLOW, {"site": SITE, "paths": paths}, executors="web_scraper")

    return start


def stored(tmp_path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(tmp_path / "pages.db")) as database:
        return database.execute("SELECT url, title, links FROM pages ORDER BY url").fetchall()


def test_pages_are_fetched_parsed_and_stored(start: Start, tmp_path: Path) -> None:
    test = start(2)
    test.mock("http", page)

    assert test.run().outcome == {"stored": 2, "failed": 0}
    assert stored(tmp_path) == [(f"{SITE}/p0", "p0", 1), (f"{SITE}/p1", "p1", 1)]


def test_a_page_that_is_gone_is_asked_for_once(start: Start) -> None:
    test = start(2)
    http = test.mock("http", [Rejected("404"), page({"base_url": SITE, "path": "p1"})])

    test.run()

    assert test.outcome == {"stored": 1, "failed": 1}
    assert len(http.calls) == 2


def test_a_busy_site_is_asked_later_and_later(start: Start) -> None:
    test = start(1)
    answers = iter([Unavailable("503"), Unavailable("503"), None])

    def busy(inputs: dict[str, Any]) -> dict[str, Any]:
        answer = next(answers)
        if answer is not None:
            raise answer
        return page(inputs)

    http = test.mock("http", busy)

    test.run(skip_waits=True)

    first, second, third = (call.at for call in http.calls)
    assert third - second > second - first
    assert test.outcome == {"stored": 1, "failed": 0}


def test_a_site_that_is_down_stores_nothing(start: Start) -> None:
    test = start(3)
    test.mock("http", Unavailable("503"))

    test.run(skip_waits=True)

    assert test.executed("fetch") == 18
    assert test.outcome == {"stored": 0, "failed": 3}


def test_two_requests_at_a_time(start: Start) -> None:
    test = start(5)
    test.mock("http", page, takes="2s")

    test.run()
    assert test.executed("fetch") == 2

    test.skip("2s")
    assert test.executed("fetch") == 4


def test_of_two_executions_for_one_site_one_fetches(workflow_test: type[WorkflowTest], start: Start) -> None:
    def scrape(site: str) -> dict[str, Any]:
        return {"workflow": "web-scraper", "input": {"site": site, "paths": ["p0", "p1"]}}

    steps = {"first": SITE, "second": SITE, "other": "http://other.example"}
    test = workflow_test(
        {"steps": [{"id": step, **scrape(site)} for step, site in steps.items()]},
        executors="web_scraper",
        workflows={"web-scraper": WORKFLOW},
    )
    http = test.mock("http", page, takes="2s")

    test.run()

    assert f"second/fetch: a slot of the concurrency key 'site-{SITE}'" in test.waits_for
    assert [call["base_url"] for call in http.calls] == [SITE, SITE, *["http://other.example"] * 2]

    test.skip("5s")

    assert test.status == "complete"
    assert len(http.calls) == 6


def test_a_killed_worker_stores_the_pages_once(start: Start, tmp_path: Path) -> None:
    test = start(2)
    test.mock("http", page)
    test.kill("worker.result", step="store")

    test.run()

    assert test.executed("store") == 2
    assert len(stored(tmp_path)) == 2
