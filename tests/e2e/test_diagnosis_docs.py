"""docs/diagnosis.md is correct: its commands run in order, as those of the README, and its tables list every
reason and every check."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.pages import ROOT, blocks, reading
from orchestrator.application.explain.reasons import ReasonCode
from orchestrator.diagnosis.doctor import CHECK_NAMES
from orchestrator.diagnosis.snapshot import RedisReasonCode

PAGE = (ROOT / "docs" / "diagnosis.md").read_text(encoding="utf-8")
BLOCKS = blocks(PAGE)


@pytest.mark.slow
def test_everything_on_the_page_works(tmp_path: Path) -> None:
    with reading(tmp_path, "docs/diagnosis.md") as reader:
        reader.commands_that_read = re.compile(r"orchestrator (explain|doctor|health)\b")
        for block in BLOCKS:
            reader.do(block)


def test_every_block_says_how_it_is_tested() -> None:
    assert len(BLOCKS) == PAGE.count("\n```") / 2
    assert not [block.line for block in BLOCKS if not block.treatment]


def test_the_tables_list_every_reason_and_every_check() -> None:
    of_record, of_redis, of_doctor = (
        re.findall(r"^\| `(\w+)` \|", part, re.M)
        for part in re.split(r"^### Reasons from Redis$|^## Doctor$", PAGE, flags=re.M)
    )

    assert of_record == [code.value for code in ReasonCode]
    assert of_redis == [finding.value for finding in RedisReasonCode]
    assert of_doctor == list(CHECK_NAMES)
