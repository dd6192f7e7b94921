"""The page about calls by HTTP does what it says, against a shop that this test opens."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.pages import blocks, reading
from orchestrator_executors import http as module
from orchestrator_executors import http_settings, network
from orchestrator_executors.http import OUTPUT_HEADERS, NotAnswered, Rejected, Unavailable
from orchestrator_executors.http_reading import TEXT_CONTENT_TYPES
from orchestrator_executors.http_settings import OVERRIDABLE_SETTINGS, HttpConfiguration, HttpInputs
from orchestrator_executors.settings import Refused
from servers.web import Asked, Reply, said, site

ROOT = Path(__file__).parents[2]
PAGE = "docs/http.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
SHOP = "127.0.0.1:8080"


class Shop:
    """As the page has it: articles, an old address of theirs, and payments after lunch."""

    def __init__(self) -> None:
        self.is_closed = True

    def __call__(self, asked: Asked) -> Reply:
        path = asked.path.partition("?")[0]
        if path == "/old/17":
            return Reply(302, headers={"Location": "/articles/17"})
        if path == "/articles/17":
            return said({"price": 20}, ETag='"v1"')
        if asked.headers.get("authorization") != "Bearer t0k3n":
            return Reply(401)
        if self.is_closed:
            self.is_closed = False
            return Reply(503, b"closed for lunch")
        return said({"number": "p-1", "key": asked.headers["idempotency-key"]}, status=201)


@pytest.mark.slow
def test_everything_on_the_page_about_calls_works(tmp_path: Path) -> None:
    with site(Shop()) as shop, reading(tmp_path, PAGE) as reader:
        for block in blocks(TEXT):
            reader.do(replace(block, text=block.text.replace(SHOP, f"127.0.0.1:{shop.port}")))

    assert [asked.path for asked in shop.asked] == [
        "/articles/17?currency=EUR",
        "/payments",
        "/payments",
        "/old/17?key=k-17",
        "/articles/17",
    ]


def test_every_block_of_it_is_tested() -> None:
    assert len(blocks(TEXT)) == TEXT.count("\n```") / 2
    assert not [block.line for block in blocks(TEXT) if not block.treatment]


def table(title: str) -> dict[str, str]:
    """The rows of the table under a title, by their first column."""
    part = TEXT.partition(title)[2].partition("\n\n")[2]
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", part[: part.index("\n\n", part.index("|---"))], re.M)
    return dict(rows)


def test_the_page_names_every_setting_and_its_default() -> None:
    rows = table("The shop is out of order at first")
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}

    assert named == HttpInputs.__annotations__.keys() - {"payload"}
    for name in HttpConfiguration.__annotations__.keys() - named | {"payload"}:
        assert f"`{name}" in TEXT
    assert (http_settings.TIMEOUT_S, http_settings.CONNECT_TIMEOUT_S) == (30, 5)
    assert rows["`max_response_bytes`"].endswith(f"| {http_settings.DEFAULT_RESPONSE_BYTES:,}")
    assert rows["`max_redirects`"].endswith(
        f"at most {http_settings.MAX_REDIRECTS} | {http_settings.DEFAULT_REDIRECTS}"
    )
    changeable = TEXT.partition("they may change ")[2].partition(";")[0]
    assert set(re.findall(r"`(\w+)`", changeable)) == OVERRIDABLE_SETTINGS


def test_the_page_names_the_settings_of_the_worker_and_the_output() -> None:
    assert f"`{module.HOSTS_VARIABLE}`" in TEXT
    most = table("such as 127.0.0.1\n```")[f"`{http_settings.BYTES_VARIABLE}`"]
    assert most.endswith(f"{http_settings.MAX_RESPONSE_BYTES:,} if not set")
    headers = table("## The output")["`headers`"]
    assert re.findall(r"`([\w-]+)`", headers) == list(OUTPUT_HEADERS)
    assert len(TEXT_CONTENT_TYPES) == 5, "the page lists them in words"
    assert f"the first {network.MAX_RESPONSE_EXCERPT} characters" in TEXT


def test_the_page_lists_which_failures_are_retried() -> None:
    rows = table("## What is tried again")
    kinds: dict[str, type[Exception]] = {
        one.__name__: one for one in (NotAnswered, Unavailable, Rejected, Refused)
    }

    assert {row.strip("`") for row in rows} == kinds.keys()
    for name, said_of_it in rows.items():
        is_retried = not getattr(kinds[name.strip("`")], "non_retryable", False)
        assert said_of_it.endswith("| yes") is is_retried


def test_every_link_of_the_page_works() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        name, _, anchor = target.partition("#")
        page = (ROOT / "docs" / (name or "http.md")).read_text(encoding="utf-8")
        titles = re.findall(r"^#+ (.*)$", page, re.M)
        assert not anchor or anchor in {
            re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in titles
        }
