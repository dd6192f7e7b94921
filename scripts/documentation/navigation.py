"""The order of the pages: docs/index.md, and the generated pages beside the pages that they belong to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.documentation.generated import GENERATED

ROOT_PAGES: Mapping[str, str] = {
    "README.md": "introduction.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "CHANGELOG.md": "changelog.md",
}
"""The pages of the top folder, and their names in the site."""

_LINE = re.compile(
    r"^(?:(?P<level>#{2,3}) (?P<heading>.+)|- \[(?P<title>[^\]]+)\]\((?P<target>[^)]+)\).*)$", re.M
)

Nav = list[dict[str, Any]]


def find_pages_below(docs: Path) -> Mapping[str, Nav]:
    """The pages in folders, by the page that lists them: those of docs/examples by examples.md."""
    found: dict[str, Nav] = {}
    for path in sorted(docs.glob("*/**/*.md")):
        relative = path.relative_to(docs)
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        found.setdefault(f"{relative.parts[0]}.md", []).append({title: relative.as_posix()})
    return found


def read_navigation(index: str, pages_below: Mapping[str, Nav]) -> Nav:
    """The `nav` of mkdocs for a text like that of docs/index.md, and the pages that its pages list."""
    nav: Nav = [{"Home": "index.md"}]
    section: Nav = []
    entries = section
    for line in _LINE.finditer(index):
        if line["level"] == "##":
            section = entries = []
            nav.append({line["heading"]: section})
        elif line["level"] == "###":
            entries = []
            section.append({line["heading"]: entries})
        else:
            name = Path(line["target"]).name
            entries.append({line["title"]: ROOT_PAGES.get(name, name)})
            entries += pages_below.get(name, [])
            entries += [{one.title: one.path} for one in GENERATED if one.after == name]
    return nav


def pages_in(nav: Nav) -> list[str]:
    """Every page of a navigation, in its order."""
    found: list[str] = []
    for entry in nav:
        for value in entry.values():
            found += pages_in(value) if isinstance(value, list) else [value]
    return found
