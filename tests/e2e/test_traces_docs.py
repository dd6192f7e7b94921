"""Every block of the page about traces works."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.pages import blocks, check_treatments, reading
from orchestrator.application.explain.trace_spans import MAX_UNITS
from orchestrator.redis_rq.ended_executions import MAX_ENDS
from orchestrator.traces.receiver import ENDPOINT, Receiver

PAGE = "docs/traces.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
def test_everything_on_the_page_about_traces_works(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        for block in blocks(TEXT):
            reader.do(block)

        assert [service.poll() for service in reader.services] == [None] * 3, "a service has ended"


def test_its_blocks_are_tested_and_its_numbers_are_those_of_the_code() -> None:
    check_treatments(PAGE)
    assert f"{MAX_ENDS:,}" in TEXT
    assert f"{MAX_UNITS:,}" in TEXT
    assert ENDPOINT in TEXT
    assert Receiver.from_environment({}).resource["service.name"] in TEXT
