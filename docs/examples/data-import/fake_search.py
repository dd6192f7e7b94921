"""A search engine that is down while the file search-is-down exists."""

from __future__ import annotations

from pathlib import Path


def rebuild(key: str) -> None:
    """Rebuild the index, once for each key."""
    if Path("search-is-down").exists():
        raise ConnectionError("the search engine does not answer")
