"""docs/backends.md is correct: its programs run in order, and its store and runner pass the contract."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.pages import check_treatments, do_page

ROOT = Path(__file__).parents[2]
PAGE = "docs/backends.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
def test_everything_on_the_page_about_backends_works(tmp_path: Path) -> None:
    do_page(tmp_path, PAGE)


def test_every_block_of_it_names_its_treatment() -> None:
    check_treatments(PAGE)


def test_every_link_of_it_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT)

    assert links
    assert not [to for to in links if not (ROOT / "docs" / to).exists()]
