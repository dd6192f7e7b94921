"""Every block of the page about the history works, and its limits are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.pages import blocks, reading
from orchestrator.application.records.delta import MAX_DELTA_BYTES, MAX_SECRETS
from orchestrator.application.records.visible_fields import MAX_VALUE_BYTES

PAGE = "docs/history.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
def test_everything_on_the_page_about_the_history_works(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        for block in blocks(TEXT):
            reader.do(block)


def test_every_block_of_it_is_tested_and_every_limit_is_named() -> None:
    assert len(blocks(TEXT)) == TEXT.count("\n```") / 2
    assert not [block.line for block in blocks(TEXT) if not block.treatment]
    limits = (MAX_VALUE_BYTES, MAX_DELTA_BYTES, MAX_SECRETS)
    assert [limit for limit in limits if f"{limit:,}" not in TEXT] == []
