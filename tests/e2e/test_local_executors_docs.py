"""The page about programs, files, functions and the like does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from e2e.pages import blocks, reading
from orchestrator_executors import file, process, python
from orchestrator_executors.env import EnvInputs
from orchestrator_executors.file import Action, FileInputs, Format
from orchestrator_executors.folders import ROOT_VARIABLE
from orchestrator_executors.process import SEARCH_FOLDERS, PassTo, ProcessInputs
from orchestrator_executors.python import PythonInputs
from orchestrator_executors.settings import ENV_VARIABLES
from orchestrator_executors.sleep import SleepInputs
from orchestrator_executors.transform import TransformInputs

ROOT = Path(__file__).parents[2]
PAGE = "docs/local-executors.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
SETTINGS = {
    "process": ProcessInputs,
    "file": FileInputs,
    "python": PythonInputs,
    "env": EnvInputs,
    "transform": TransformInputs,
    "sleep": SleepInputs,
}


@pytest.mark.slow
def test_everything_on_the_page_about_local_executors_works(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        for block in blocks(TEXT):
            reader.do(block)


def test_every_block_of_it_is_tested() -> None:
    assert len(blocks(TEXT)) == TEXT.count("\n```") / 2


@pytest.mark.parametrize("name", SETTINGS)
def test_a_table_has_every_setting_and_no_other(name: str) -> None:
    _, _, after = TEXT.partition(f"<!-- test: {name} settings -->\n")
    rows = after.partition("\n\n")[0].splitlines()[2:]

    named = [word for row in rows for word in re.findall(r"`(\w+)`", row.split("|")[1])]

    assert sorted(named) == sorted(SETTINGS[name].__annotations__)


def test_the_names_and_limits_on_the_page_are_right() -> None:
    variables = (process.COMMANDS_VARIABLE, ROOT_VARIABLE, python.MODULES_VARIABLE, ENV_VARIABLES)

    for word in (*variables, *get_args(Action), *get_args(Format), *get_args(PassTo), *SEARCH_FOLDERS):
        assert f"`{word}`" in TEXT, word
    assert f"| {process.DEFAULT_MAX_BYTES} |" in TEXT
    assert f"| {file.DEFAULT_MAX_BYTES} |" in TEXT
    assert f"at most {file.MAX_ENTRIES:,} " in TEXT


def test_every_link_of_the_page_works() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        name, _, anchor = target.partition("#")
        titles = re.findall(r"^#+ (.*)$", (ROOT / "docs" / name).read_text(encoding="utf-8"), re.M)
        assert not anchor or anchor in {one.lower().replace(" ", "-") for one in titles}
