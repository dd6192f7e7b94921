"""docs/secrets.md does what it says. A comment before each block names its treatment, as in the README."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.pages import Block, Reader, Shell, blocks, commands_of, reading
from orchestrator.application.redaction.by_value import MIN_SECRET_LENGTH, MIN_SECRET_LINE_LENGTH
from orchestrator.application.values.secret_refs import is_secret_name
from orchestrator.invocation.secret_store import (
    FOLDER_VARIABLE,
    MAX_SECRET_BYTES,
    PROVIDER_VARIABLE,
    SECRET_PREFIX,
)
from orchestrator.invocation.source_config import ENV_ALLOWLIST_VARIABLE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "secrets.md").read_text(encoding="utf-8")


def test_every_block_says_how_it_is_tested() -> None:
    assert {block.treatment.split()[0] for block in blocks(PAGE)} == {"console", "file", "python"}
    assert len(blocks(PAGE)) == PAGE.count("\n```") / 2


@pytest.mark.slow
def test_everything_in_the_page_works(tmp_path: Path) -> None:
    with reading(tmp_path, "docs/secrets.md") as reader:
        shell = Shell(reader.folder, reader.environment)  # what is exported stays so until the end
        try:
            for block in blocks(PAGE):
                do(reader, shell, block)
        finally:
            shell.close()


def do(reader: Reader, shell: Shell, block: Block) -> None:
    if block.treatment != "console":
        reader.do(block)
        return
    for command, expected in commands_of(block.text):
        reader.expect(shell, block, command, expected)


def test_the_page_names_every_setting_and_every_limit() -> None:
    for setting in (PROVIDER_VARIABLE, FOLDER_VARIABLE, f"{SECRET_PREFIX}<NAME>", ENV_ALLOWLIST_VARIABLE):
        assert f"| `{setting}` |" in PAGE
    assert (MIN_SECRET_LENGTH, MIN_SECRET_LINE_LENGTH, MAX_SECRET_BYTES) == (4, 8, 64 * 1024)
    assert is_secret_name("a.b-c_D9")
    assert not any(map(is_secret_name, ("-a", ".a", "a/b")))
