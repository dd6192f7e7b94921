"""The table of edge cases, and that each of its rows is played."""

from __future__ import annotations

import re
from pathlib import Path

ROWS = [
    "set on a step that is running",
    "set on a step in retry back-off, deferred or waiting",
    "set on a skipped, filtered or failed (continue) step",
    "set that names only a sibling",
    "set fired by a failed result",
    "the same result delivered twice",
    "result of an older run while a newer one is in progress",
    "result after halt, failure, cancel",
    "two halts race",
    "halt with steps in flight",
    "P default, dependents all continue",
    "P default, dependents continue and default",
    "P says fail, dependent says continue",
    "P says continue, dependent says fail",
    "P says skip, dependent says continue",
    "skip reaches a continue below",
    "join of one skipped and one complete parent",
    "join of filtered and complete",
    "join of filtered and skipped",
    "all parents filtered",
    "filter false on the fan-in step itself",
    "all steps filtered",
    "empty map",
    "map item fails for good, on_error fail",
    "retry and branch",
    "complete branch on a failed attempt",
    "success with max_attempts 3, no branch",
    "max_attempts and retry together",
    "timeout while paused",
    "cancel while paused",
    "late started event",
    "lease lost but the old worker finishes",
    "output key state, steps, input",
    "output null",
    "dependency cycle through implicit references",
    "workflow with no steps",
    "outputs refers to a step that was skipped",
    "child halted",
    "start event with a known idempotency root",
    "spec changed while executions run",
]


def words(text: str) -> str:
    return "test_" + "_".join(re.findall(r"[a-z0-9]+", text.lower()))


def names_of_tests(pattern: str) -> list[str]:
    files = sorted(Path(__file__).parent.glob(pattern))
    return [name for one in files for name in re.findall(r"^def (test_\w+)", one.read_text(), re.MULTILINE)]


def test_every_row_has_its_test_and_every_test_its_row() -> None:
    rows, tests = [words(row) for row in ROWS], names_of_tests("test_cases_of_*.py")

    assert [row for row in rows if not any(name.startswith(row) for name in tests)] == []
    assert [name for name in tests if not any(name.startswith(row) for row in rows)] == []


RULINGS = range(1, 21)


def test_every_ruling_has_its_tests() -> None:
    tests = names_of_tests("test_rulings_on_*.py")

    assert [f"{n:02}" for n in RULINGS] == sorted({name.split("_")[2] for name in tests})
