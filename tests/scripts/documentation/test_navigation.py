"""The navigation of the site is that of docs/index.md."""

from __future__ import annotations

from scripts.documentation.generated import GENERATED
from scripts.documentation.navigation import ROOT_PAGES, find_pages_below, pages_in, read_navigation
from scripts.documentation.staging import DOCS

INDEX = (DOCS / "index.md").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation_once() -> None:
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}

    pages = pages_in(read_navigation(INDEX, find_pages_below(DOCS)))

    assert sorted(pages) == sorted({*written, *ROOT_PAGES.values(), *(page.path for page in GENERATED)})


def test_sections_and_their_groups_are_those_of_the_headings() -> None:
    index = (
        "## Start\n\n- [README](../README.md): a.\n\n## Guides\n\n### Write\n\n- [Secrets](secrets.md): b.\n"
    )

    assert read_navigation(index, {}) == [
        {"Home": "index.md"},
        {"Start": [{"README": "introduction.md"}]},
        {"Guides": [{"Write": [{"Secrets": "secrets.md"}]}]},
    ]


def test_a_generated_page_follows_the_page_that_it_belongs_to() -> None:
    pages = pages_in(read_navigation(INDEX, find_pages_below(DOCS)))

    assert pages.index("reference/http.md") == pages.index("http-api.md") + 1


def test_the_pages_of_a_folder_follow_the_page_that_lists_them() -> None:
    below = find_pages_below(DOCS)

    assert list(below) == ["examples.md"]
    assert {"A nightly report": "examples/nightly-report/README.md"} in below["examples.md"]
