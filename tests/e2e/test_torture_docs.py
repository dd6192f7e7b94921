"""docs/torture.md: its commands are understood, its tests exist, and its tables are those of the code."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

from torture.__main__ import options
from torture.kinds import KINDS
from torture.nemesis import Nemesis

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "torture.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- test: arguments -->\n```console\n(.*?)```", re.DOTALL)


def test_every_command_on_the_page_is_understood() -> None:
    typed = [line.removeprefix("$ ") for block in BLOCK.findall(PAGE) for line in block.splitlines()]

    assert len(typed) >= 4
    assert PAGE.count("```") == 2 * len(BLOCK.findall(PAGE)), "every block is tested"
    for command, *arguments in map(shlex.split, typed):
        assert command == "scripts/torture"
        options().parse_args(arguments)


def test_the_script_explains_itself() -> None:
    said = subprocess.run([ROOT / "scripts/torture", "--help"], capture_output=True, text=True, check=True)

    for option in (
        "--minutes",
        "--seed",
        "--workers",
        "--processes",
        "--appendfsync",
        "--partition",
        "--json",
    ):
        assert option in said.stdout


def test_every_test_on_the_page_exists() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", PAGE))

    assert named
    assert {name for name in named if f"def {name}(" not in tests} == set()


def test_the_sums_are_those_of_the_table() -> None:
    rows = re.findall(r"^\| \d{3} \| \w+ \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", PAGE, re.M)
    faults, to_processes, killed, workflows, slots = (
        sum(map(int, column)) for column in zip(*rows, strict=True)
    )

    told = " ".join(PAGE.split())
    assert len(rows) == 10
    assert f"{faults:,} faults, {to_processes} of them to processes, Redis killed {killed} times" in told
    assert f"of {workflows:,} workflows, {slots} of them begun by schedules" in told


def test_there_are_as_many_kinds_of_workflows_as_the_page_says() -> None:
    assert len(KINDS) == 12
    assert "twelve kinds of workflows" in PAGE


def test_every_fault_of_the_table_can_be_done() -> None:
    for weight, name in Nemesis.TABLE:
        assert weight > 0
        assert callable(getattr(Nemesis, name))
