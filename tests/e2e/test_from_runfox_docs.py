"""docs/from-runfox.md is correct: its programs run, those for runfox with runfox itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.pages import blocks, reading

PAGE = "docs/from-runfox.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
def test_everything_on_the_page_for_users_of_runfox_works(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        for block in blocks(TEXT):
            reader.do(block)


def test_every_block_of_it_is_a_program() -> None:
    found = blocks(TEXT)

    assert len(found) == TEXT.count("\n```") / 2
    assert {block.treatment for block in found} == {"python"}


def test_it_has_every_deviation_of_the_differential() -> None:
    rows = TEXT.partition("## What differs, and why")[2]

    assert all(f"| D{n} |" in rows for n in range(1, 10))
    assert "| State after a retry |" in rows
