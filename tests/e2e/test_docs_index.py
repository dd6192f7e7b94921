"""The index lists every page, and every relative link in Markdown leads to a file and a heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.pages import prose

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "index.md"
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / ".github").rglob("*.md")),
    *sorted(ROOT.glob("*.md")),
]
HEADINGS = ["Start", "Guides", "Coming from", "Reference", "Explanation", "Contributing"]


def links(page: str) -> list[str]:
    """The relative links outside of code, and the files that pictures are in."""
    text = re.sub(r"`[^`\n]*`", "``", prose(page))
    found = [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r'\b(?:src|srcset)="([^"\s]+)"', text)]
    return [link for link in found if "://" not in link]


def anchors(page: str) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    found: dict[str, int] = {}
    names = set()
    for title in re.findall(r"^#+ +(.*?) *$", prose(page), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        name = re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")
        count = found[name] = found.get(name, -1) + 1
        names.add(f"{name}-{count}" if count else name)
    return names


def broken_links(path: Path) -> list[str]:
    broken = []
    for link in links(path.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    return broken


def test_the_index_lists_every_page_once() -> None:
    listed = [link for link in links(INDEX.read_text(encoding="utf-8")) if "/" not in link]

    assert sorted(listed) == sorted(path.name for path in INDEX.parent.glob("*.md") if path != INDEX)


def test_the_index_has_one_line_for_each_page_under_a_heading() -> None:
    text = INDEX.read_text(encoding="utf-8")

    assert re.findall(r"^## (.*)$", text, re.M) == HEADINGS
    body = text.partition("\n## ")[2].splitlines()[1:]
    body = [line for line in body if line and not re.match("###? ", line)]
    assert [line for line in body if not re.fullmatch(r"- \[[^\]]+\]\([^)]+\): .+\.", line)] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    assert broken_links(path) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    other = tmp_path / "other.md"
    other.write_text("# One & `two`\n\n## Same\n\n## Same\n\n```sh\n# not a heading\n```\n")

    page.write_text(
        "[a](other.md#one--two) [b](other.md#same-1) [c](other.md#same-2) [d](other.md#not-a-heading)"
        " [e](missing.md) [f](https://example.org/missing) `[g](missing.md)` [h](#nowhere)\n"
        '<img src="other.md"> <img src="missing.png">\n'
    )

    assert broken_links(page) == [
        "other.md#same-2",
        "other.md#not-a-heading",
        "missing.md",
        "#nowhere",
        "missing.png",
    ]
