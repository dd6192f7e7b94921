"""A real browser for a test: the chromium of the system, driven by playwright.

A page fails its test if the browser reports an error: an exception of a script, a message `console.error`,
a violation of the Content-Security-Policy, or a file that cannot be loaded.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from worlds.waiting import PATIENCE_S

PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
OPTIONS = (
    "--no-sandbox",  # it does not start for root otherwise; it loads only pages of the test
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",  # containers have little of it
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
SERIOUS = ("serious", "critical")


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def require_chromium() -> str:
    """The path of the browser. The test is skipped where there is none, unless browser tests must run."""
    found = find_chromium()
    if found is not None:
        return found
    if os.environ.get("CI") or os.environ.get("ORCHESTRATOR_REQUIRE_CHROMIUM"):
        pytest.fail("no chromium on the PATH", pytrace=False)
    pytest.skip("no chromium on the PATH")


@dataclass(frozen=True)
class OpenBrowser:
    """The browser of a test process. Between two calls playwright leaves its event loop marked as running in
    this thread, so other tests could start none: the mark is there only while a test uses the browser."""

    browser: Browser
    loop: asyncio.AbstractEventLoop

    @contextmanager
    def use(self) -> Iterator[Browser]:
        asyncio._set_running_loop(self.loop)
        try:
            yield self.browser
        finally:
            asyncio._set_running_loop(None)


@contextmanager
def open_browser() -> Iterator[OpenBrowser]:
    """Start the browser; it takes a second."""
    program = require_chromium()
    expect.set_options(timeout=PATIENCE_S * 1000)
    playwright = sync_playwright().start()
    loop = asyncio.get_running_loop()
    try:
        browser = playwright.chromium.launch(executable_path=program, args=list(OPTIONS))
        asyncio._set_running_loop(None)
        yield OpenBrowser(browser, loop)
        asyncio._set_running_loop(loop)
        browser.close()
    finally:
        asyncio._set_running_loop(loop)
        playwright.stop()
        asyncio._set_running_loop(None)


@dataclass
class BrowserErrors:
    """What the browser reports as an error. A test that expects some takes them away with `expect`."""

    messages: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", self._note_message)
        page.on("pageerror", lambda error: self.messages.append(f"exception: {error}"))

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.messages.append(f"{message.text} ({message.location.get('url')})")

    def expect(self, text: str) -> None:
        """Take away the errors with this text; there must be one."""
        found = [message for message in self.messages if text in message]
        assert found, f"the browser reports no error with {text!r}: {self.messages}"
        self.messages = [message for message in self.messages if message not in found]


@dataclass
class Tabs:
    """Opens pages for one test, each in a context of its own, and watches them for errors."""

    browser: Browser
    base_url: str
    errors: BrowserErrors = field(default_factory=BrowserErrors)
    _contexts: ExitStack = field(default_factory=ExitStack)

    def open(self, **options: Any) -> Page:
        """A page with cookies of its own: color_scheme="dark", viewport=PHONE, java_script_enabled=False."""
        defaults: dict[str, Any] = {"base_url": self.base_url, "viewport": DESKTOP, "locale": "en-GB"}
        context = self._contexts.enter_context(self.browser.new_context(**{**defaults, **options}))
        context.set_default_timeout(PATIENCE_S * 1000)
        page = context.new_page()
        self.errors.watch(page)
        return page

    def close(self) -> None:
        self._contexts.close()


def axe_violations(page: Page) -> list[str]:
    """The serious and critical findings of axe on this page, each with the elements that it is about."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes']]}"
        for one in found
        if one["impact"] in SERIOUS
    ]
