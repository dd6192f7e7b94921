"""The examples of docs/testing.md work: its files are written into a folder, and its tests run there.

A comment before each block says how it is tested, as in the README: `file NAME` is written; the command of a
`console` is run and must print the lines below it, where `...` stands for anything.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.testing import KILL_POINTS
from pytest_runs import install_plugin, run_pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:<!-- test: ([^\n]*) -->\n)?^```\w*\n(.*?)^```$", re.M | re.S)
BLOCKS = [(found[1] or "", found[2]) for found in BLOCK.finditer(PAGE)]
FILES = {treatment.removeprefix("file "): text for treatment, text in BLOCKS if treatment.startswith("file ")}
TESTS = sorted(name for name in FILES if name.startswith("test_"))
(CONSOLE,) = (text for treatment, text in BLOCKS if treatment == "console")
SHOWN = CONSOLE.splitlines()[0].split()[-1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    install_plugin(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_every_block_says_how_it_is_tested() -> None:
    assert len(BLOCKS) == PAGE.count("\n```") / 2
    assert {treatment.partition(" ")[0] for treatment, _ in BLOCKS} == {"file", "console"}


def test_the_tests_of_the_page_pass(folder: Path) -> None:
    good = [name for name in TESTS if name != SHOWN]
    count = sum(FILES[name].count("def test_") for name in good) + 19  # one of them has twenty seeds

    run = run_pytest(folder, "-q", *good)

    assert f"{count} passed" in run.stdout, run.stdout + run.stderr


def test_the_one_that_depends_on_luck_fails_as_the_page_shows(folder: Path) -> None:
    command, *expected = CONSOLE.splitlines()
    assert command == f"$ pytest -q {SHOWN}"

    run = run_pytest(folder, "-q", SHOWN)

    printed = iter(run.stdout.splitlines())
    for line in expected:
        if line != "...":
            pattern = re.escape(line).replace(r"\.\.\.", ".*")
            assert any(re.fullmatch(pattern, one) for one in printed), f"{line}\n\n{run.stdout}"


def test_the_page_explains_every_kill_point() -> None:
    assert re.findall(r"^\| `((?:worker|coordinator)\.\w+)` \|", PAGE, re.M) == list(KILL_POINTS)


def test_every_link_of_the_page_leads_somewhere() -> None:
    titles = re.findall(r"^#+ (.*)$", PAGE, re.M)
    anchors = {"#" + re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}

    assert not [to for to in re.findall(r"\]\(([^)]+)\)", PAGE) if to not in anchors]
