"""docs/logging.md is correct: its commands run in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.pages import blocks, reading
from orchestrator.cli.log_options import LEVELS
from orchestrator.logs import CONTEXT_FIELDS

PAGE = "docs/logging.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
def test_everything_on_the_page_about_logging_works(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        for block in blocks(TEXT):
            reader.do(block)


def test_every_block_of_it_is_tested_and_every_field_and_level_is_named() -> None:
    assert len(blocks(TEXT)) == TEXT.count("\n```") / 2
    assert [word for word in (*CONTEXT_FIELDS, *LEVELS) if f"`{word}`" not in TEXT] == []
