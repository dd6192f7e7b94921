"""docs/durability.md: the table of deadlines names a test on Redis and one on SQLite in each row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "durability.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## Deadlines that passed")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (?:the|a) .*$", TABLE, re.M)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_each_deadline_has_a_test_on_each_backend() -> None:
    assert len(ROWS) == 6
    for row in ROWS:
        folders = [Path(file).parts[1] for file, _ in NAMED.findall(row)]
        assert folders == ["redis_rq", "backend"], row


@pytest.mark.parametrize(("file", "name"), NAMED.findall(PAGE))
def test_every_test_on_the_page_exists(file: str, name: str) -> None:
    module = ast.parse((ROOT / file).read_text(encoding="utf-8"))

    assert name in {one.name for one in module.body if isinstance(one, ast.FunctionDef)}
