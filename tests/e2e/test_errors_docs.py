"""docs/errors.md has a section for each code, under the heading that it belongs to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.test_docs_index import anchors
from e2e.test_language_docs import WORDS
from orchestrator import web
from orchestrator.application.spec.validation import CODES, WARNINGS
from orchestrator.web.problems import STATUSES
from orchestrator.worker.executors.spec_check import CODES as EXECUTOR_CODES

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")


def _codes_of_http_problems() -> set[str]:
    package = Path(web.__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    return set(re.findall(r'Problem\(\s*\d{3},\s*"(\w+)"', source)) | set(STATUSES)


FAILURES = set(WORDS["kinds of failure"])
EXPECTED = {
    "Problems of a document": set(CODES),
    "Warnings": set(WARNINGS),
    "Executors": set(EXECUTOR_CODES),
    "Failures": FAILURES,
    "HTTP API": _codes_of_http_problems() - FAILURES - {"error"},
}


def _sections(heading: str) -> dict[str, str]:
    part = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^### `(\w+)`\n\n(.*?)(?=\n### |\Z)", part, re.M | re.S))


@pytest.mark.parametrize("heading", EXPECTED)
def test_every_code_has_a_section(heading: str) -> None:
    assert list(_sections(heading)) == sorted(EXPECTED[heading])


@pytest.mark.parametrize("heading", EXPECTED)
def test_every_section_says_more_than_the_code(heading: str) -> None:
    assert [code for code, text in _sections(heading).items() if len(text.split()) < 9] == []


def test_the_anchor_of_a_code_is_the_code() -> None:
    codes = {code for heading in EXPECTED for code in EXPECTED[heading]}

    assert codes <= anchors(PAGE)
    assert not {anchor for anchor in anchors(PAGE) if anchor.endswith("-1")}
