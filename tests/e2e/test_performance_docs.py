"""docs/performance.md: its commands are understood, and its targets are those the benchmark judges by."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from orchestrator.cli.main import main
from scripts.benchmarks.command import DEFAULT_SIZES, OTHERS, options
from scripts.benchmarks.reports import WORKLOADS
from scripts.benchmarks.targets import TARGETS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- test: arguments -->\n```console\n(.*?)```", re.DOTALL)


def rows(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_command_on_the_page_is_understood() -> None:
    typed = [line.removeprefix("$ ") for block in BLOCK.findall(PAGE) for line in block.splitlines()]

    assert len(typed) >= 10
    assert PAGE.count("```") == 2 * len(BLOCK.findall(PAGE)), "every block is tested"
    for command, *arguments in map(shlex.split, typed):
        if command == "scripts/bench":
            options().parse_args(arguments)
        else:
            assert command == "orchestrator"
            main.commands[arguments[0]].make_context(arguments[0], arguments[1:])


def test_the_targets_of_the_page_are_those_of_the_benchmark() -> None:
    assert [(what, bound) for what, _, bound, _ in rows("Targets")] == [
        (target.what, target.bound) for target in TARGETS
    ]


def test_every_measurement_is_on_the_page() -> None:
    told = {name for row in rows("How to read it") for name in re.findall(r"`(\w+)`", row[0])}

    assert told == {*WORKLOADS, *OTHERS} == set(DEFAULT_SIZES)


def test_files_that_the_page_links_to_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)", PAGE)

    assert links
    assert not [link for link in links if not (ROOT / "docs" / link).exists()]
