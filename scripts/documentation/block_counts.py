"""Counts the code blocks of the documentation, and says which are executed by a test and which are not.

A comment before a block names how `tests/e2e` treats it. The blocks of some pages have no comments: a test of
their own reads the page, and knows its blocks by their language.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"^(?:<!-- test: (?P<treatment>\w+)[^\n]* -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
NOT_EXECUTED = {
    "picture": "a drawing or a list, which has nothing to run",
    "scripts": "scripts of the repository; each has tests of its own, and the test checks that they exist",
    "arguments": "measurements and long tests; the test checks that the script takes these arguments",
}
"""The treatments that run nothing, with the reason."""

OWN_TESTS = {
    "docs/builder.md": "tests/builder/test_builder_docs.py",
    "docs/convert.md": "tests/convert/test_convert_docs.py",
    "docs/language.md": "tests/e2e/test_language_docs.py",
    "docs/schedules.md": "tests/e2e/test_schedules_docs.py",
    "docs/security.md": "tests/e2e/test_security_docs.py",
    "docs/simulation.md": "tests/simulation/test_simulation_docs.py",
}
"""The pages whose test knows the blocks by their language."""

DRAWING = re.compile("[│─▸┌└]")
SAMPLE = "a sample of a configuration, a log line or a URL; no test runs it"


@dataclass(frozen=True)
class CountedBlock:
    page: str
    line: int
    language: str
    reason: str | None
    """Why it is not executed; None for one that is."""


def count_blocks(root: Path, pages: Iterable[Path]) -> list[CountedBlock]:
    counted = []
    for path in pages:
        name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            counted.append(CountedBlock(name, line, block["language"], _reason(name, block)))
    return counted


def report(counted: Iterable[CountedBlock], page_count: int) -> str:
    """The counts as text."""
    blocks = list(counted)
    executed = [one for one in blocks if one.reason is None]
    reasons = Counter(one.reason for one in blocks if one.reason is not None)
    lines = [
        f"{page_count} written pages, {len(blocks)} code blocks: {len(executed)} executed, "
        f"{len(blocks) - len(executed)} not executed"
    ]
    for reason, count in reasons.most_common():
        places = ", ".join(f"{one.page}:{one.line}" for one in blocks if one.reason == reason)
        lines.append(f"  {count:3} {reason}: {places}")
    return "\n".join(lines)


def _reason(page: str, block: re.Match[str]) -> str | None:
    if block["treatment"]:
        return NOT_EXECUTED.get(block["treatment"])
    if block["language"] == "text" and DRAWING.search(block["text"]):
        return NOT_EXECUTED["picture"]
    return None if page in OWN_TESTS and block["language"] else SAMPLE
