"""Plain English: a process, an event or an execution is "it", never a person."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for folder in ("orchestrator", "executors", "scripts")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".lua", ".py"} or (folder == "scripts" and path.is_file() and not path.suffix)
)

PERSONS = re.compile(r"\b(?:who|whoever|whom|nobody|somebody)\b", re.IGNORECASE)
PEOPLE = re.compile(
    r"\b(?:people|person|user|users|operator|operators|author|authors|attacker|engineer|reader|anyone|those)\b",
    re.IGNORECASE,
)
"""A line that names one of these may go on with "who"."""


def persons_in(text: str) -> list[str]:
    """The lines that speak of a process or of data as if it were a person."""
    return [line.strip() for line in text.splitlines() if PERSONS.search(line) and not PEOPLE.search(line)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_code_speaks_of_processes_and_data_as_it(path: Path) -> None:
    assert not persons_in(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", ["# whoever reclaims it", "# nobody waits", "# the worker who died"])
def test_the_search_finds(line: str) -> None:
    assert persons_in(line)


def test_people_are_not_things() -> None:
    assert not persons_in("# an operator who reads this")
