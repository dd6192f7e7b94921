"""The page about the command line does what it says, and has a section for every command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.test_readme import blocks, reading
from orchestrator.cli import main

PAGE = "docs/cli.md"
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_everything_on_the_page_about_the_command_line_works(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        for block in blocks(TEXT):
            reader.do(block)


def test_every_block_of_it_says_how_it_is_tested() -> None:
    found = blocks(TEXT)

    assert len(found) == TEXT.count("\n```") / 2
    assert not [f"{PAGE}:{block.line}" for block in found if not block.treatment]


def test_every_command_has_a_section() -> None:
    shown = {name for name, command in main.commands.items() if not command.hidden}

    assert set(re.findall(r"^## (\S+)$", TEXT, re.M)) == shown


def test_files_that_it_links_to_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)

    assert links
    assert not [link for link in links if "://" not in link and not (ROOT / "docs" / link).exists()]
