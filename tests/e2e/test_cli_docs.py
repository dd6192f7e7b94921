"""The page about the command line does what it says, and has a section for every command."""

from __future__ import annotations

import re
import signal
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import click
import pytest

from e2e.pages import blocks, reading
from orchestrator import cli
from orchestrator.cli import main
from orchestrator.cli.errors import EXIT_CODES

PAGE = "docs/cli.md"
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(1800)  # more than eighty commands
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


def _exit_codes_of_the_code() -> set[int]:
    codes = {0, 128 + signal.SIGTERM}  # InterruptedBySignal has the code of its signal
    for module in (import_module(one.name) for one in walk_packages(cli.__path__, f"{cli.__name__}.")):
        for name, value in vars(module).items():
            if name.startswith("EXIT_"):
                codes.update(value.values() if isinstance(value, dict) else {value})
            elif isinstance(value, type) and issubclass(value, click.ClickException):
                codes.add(value.exit_code)
    return codes


def test_the_table_of_exit_codes_is_that_of_the_code() -> None:
    table = TEXT.partition("## Exit codes\n")[2].partition("\n## ")[0]
    rows = {int(code): meaning for code, meaning in re.findall(r"^\| (\d+) \| (.*) \|$", table, re.M)}

    assert set(rows) == _exit_codes_of_the_code()
    assert {code: rows[code].partition(":")[0].partition(",")[0] for code in EXIT_CODES.values()} == {
        code: status for status, code in EXIT_CODES.items()
    }
