"""docs/functions.md is correct: its files, commands and programs run in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.pages import check_treatments, do_page

PAGE = "docs/functions.md"


@pytest.mark.slow
def test_everything_on_the_page_about_functions_works(tmp_path: Path) -> None:
    do_page(tmp_path, PAGE)


def test_every_block_of_it_names_its_treatment() -> None:
    check_treatments(PAGE)
