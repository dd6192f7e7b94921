"""docs/redis-cli.md is correct: its commands run in order, with the files of the README."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.pages import blocks, reading

PAGE = "docs/redis-cli.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
def test_everything_on_the_page_about_redis_cli_works(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        for block in blocks():
            if block.treatment.startswith("file "):
                reader.do(block)
        for block in blocks(TEXT):
            reader.do(block)

        assert [service.poll() for service in reader.services] == [None, None], "a service has ended"


def test_every_block_of_it_names_its_treatment() -> None:
    found = blocks(TEXT)

    assert len(found) == TEXT.count("\n```") / 2
    assert not [f"{PAGE}:{block.line}" for block in found if not block.treatment]
