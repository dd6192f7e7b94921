"""The commands of docs/verifying.md are executed, and its table has every code.

A comment before each block says how it is treated, as in the README.
"""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from e2e.pages import Block, Shell, blocks, commands_of, reading
from orchestrator.redis_rq.letter_limits import MAX_LETTER_BYTES
from orchestrator.redis_rq.verify.verifier import MAX_COUNTED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "verifying.md").read_text(encoding="utf-8")
BLOCKS = blocks(PAGE)
READING = re.compile(
    r"redis-cli (EXISTS|HGET|ZRANGE) "
    r"|orchestrator (check-consistency( order-1|;| --json)|what-if|dead-letters list)"
)
SOURCES = [
    ROOT / "orchestrator" / name
    for name in (
        "application/audit/history.py",
        "application/audit/invariants.py",
        "redis_rq/verify/probes.py",
        "redis_rq/verify/verifier.py",
    )
]


def test_every_block_says_how_it_is_tested() -> None:
    assert len(BLOCKS) == PAGE.count("\n```") / 2
    assert {block.treatment.partition(" ")[0] for block in BLOCKS} == {"file", "console"}


@pytest.mark.slow
def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    with reading(tmp_path, "docs/verifying.md") as reader:
        reader.commands_that_read = READING
        reader.server(Block("", "", "redis-server --save ''", 0))
        for block in (one for one in BLOCKS if one.treatment.startswith("file ")):
            reader.do(block)
        reader.start_services(
            Block("", "", "orchestrator coordinator\norchestrator worker --executors desk\n", 0)
        )
        with closing(Shell(reader.folder, reader.environment)) as shell:
            for block in (one for one in BLOCKS if one.treatment == "console"):
                for command, expected in commands_of(block.text):
                    reader.expect(shell, block, command, expected)


def test_the_table_has_every_code() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", PAGE, re.M)
    documented = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    text = "".join(path.read_text() for path in SOURCES)
    known = set(
        re.findall(r"""(?:Finding|repairable_finding|_add)\(\s*"(\w+)"|^ +yield \(?\s*"(\w+)",""", text, re.M)
    )

    assert documented == {code for pair in known for code in pair if code}


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    assert f"up to {MAX_COUNTED:,} of them" in PAGE.replace("\n", " ")
    assert f"larger than {MAX_LETTER_BYTES // 1024} KiB" in PAGE
