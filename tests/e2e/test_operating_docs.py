"""The page about operating does what it says: an incident from the first failure to the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.pages import blocks, reading

PAGE = "docs/operating.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
def test_everything_on_the_page_about_operating_works(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        for block in blocks(TEXT):
            reader.do(block)


def test_every_block_of_it_is_tested() -> None:
    assert len(blocks(TEXT)) == TEXT.count("\n```") / 2
    assert not [block.line for block in blocks(TEXT) if not block.treatment]
