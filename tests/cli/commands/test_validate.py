"""`orchestrator validate` tells people, and not programs, where its codes are explained."""

from __future__ import annotations

import io
import sys
from contextlib import suppress
from pathlib import Path

import click
import pytest

from orchestrator.cli import main
from orchestrator.cli.commands.validate import CODES_HINT

ROOT = Path(__file__).parents[3]
WRONG = "steps:\n  - {id: a, fn: echo, depend_on: [b]}\n"
RIGHT = "steps:\n  - {id: a, fn: echo}\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(folder: Path, document: str, *options: str, stream: io.StringIO) -> str:
    """What the command writes to the standard error."""
    file = folder / "workflow.yaml"
    file.write_text(document)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        patch.setattr(sys, "stdout", io.StringIO())
        with suppress(click.exceptions.Exit):
            main(["validate", str(file), *options], standalone_mode=False)
    return stream.getvalue()


def test_the_page_is_named_on_a_terminal(tmp_path: Path) -> None:
    assert run(tmp_path, WRONG, stream=Terminal()) == f"{CODES_HINT}\n"
    assert (ROOT / "docs" / "errors.md").exists()
    assert "docs/errors.md" in CODES_HINT


def test_it_is_not_named_for_a_valid_document_for_json_or_outside_of_a_terminal(tmp_path: Path) -> None:
    assert run(tmp_path, RIGHT, stream=Terminal()) == ""
    assert run(tmp_path, WRONG, "--json", stream=Terminal()) == ""
    assert run(tmp_path, WRONG, stream=io.StringIO()) == ""
