"""docs/from-sayiir.md is correct: everything on it that is not sayiir's own code is executed, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.pages import blocks, check_treatments, do_page
from orchestrator import Workflow
from orchestrator.client import Client
from orchestrator.runtime import Runtime

PAGE = "docs/from-sayiir.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
def test_everything_on_the_page_for_users_of_sayiir_works(tmp_path: Path) -> None:
    do_page(tmp_path, PAGE)


def test_every_block_of_it_names_its_treatment() -> None:
    check_treatments(PAGE)
    assert {block.treatment.split()[0] for block in blocks(TEXT)} >= {"file", "python", "picture"}


def test_the_methods_that_its_table_names_exist() -> None:
    table = TEXT.partition("## A workflow")[0]
    ours = "".join(row.split("|")[2] for row in table.splitlines() if row.startswith("|"))

    named = {
        owner: set(re.findall(rf"{name}\.(\w+)", ours))
        for owner, name in ((Client, "client"), (Runtime, "Runtime"), (Workflow, "Workflow"))
    }

    assert all(named.values())
    assert [name for owner, names in named.items() for name in names if not hasattr(owner, name)] == []
