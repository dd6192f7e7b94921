"""The commands of docs/verifying.md are executed, and its table has every code.

A comment before each block says how it is treated, as in the README.
"""

from __future__ import annotations

import re
import time
from contextlib import closing
from pathlib import Path

import pytest

from e2e.pages import Block, Reader, Shell, commands_of, fits
from orchestrator.redis_rq.letter_limits import MAX_LETTER_BYTES
from orchestrator.redis_rq.verify.verifier import MAX_COUNTED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "verifying.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:<!-- test: ([^\n]*) -->\n)?^```\w*\n(.*?)^```$", re.M | re.S)
BLOCKS = [(found[1] or "", found[2]) for found in BLOCK.finditer(PAGE)]
READING = re.compile(
    r"redis-cli (EXISTS|HGET|ZRANGE) "
    r"|orchestrator (check-consistency( order-1|;| --json)|what-if|dead-letters list)"
)
PATIENCE_S = 180.0
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
    assert {treatment.partition(" ")[0] for treatment, _ in BLOCKS} == {"file", "console"}


@pytest.mark.slow
def test_the_commands_of_the_page_print_what_it_shows(reader: Reader) -> None:
    reader.server(Block("", "", "redis-server --save ''", 0))
    services = "orchestrator coordinator\norchestrator worker --executors desk\n"
    for treatment, text in BLOCKS:
        if treatment.startswith("file "):
            (reader.folder / treatment.removeprefix("file ")).write_text(text)
    reader.start_services(Block("", "", services, 0))
    with closing(Shell(reader.folder, reader.environment)) as shell:
        for treatment, text in BLOCKS:
            for command, expected in commands_of(text) if treatment == "console" else ():
                type_in(shell, command, expected)


def type_in(shell: Shell, command: str, expected: list[str]) -> None:
    """Run a command; one that only reads is repeated until its output fits, as the system needs time."""
    until = time.monotonic() + (PATIENCE_S if READING.match(command) else 0)
    printed = shell.run(command)
    while not fits(expected, printed) and time.monotonic() < until:
        time.sleep(0.05)
        printed = shell.run(command)
    assert fits(expected, printed), f"{command}\n" + "\n".join(printed)


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
