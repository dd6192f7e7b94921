"""docs/python.md is correct: its programs run in order, with the files of the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.pages import blocks, reading
from orchestrator import client
from orchestrator.application import errors
from orchestrator.client import Client

PAGE = "docs/python.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
def test_everything_on_the_page_about_python_works(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        for block in blocks():
            if block.treatment.startswith("file "):
                reader.do(block)
        for block in blocks(TEXT):
            reader.do(block)

        assert [service.poll() for service in reader.services] == [None, None], "a service has ended"


def test_every_block_of_it_names_its_treatment() -> None:
    found = blocks(TEXT)

    assert len(found) == TEXT.count("\n```") / 2
    assert not [f"{PAGE}:{block.line}" for block in found if not block.treatment]


def test_it_names_the_public_methods_of_the_client() -> None:
    methods = {name for name, value in vars(Client).items() if callable(value) and name[0] != "_"}
    rare = {"payload", "send_start", "status", "wait_for_reply"}

    assert (
        methods - rare - set(re.findall(r"`(\w+)`", TEXT)) - set(re.findall(r"client\.(\w+)\(", TEXT))
        == set()
    )


def test_the_exceptions_that_it_names_exist() -> None:
    table = TEXT.partition("| method | raises |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([A-Z]\w+)`", table))

    assert named
    assert named - {*client.__all__, *vars(errors)} == set()
