"""The contract tests fail on every store and runner that is broken, and pass on those that are not."""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from effort import IS_FULL
from pytest_runs import run_pytest
from testing.contracts import broken

BROKEN = {one.__name__: test for table in (broken.STORES, broken.RUNNERS) for one, test in table.items()}

TESTS = """
import pytest

import broken
from orchestrator.backend import InMemoryStore, InProcessRunner
from orchestrator.testing.contracts import RunnerContract, StoreContract


def add_test_class(contract, fixture, made):
    functions = {fixture: pytest.fixture(lambda self: made(), name=fixture)}
    globals()[f"Test{made.__name__}"] = type(f"Test{made.__name__}", (contract,), functions)


for one in [InMemoryStore, *broken.STORES]:
    add_test_class(StoreContract, "store", one)
for one in [InProcessRunner, *broken.RUNNERS]:
    add_test_class(RunnerContract, "runner", one)
"""

SELECTED = [
    "test_all.py::TestInMemoryStore",
    "test_all.py::TestInProcessRunner",
    *(f"test_all.py::Test{name}::{test}" for name, test in BROKEN.items()),
]
"""What is correct must pass all tests. What is broken must fail one; without --full only that one runs."""


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The tests that failed, by the name of the implementation."""
    folder = tmp_path_factory.mktemp("broken")
    shutil.copy(broken.__file__, folder / "broken.py")
    (folder / "test_all.py").write_text(TESTS)

    tests = ["test_all.py"] if IS_FULL else SELECTED
    options = ("-q", "--tb=no", "-rfE", "-k", "not window and not thousands and not newest")
    ended = run_pytest(folder, *options, *tests)

    assert ended.returncode == 1, ended.stdout[-3000:] + ended.stderr[-3000:]
    found: dict[str, set[str]] = defaultdict(set)
    for name, test in re.findall(r"^(?:FAILED|ERROR) test_all.py::Test(\w+)::(\w+)", ended.stdout, re.M):
        found[name].add(test)
    return found


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_implementation_is_found(failures: dict[str, set[str]], name: str) -> None:
    assert BROKEN[name] in failures[name]


def test_an_implementation_that_is_not_broken_passes(failures: dict[str, set[str]]) -> None:
    assert failures.keys() == BROKEN.keys()


def test_a_class_without_a_fixture_says_what_to_define(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from orchestrator.testing.contracts import StoreContract\n"
        "class TestStore(StoreContract):\n"
        "    pass\n"
    )

    ended = run_pytest(tmp_path, "-q", "-x", "-k", "unknown_execution")

    assert "define the fixture `store` in your class" in ended.stdout
