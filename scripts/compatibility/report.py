"""The result of each combination, the table of them, and the exit code. Pure: nothing is run or read here."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

EXIT_FAILED = 1
EXIT_MISSING = 4
HEADINGS = ("Python", "server", "rq", "redis-py", "passed", "failed", "skipped", "seconds", "result")
NUMBERS = frozenset({"passed", "failed", "skipped", "seconds"})


@dataclass(frozen=True, slots=True)
class Counts:
    """How many tests ended in which way, and the names of those that failed."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One combination that was tried. `problem` says why its tests did not run to their end."""

    python: str
    server: str
    rq: str
    redis_py: str
    counts: Counts = Counts()
    seconds: float = 0.0
    problem: str = ""

    @property
    def result(self) -> str:
        if self.problem:
            return "error"
        return "passed" if self.counts.passed and not self.counts.failed else "failed"

    @property
    def cells(self) -> tuple[str, ...]:
        counts = (self.counts.passed, self.counts.failed, self.counts.skipped)
        shown = ("-", "-", "-") if self.problem else map(str, counts)
        versions = (self.python, self.server, self.rq, self.redis_py)
        return (*versions, *shown, f"{self.seconds:.0f}", self.result)


def read_counts(junit: str) -> Counts:
    """The counts of a JUnit report, as pytest writes it."""
    passed, skipped, failures = 0, 0, []
    for case in ElementTree.fromstring(junit).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failures.append(f"{case.get('classname')}::{case.get('name')}")
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    names = tuple(dict.fromkeys(failures))  # a test that fails and whose fixture fails too is listed twice
    return Counts(passed, len(names), skipped, names)


def exit_code(rows: Sequence[Row], missing: Sequence[str], *, allow_missing: bool) -> int:
    """0 if combinations were run, all passed, and nothing wanted was missing or that is allowed."""
    if any(row.result != "passed" for row in rows):
        return EXIT_FAILED
    return EXIT_MISSING if not rows or (missing and not allow_missing) else 0


def format_report(rows: Sequence[Row], missing: Sequence[str]) -> str:
    """The table in Markdown, what failed in it, and what is missing from it."""
    lines = _table([HEADINGS, *(row.cells for row in rows)]) if rows else ["No combination was run."]
    for row in rows:
        name = f"Python {row.python}, {row.server}, rq {row.rq}, redis-py {row.redis_py}"
        details = [row.problem] if row.problem else row.counts.failures
        if row.result != "passed":
            lines += ["", f"{row.result.upper()}: {name}", *(f"  {line}" for line in details)]
    if missing:
        lines += ["", "MISSING, and so not run:", *(f"  {what}" for what in missing)]
    return "\n".join(lines)


def as_json(rows: Sequence[Row], missing: Sequence[str], tests: Sequence[str]) -> dict[str, Any]:
    return {
        "tests": list(tests),
        "rows": [{**asdict(row), "result": row.result} for row in rows],
        "missing": list(missing),
    }


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    lines = [f"| {' | '.join(_align(row, widths))} |" for row in rows]
    return [lines[0], rule, *lines[1:]]


def _align(row: tuple[str, ...], widths: list[int]) -> list[str]:
    columns = zip(HEADINGS, row, widths, strict=True)
    return [cell.rjust(width) if name in NUMBERS else cell.ljust(width) for name, cell, width in columns]
