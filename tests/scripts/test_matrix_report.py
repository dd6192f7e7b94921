"""What scripts/matrix makes of its results: counts, a table and an exit code."""

from __future__ import annotations

import json

import pytest

from scripts.compatibility.report import (
    EXIT_FAILED,
    EXIT_MISSING,
    Counts,
    Row,
    as_json,
    exit_code,
    format_report,
    read_counts,
)

JUNIT = """<?xml version="1.0"?>
<testsuites><testsuite>
  <testcase classname="tests.test_a" name="test_good" time="0.1"/>
  <testcase classname="tests.test_a" name="test_left_out"><skipped message="no server"/></testcase>
  <testcase classname="tests.test_a" name="test_bad"><failure message="1 != 2"/></testcase>
  <testcase classname="tests.test_a" name="test_bad"><error message="its fixture failed too"/></testcase>
  <testcase classname="tests.test_b" name="test_broken"><error message="no fixture"/></testcase>
</testsuite></testsuites>"""

PASSED = Row("3.11.7", "redis 7.0.15", "2.12.0", "8.1.0", Counts(passed=10, skipped=1), 62.4)
FAILED = Row("3.12.1", "valkey 9.1.2", "2.12.0", "8.1.0", Counts(9, 1, 1, ("tests.test_a::test_bad",)), 60)
EMPTY = Row("3.13.0", "redis 7.0.15", "2.12.0", "8.1.0", Counts(skipped=11), 3)
BROKEN = Row("3.14.0", "redis 8.0.6", "-", "-", problem="pip install: exit code 1: no wheel", seconds=5)


def test_counts_are_read_from_a_junit_report() -> None:
    names = ("tests.test_a::test_bad", "tests.test_b::test_broken")

    assert read_counts(JUNIT) == Counts(passed=1, failed=2, skipped=1, failures=names)


@pytest.mark.parametrize(
    ("row", "result"), [(PASSED, "passed"), (FAILED, "failed"), (EMPTY, "failed"), (BROKEN, "error")]
)
def test_a_combination_passes_only_if_tests_have_passed_and_none_has_failed(row: Row, result: str) -> None:
    assert row.result == result


@pytest.mark.parametrize(
    ("rows", "missing", "allowed", "code"),
    [
        ([PASSED], [], False, 0),
        ([PASSED], ["Python 3.14"], False, EXIT_MISSING),
        ([PASSED], ["Python 3.14"], True, 0),
        ([PASSED, FAILED], [], False, EXIT_FAILED),
        ([PASSED, EMPTY], [], True, EXIT_FAILED),
        ([PASSED, BROKEN], [], True, EXIT_FAILED),
        ([FAILED], ["Python 3.14"], False, EXIT_FAILED),
        ([], ["Python 3.14"], False, EXIT_MISSING),
        ([], [], True, EXIT_MISSING),
    ],
)
def test_the_exit_code(rows: list[Row], missing: list[str], allowed: bool, code: int) -> None:
    assert exit_code(rows, missing, allow_missing=allowed) == code


def test_the_report_is_a_table_with_what_failed_and_what_is_missing_below_it() -> None:
    report = format_report([PASSED, FAILED, BROKEN], ["Python 3.13", "redis 6.2"])

    assert report.splitlines() == [
        "| Python | server       | rq     | redis-py | passed | failed | skipped | seconds | result |",
        "|--------|--------------|--------|----------|--------|--------|---------|---------|--------|",
        "| 3.11.7 | redis 7.0.15 | 2.12.0 | 8.1.0    |     10 |      0 |       1 |      62 | passed |",
        "| 3.12.1 | valkey 9.1.2 | 2.12.0 | 8.1.0    |      9 |      1 |       1 |      60 | failed |",
        "| 3.14.0 | redis 8.0.6  | -      | -        |      - |      - |       - |       5 | error  |",
        "",
        "FAILED: Python 3.12.1, valkey 9.1.2, rq 2.12.0, redis-py 8.1.0",
        "  tests.test_a::test_bad",
        "",
        "ERROR: Python 3.14.0, redis 8.0.6, rq -, redis-py -",
        "  pip install: exit code 1: no wheel",
        "",
        "MISSING, and so not run:",
        "  Python 3.13",
        "  redis 6.2",
    ]


def test_a_report_of_nothing_says_that_nothing_was_run() -> None:
    assert format_report([], []) == "No combination was run."


def test_the_json_has_the_same_facts() -> None:
    document = json.loads(json.dumps(as_json([FAILED], ["redis 8"], ["tests/worker"])))

    assert document["tests"] == ["tests/worker"]
    assert document["missing"] == ["redis 8"]
    [row] = document["rows"]
    assert (row["python"], row["server"], row["result"]) == ("3.12.1", "valkey 9.1.2", "failed")
    assert row["counts"] == {"passed": 9, "failed": 1, "skipped": 1, "failures": ["tests.test_a::test_bad"]}
