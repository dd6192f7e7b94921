"""The site of the documentation: a browser finds everything in it, and needs no other host.

The packages that build it are in the extra `docs`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import expect

from browsers import Tabs, open_browser
from scripts.documentation.__main__ import build
from scripts.documentation.staging import ROOT, stage

pytestmark = pytest.mark.full


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documentation")
    command = [sys.executable, "-m", "scripts.documentation", str(folder / "source"), str(folder / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


def test_the_search_and_the_dark_mode_work_without_another_host(site: Path) -> None:
    requested: list[str] = []
    with serving(site) as url, open_browser() as browser, browser.use() as used:
        tabs = Tabs(used, url)
        page = tabs.open(color_scheme="light")
        page.on("request", lambda request: requested.append(request.url))

        page.goto("/architecture.html")
        page.get_by_role("textbox", name="Search").fill("unknown_dependency")
        page.locator(".md-search-result__link", has_text="Error codes").first.click()
        expect(page).to_have_title("Error codes - Orchestrator")

        page.emulate_media(color_scheme="dark")
        expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
        tabs.close()
        assert not tabs.errors.messages

    assert len(requested) > 5
    assert [one for one in requested if not one.startswith(url)] == []


@pytest.mark.parametrize("link", ["missing.md", "cli.md#no-such-heading", "examples/missing.yaml"])
def test_a_broken_link_fails_the_build(tmp_path: Path, link: str) -> None:
    configuration = stage(tmp_path / "source", tmp_path / "site")
    page = tmp_path / "source" / "pages" / "durability.md"
    page.write_text(f"{page.read_text(encoding='utf-8')}\n[broken]({link})\n", encoding="utf-8")

    assert build(configuration) != 0


def test_a_page_that_is_not_listed_fails_the_build(tmp_path: Path) -> None:
    configuration = stage(tmp_path / "source", tmp_path / "site")
    (tmp_path / "source" / "pages" / "forgotten.md").write_text("# Forgotten\n", encoding="utf-8")

    assert build(configuration) != 0


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "mine.txt").touch()
    command = [sys.executable, "-m", "scripts.documentation", str(tmp_path / "source"), str(site)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 2
    assert (site / "mine.txt").exists()
