"""The executors of web-scraper, besides `http`, which every worker has.

ORCHESTRATOR_HTTP_HOSTS   the hosts that a worker may call
PAGES_DB                  the database, a file of SQLite; pages.db unless given
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from html.parser import HTMLParser
from typing import Any, TypedDict

TABLE = "CREATE TABLE IF NOT EXISTS pages (url TEXT PRIMARY KEY, site TEXT, title TEXT, links INTEGER)"


class Page(TypedDict):
    url: str
    html: str


class PageParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.title = ""
        self.links: list[str] = []
        self._is_in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_in_title = tag == "title"
        self.links += [value for name, value in attrs if tag == "a" and name == "href" and value]

    def handle_endtag(self, tag: str) -> None:
        self._is_in_title = False

    def handle_data(self, data: str) -> None:
        if self._is_in_title:
            self.title += data


def parse_page(inputs: Page) -> dict[str, Any]:
    parser = PageParser()
    parser.feed(inputs["html"])
    return {"url": inputs["url"], "title": parser.title.strip(), "links": len(parser.links)}


def store_pages(inputs: dict[str, Any]) -> dict[str, Any]:
    """Write all pages in one transaction. The key of a page is its URL, so a second call changes nothing."""
    rows = [(page["url"], inputs["site"], page["title"], page["links"]) for page in inputs["pages"]]
    with closing(sqlite3.connect(os.environ.get("PAGES_DB", "pages.db"))) as database, database:
        database.execute(TABLE)
        database.executemany("INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?)", rows)
    return {"stored": len(rows)}
