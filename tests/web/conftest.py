"""What tests of the page may ask for: the application on a port, and a browser that reports every error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from browsers import BrowserErrors, OpenBrowser, Tabs, open_browser
from orchestrator import web
from processes import PatientClient, Stack, stack
from servers.page_server import PageServer, Serve, serve


@pytest.fixture
def serve_page(redis_url: str) -> Iterator[Serve]:
    """Serves the application with these options of web.app(); by default it shows our own Redis."""
    with ExitStack() as servers:

        def start(**options: Any) -> PageServer:
            if not options.keys() & {"redis_url", "instances", "settings"}:
                options["redis_url"] = redis_url
            return servers.enter_context(serve(web.app(**options)))

        yield start


@pytest.fixture
def site(serve_page: Serve) -> PageServer:
    """The page of our own Redis, without users: every request may read and operate."""
    return serve_page()


@pytest.fixture(scope="session")
def browser() -> Iterator[OpenBrowser]:
    """One browser for each test process."""
    with open_browser() as browser:
        yield browser


@pytest.fixture
def tabs(browser: OpenBrowser, site: PageServer) -> Iterator[Tabs]:
    """Opens pages of `site`, for a test with several; an error in any of them fails the test."""
    with browser.use() as used:
        tabs = Tabs(used, site.url)
        yield tabs
        tabs.close()
    assert not tabs.errors.messages, tabs.errors.messages


@pytest.fixture
def page(tabs: Tabs) -> Page:
    """A page of the browser; its paths are those of `site`. An error in it fails the test."""
    return tabs.open()


@pytest.fixture
def browser_errors(tabs: Tabs) -> BrowserErrors:
    """The errors that the browser has reported, for a test that expects some."""
    return tabs.errors


@pytest.fixture
def processes(redis_url: str, tmp_path: Path) -> Iterator[Stack]:
    """A real coordinator and a real worker on our own Redis, with the executors of step_functions.py."""
    with stack(redis_url, "step_functions", tmp_path / "processes") as processes:
        processes.coordinator()
        processes.worker()
        yield processes


@pytest.fixture
def patient_client(redis_url: str) -> PatientClient:
    """A client that waits as long as processes need that have just been started."""
    return PatientClient(redis_url)
