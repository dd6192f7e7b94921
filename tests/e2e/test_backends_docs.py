"""docs/backends.md is correct: its programs run in order, and its store and runner pass the contract."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.pages import blocks, reading

ROOT = Path(__file__).parents[2]
PAGE = "docs/backends.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
def test_everything_on_the_page_about_backends_works(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        for block in blocks(TEXT):
            reader.do(block)

        assert [service.poll() for service in reader.services] == [None, None], "a service has ended"


def test_every_block_of_it_names_its_treatment() -> None:
    found = blocks(TEXT)

    assert len(found) == TEXT.count("\n```") / 2
    assert not [f"{PAGE}:{block.line}" for block in found if not block.treatment]


def test_every_link_of_it_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT)

    assert links
    assert not [to for to in links if not (ROOT / "docs" / to).exists()]
