"""docs/settings.md lists every environment variable, with the defaults and options of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from e2e.pages import blocks, reading
from orchestrator.cli import main
from orchestrator.settings import Settings
from orchestrator_executors.http_settings import MAX_RESPONSE_BYTES

PAGE = "docs/settings.md"
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
HEADER = "| variable | option | default | read by | meaning |"
VARIABLE = re.compile(r"(?<![A-Z_])ORCHESTRATOR_[A-Z0-9_]*[A-Z0-9](?:_<NAME>)?(?![A-Z0-9_<])")
NOT_SET = "not set"
NOT_SETTINGS = {"environment"}
OTHER_DEFAULTS = {"ORCHESTRATOR_HTTP_MAX_BYTES": str(MAX_RESPONSE_BYTES), "ORCHESTRATOR_LOG_FORMAT": "text"}


class Row(NamedTuple):
    variable: str
    option: str
    default: str
    readers: str
    meaning: str


def _rows() -> Iterator[Row]:
    for table in TEXT.split(HEADER)[1:]:
        for line in table.partition("\n\n")[0].splitlines()[2:]:
            yield Row(*(cell.strip() for cell in line.strip("|").split(" |")))


ROWS = list(_rows())


def _literal(cell: str) -> str:
    """The value of a cell: the code in it, without a remark."""
    found = re.match(r"`([^`]+)`", cell)
    return found[1] if found else cell


def _variables_in_the_code() -> set[str]:
    sources = [path for folder in ("orchestrator", "executors") for path in (ROOT / folder).rglob("*.py")]
    return {name for path in sources for name in VARIABLE.findall(path.read_text(encoding="utf-8"))}


class Recorder(dict[str, str]):
    """An empty environment that remembers which variables were read."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return default


def _variables_of_settings() -> dict[str, str]:
    """The variable of each field of Settings."""
    return {
        f"ORCHESTRATOR_{one.name.upper()}": one.name
        for one in fields(Settings)
        if one.name not in NOT_SETTINGS
    }


def test_the_code_reads_a_variable_for_each_setting() -> None:
    environment = Recorder()

    Settings.from_environment(environment)

    assert environment.names == set(_variables_of_settings())


def test_the_page_lists_every_variable_once() -> None:
    listed = [_literal(row.variable) for row in ROWS]

    assert len(listed) == len(set(listed))
    assert set(listed) == _variables_in_the_code() | set(_variables_of_settings())


def test_the_defaults_of_the_page_are_those_of_the_code() -> None:
    defaults = {
        variable: _shown(getattr(Settings(), name)) for variable, name in _variables_of_settings().items()
    }

    assert {_literal(row.variable): _literal(row.default) for row in ROWS} == {
        **{_literal(row.variable): NOT_SET for row in ROWS},
        **defaults,
        **OTHER_DEFAULTS,
    }


def _shown(value: Any) -> str:
    return NOT_SET if value in (None, (), "") else f"{value:g}" if isinstance(value, float) else str(value)


def test_the_options_of_the_page_are_those_of_the_commands() -> None:
    parameters = [
        one
        for command in (main, *main.commands.values())
        for one in command.params
        if isinstance(one, click.Option)
    ]
    by_variable = {str(one.envvar): one.opts[0] for one in parameters if one.envvar}
    options = {_literal(row.variable): _literal(row.option) for row in ROWS if row.option}

    # These have no variable of their own: the settings read it.
    read_by_settings = {"ORCHESTRATOR_EXECUTORS": "--executors", "ORCHESTRATOR_STOP_GRACE_S": "--stop-grace"}
    assert options == by_variable | read_by_settings
    assert "--executors" in {name for one in parameters for name in one.opts}


def test_every_row_names_readers_that_exist_and_a_meaning() -> None:
    named = {name for row in ROWS for name in re.findall(r"`([\w-]+)`", row.readers)}

    assert named <= set(main.commands)
    assert all(row.meaning and row.readers for row in ROWS)
    words = {word for row in ROWS for word in re.sub(r"`[\w-]+`", "", row.readers).replace(",", " ").split()}
    assert words == {"clients", "commands", "coordinators", "workers"}


@pytest.mark.slow
def test_every_block_of_the_page_works(tmp_path: Path) -> None:
    found = blocks(TEXT)
    assert len(found) == TEXT.count("\n```") / 2

    with reading(tmp_path, PAGE) as reader:
        for block in found:
            reader.do(block)
