"""Checks that mkdocs does not make: the site needs no other host, and every picture and file is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADING = {"src", "srcset", "poster", "data"}
_CSS_URL = re.compile(r"url\(\s*['\"]?((?:https?:)?//[^)'\"]+)|@import\s+['\"]((?:https?:)?//[^'\"]+)")
_MAY_LINK_ANYWHERE = {"a"}


class _Links(HTMLParser):
    """Collects what a page loads and what it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and (name in _LOADING or (name == "href" and tag not in _MAY_LINK_ANYWHERE)):
                self.loaded += [one.split()[0] for one in value.split(",")] if name == "srcset" else [value]
            elif value and name == "href":
                self.linked.append(value)


def find_problems(site: Path) -> Iterator[str]:
    """Everything that a page or a stylesheet loads from another host, and every file that is not there."""
    for page in sorted(site.rglob("*.html")):
        links = _Links()
        links.feed(page.read_text(encoding="utf-8"))
        name = page.relative_to(site).as_posix()
        for link in links.loaded:
            if _is_elsewhere(link):
                yield f"{name}: loads {link} from another host"
        for link in [*links.loaded, *links.linked]:
            if not _is_elsewhere(link) and not _is_there(link, page, site):
                yield f"{name}: there is no {link}"
    for sheet in sorted(site.rglob("*.css")):
        for found in _CSS_URL.finditer(sheet.read_text(encoding="utf-8")):
            yield f"{sheet.relative_to(site).as_posix()}: loads {found[1] or found[2]} from another host"


def _is_elsewhere(link: str) -> bool:
    parts = urlsplit(link)
    return bool(parts.netloc) or parts.scheme in {"http", "https"}


def _is_there(link: str, page: Path, site: Path) -> bool:
    parts = urlsplit(link)
    if parts.scheme or not parts.path:
        return True
    base = (
        site if parts.path.startswith("/") else page.parent
    )  # only the page for unknown paths has the first
    return (base / unquote(parts.path).lstrip("/")).exists()
