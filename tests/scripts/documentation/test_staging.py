"""The source of the site: its pages, and the links in them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from e2e.test_docs_index import anchors, links
from scripts.documentation.navigation import pages_in
from scripts.documentation.staging import DOCS, PLACEHOLDER, ROOT, site_link, site_text, stage

REPOSITORY = "https://example.org/r"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    stage(folder, folder / "site")
    return folder / "pages"


@pytest.mark.parametrize(
    ("source", "link", "expected"),
    [
        ("docs/cli.md", "language.md#loops", "language.md#loops"),
        ("docs/cli.md", "#exit-codes", "#exit-codes"),
        ("docs/cli.md", "https://example.org/x#y", "https://example.org/x#y"),
        ("docs/cli.md", "mailto:a@example.org", "mailto:a@example.org"),
        ("docs/cli.md", "../CHANGELOG.md", "changelog.md"),
        ("docs/cli.md", "../CONTRIBUTING.md#style", "contributing.md#style"),
        ("docs/cli.md", "../scripts/test", f"{REPOSITORY}/blob/main/scripts/test"),
        ("docs/cli.md", "../orchestrator/cli", f"{REPOSITORY}/tree/main/orchestrator/cli"),
        ("docs/cli.md", "examples/order.yaml", "examples/order.yaml"),
        ("docs/cli.md", "examples", f"{REPOSITORY}/tree/main/docs/examples"),
        ("docs/examples/data-import/README.md", "../../cli.md#run", "../../cli.md#run"),
        ("docs/examples/data-import/README.md", "../../../README.md", "../../introduction.md"),
        ("README.md", "docs/cli.md#run", "cli.md#run"),
        ("README.md", "LICENSE", f"{REPOSITORY}/blob/main/LICENSE"),
    ],
)
def test_a_link_leads_to_the_page_or_to_the_repository(source: str, link: str, expected: str) -> None:
    assert site_link(link, ROOT / source, REPOSITORY) == expected


def test_links_in_code_stay_as_they_are(tmp_path: Path) -> None:
    page = DOCS / "cli.md"

    text = site_text(page, REPOSITORY)

    assert "<!-- test:" not in text
    assert text.count("```") == page.read_text(encoding="utf-8").count("```")


def test_the_configuration_names_every_page(pages: Path) -> None:
    configuration = yaml.safe_load((pages.parent / "mkdocs.yml").read_text(encoding="utf-8"))

    named = pages_in(configuration["nav"])

    assert sorted(named) == sorted(path.relative_to(pages).as_posix() for path in pages.rglob("*.md"))
    assert not (pages / "site").exists()


def test_every_relative_link_of_the_site_leads_to_a_file_and_a_heading(pages: Path) -> None:
    broken = []
    for page in sorted(pages.rglob("*.md")):
        for link in links(page.read_text(encoding="utf-8")):
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            if not target.is_file() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
                broken.append(f"{page.name}: {link}")

    assert broken == []


def test_every_link_to_the_repository_leads_to_a_file(pages: Path) -> None:
    found = set()
    for page in pages.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        found |= {part.partition(")")[0].partition("#")[0] for part in text.split(f"]({PLACEHOLDER}/")[1:]}

    assert len(found) > 20
    assert [one for one in sorted(found) if not (ROOT / one.split("/", 2)[2]).exists()] == []
