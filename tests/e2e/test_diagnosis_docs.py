"""docs/diagnosis.md is correct: its commands run in order, as those of the README, and its tables list every
reason and every check."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.pages import BLOCK, PATIENCE_S, ROOT, Block, Reader, Shell, fits
from orchestrator.application.explain.reasons import ReasonCode
from orchestrator.diagnosis.doctor import CHECK_NAMES
from orchestrator.diagnosis.snapshot import RedisReasonCode
from servers.redis_server import require_redis_server

PAGE = (ROOT / "docs" / "diagnosis.md").read_text(encoding="utf-8")
BLOCKS = [
    Block(found["treatment"] or "", found["language"], found["text"], PAGE.count("\n", 0, found.start()) + 1)
    for found in BLOCK.finditer(PAGE)
]


class Operator(Reader):
    def expect(self, shell: Shell, block: Block, command: str, expected: list[str]) -> None:
        """Repeat a read-only command until its output fits: the system needs time."""
        is_read_only = re.match(r"orchestrator (explain|doctor|health)\b", command)
        deadline = time.monotonic() + (PATIENCE_S if is_read_only else 0.0)
        printed = shell.run(command)
        while not fits(expected, printed) and time.monotonic() < deadline:
            time.sleep(0.05)
            printed = shell.run(command)
        output = "\n".join(printed)
        assert fits(expected, printed), f"diagnosis.md:{block.line}: {command}\nprinted:\n{output}"


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    require_redis_server()
    commands = tmp_path / "bin"
    commands.mkdir()
    script = commands / "orchestrator"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m orchestrator "$@"\n')
    script.chmod(0o755)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ORCHESTRATOR_")}
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    with ExitStack() as stack:
        yield Operator(tmp_path, stack, {**ours, "PATH": path, "PYTHONPATH": str(ROOT)})


@pytest.mark.slow
def test_everything_on_the_page_works(operator: Operator) -> None:
    for block in BLOCKS:
        operator.do(block)


def test_every_block_says_how_it_is_tested() -> None:
    assert len(BLOCKS) == PAGE.count("\n```") / 2
    assert not [block.line for block in BLOCKS if not block.treatment]


def test_the_tables_list_every_reason_and_every_check() -> None:
    of_record, of_redis, of_doctor = (
        re.findall(r"^\| `(\w+)` \|", part, re.M)
        for part in re.split(r"^### Reasons from Redis$|^## Doctor$", PAGE, flags=re.M)
    )

    assert of_record == [code.value for code in ReasonCode]
    assert of_redis == [finding.value for finding in RedisReasonCode]
    assert of_doctor == list(CHECK_NAMES)
