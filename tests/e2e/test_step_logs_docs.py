"""Every block of the page about the step log works."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.pages import blocks, reading
from orchestrator.application.records.step_log import (
    LINES_OMITTED,
    MAX_LINE_LENGTH,
    MAX_LINES_PER_EXECUTION,
    MAX_LINES_PER_RUN,
)
from orchestrator.invocation.exceptions import MAX_TRACEBACK_CHARS

PAGE = "docs/step-logs.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
def test_everything_on_the_page_about_step_logs_works(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        for block in blocks(TEXT):
            reader.do(block)


def test_every_block_of_it_is_tested_and_every_limit_is_named() -> None:
    assert len(blocks(TEXT)) == TEXT.count("\n```") / 2
    assert not [block.line for block in blocks(TEXT) if not block.treatment]
    limits = (MAX_LINES_PER_RUN, MAX_LINE_LENGTH, MAX_LINES_PER_EXECUTION, MAX_TRACEBACK_CHARS)
    assert [limit for limit in limits if f"{limit:,}" not in TEXT] == []
    assert f"`{LINES_OMITTED}`" in TEXT
