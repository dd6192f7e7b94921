"""The application of docs/functions.md, for tests."""

from __future__ import annotations

import re
from pathlib import Path

from e2e.pages import blocks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "functions.md").read_text(encoding="utf-8")
[APP] = [block.text for block in blocks(PAGE) if block.treatment == "file app.py"]
[YAML] = [block.text for block in blocks(PAGE) if block.treatment == "file order.yaml"]
"""The document of the application, as the page shows it."""
[SHORT_YAML] = [block.text for block in blocks(PAGE) if block.treatment == "file short-order.yaml"]
"""The same with short references."""


def mistakes() -> list[tuple[str, str]]:
    """The wrong lines of the page, and the error of each."""
    table = PAGE.partition("| line | error |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(.+?)` \| `(.+)` \|$", table, re.M)
    return [(line, error.replace("\\|", "|")) for line, error in rows]
