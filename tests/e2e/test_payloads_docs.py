"""The page about large values does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.pages import blocks, reading
from orchestrator.application.values.failure_kinds import NON_RETRYABLE_KINDS
from orchestrator.application.values.payload_refs import MAX_INPUT_BYTES, MAX_JOB_BYTES, MAX_LOADED_FACTOR
from orchestrator.payload_stores import PayloadSettings
from orchestrator.settings import MAX_PAYLOAD_BYTES

ROOT = Path(__file__).parents[2]
PAGE = "docs/payloads.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
def test_everything_on_the_page_about_large_values_works(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        for block in blocks(TEXT):
            reader.do(block)

        assert [service.poll() for service in reader.services] == [None, None], "a service has ended"


def test_every_block_of_it_is_tested_and_every_link_leads_somewhere() -> None:
    found = blocks(TEXT)

    assert len(found) == TEXT.count("\n```") / 2
    assert not [f"{PAGE}:{block.line}" for block in found if not block.treatment]
    for target in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (ROOT / "docs" / target).exists(), target


def test_the_numbers_and_the_kinds_of_the_page_are_those_of_the_program() -> None:
    default = PayloadSettings()

    assert f"; {MAX_PAYLOAD_BYTES} by default" in TEXT
    assert default.max_bytes == MAX_PAYLOAD_BYTES
    assert default.ttl_s == 8 * 86_400
    assert (MAX_JOB_BYTES, MAX_INPUT_BYTES, MAX_LOADED_FACTOR) == (8 << 20, 1 << 20, 4)
    assert {"payload_missing", "expression", "bad_output"} <= NON_RETRYABLE_KINDS
