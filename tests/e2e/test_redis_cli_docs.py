"""docs/redis-cli.md is correct: its commands run in order, with the files of the README."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.pages import check_treatments, do_page

PAGE = "docs/redis-cli.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
def test_everything_on_the_page_about_redis_cli_works(tmp_path: Path) -> None:
    do_page(tmp_path, PAGE, has_files_of_readme=True)


def test_every_block_of_it_names_its_treatment() -> None:
    check_treatments(PAGE)
