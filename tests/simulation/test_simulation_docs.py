"""docs/simulation.md says what is so: its commands run, and its table of mutants is the one in the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from simulation.faults import NOW_AND_THEN, ON_THE_LINE
from simulation.mutants import MUTANTS
from simulation.test_simulation import played

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "simulation.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def rows(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_run(command: str) -> None:
    script, *arguments = shlex.split(command)

    found = played(*arguments)

    assert script == "scripts/simulate"
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) == 3


def test_the_table_of_mutants_is_the_one_in_the_code() -> None:
    assert rows("Mutants") == [[mutant.name, mutant.fence] for mutant in MUTANTS.values()]


def test_every_fault_is_in_the_table() -> None:
    named = {name for cells in rows("What goes wrong") for name in cells[0].split(", ")}

    assert named == {*ON_THE_LINE, *NOW_AND_THEN, "declined", "script error"} - {"snapshot"}
