"""The tests mirror the packages: tests/redis_rq/queries tests orchestrator/redis_rq/queries."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
ACROSS = {
    "architecture",
    "deployment",
    "differential",
    "e2e",
    "fuzz",
    "language",
    "simulation",
    "system",
    "torture",
    "web/attacks",
}
"""Folders that test several packages together; CONTRIBUTING.md lists them."""
ELSEWHERE = {
    "executors": "executors/orchestrator_executors",
    "scripts": "scripts",
    "scripts/documentation": "scripts/documentation",
}
"""Folders that test something outside of orchestrator/."""


def folders_with_tests() -> set[str]:
    return {path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")} - {"."}


def package_of(folder: str) -> Path:
    top, _, rest = folder.partition("/")
    return ROOT / ELSEWHERE.get(top, f"orchestrator/{top}") / rest


def test_every_folder_has_the_name_of_the_package_that_it_tests() -> None:
    packages = {folder: package_of(folder) for folder in folders_with_tests() - ACROSS}

    assert len(packages) > 20
    assert not [folder for folder, package in packages.items() if not package.is_dir()]


def test_contributing_lists_the_folders_that_test_several_packages() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

    assert not [folder for folder in ACROSS if f"| `tests/{folder}` |" not in page]


def test_the_files_that_begin_first_exist() -> None:
    names = (TESTS / "slowest-first.txt").read_text(encoding="utf-8").split()

    assert len(names) == len(set(names))
    assert not [name for name in names if not (TESTS / name).is_file()]
