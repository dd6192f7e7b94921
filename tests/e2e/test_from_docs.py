"""The pages for users of flowtoy and flow8: every block works."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.pages import blocks, reading

PAGES = ["docs/from-flowtoy.md", "docs/from-flow8.md"]


def read(page: str) -> str:
    return (Path(__file__).parents[2] / page).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_everything_on_the_page_works(page: str, tmp_path: Path) -> None:
    with reading(tmp_path, page) as reader:
        for block in blocks(read(page)):
            reader.do(block)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_the_page_is_tested(page: str) -> None:
    found = blocks(read(page))

    assert len(found) == read(page).count("\n```") / 2
    assert not [block.line for block in found if not block.treatment]
