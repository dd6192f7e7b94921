"""The page about isolation names a test in every row, and every hostile test has a row."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
TEXT = (TESTS.parent / "docs/isolation.md").read_text(encoding="utf-8")
DEFINED = re.compile(r"^def (test_\w+)", re.MULTILINE)


def defined_in(*paths: Path) -> set[str]:
    return {test for path in paths for test in DEFINED.findall(path.read_text())}


def named() -> set[str]:
    return set(re.findall(r"`(test_\w+)`", TEXT))


def test_every_line_of_the_tables_names_tests_that_exist() -> None:
    lines = [line for line in TEXT.splitlines() if line.startswith("| ") and "| test |" not in line]

    assert len(lines) > 30
    assert [line for line in lines if "`test_" not in line.split(" | ")[-1]] == []
    assert named() - defined_in(*TESTS.rglob("test_*.py")) == set()


def test_every_hostile_test_has_its_line() -> None:
    assert defined_in(*(TESTS / "worker").glob("test_hostile_*.py")) - named() == set()
