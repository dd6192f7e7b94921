"""The page about the example with invoices does what it says, and shows the files that it speaks of."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.pages import Reader, blocks, reading
from processes import wait_until
from servers.ports import free_ports

ROOT = Path(__file__).parents[2]
PAGE = "docs/process-invoice.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def ending_what_was_begun(reader: Reader) -> Iterator[None]:
    """Whom the reader of the page left running, by the files that have their numbers."""
    try:
        yield
    finally:
        for path in reader.folder.glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(path.read_text()), signal.SIGKILL)


@pytest.mark.slow
def test_everything_on_the_page_works(tmp_path: Path) -> None:
    [port] = free_ports(1)
    with reading(tmp_path, PAGE) as reader, ending_what_was_begun(reader):
        for block in blocks(TEXT):
            reader.do(replace(block, text=block.text.replace("8000", str(port))))
            if "http.server" in block.text:
                wait_until(lambda: listens(port), what="the web server of the page")


def test_every_block_of_it_is_tested() -> None:
    assert len(blocks(TEXT)) == TEXT.count("\n```") / 2
    assert not [block.line for block in blocks(TEXT) if not block.treatment]


@pytest.mark.parametrize("name", ["process-invoice.yaml", "process_invoice.py"])
def test_it_shows_the_files_as_they_are(name: str) -> None:
    (shown,) = [block.text for block in blocks(TEXT) if block.treatment == f"file {name}"]
    there = (ROOT / "docs" / "examples" / name).read_text(encoding="utf-8")

    assert shown == re.sub(r"\A(#.*\n)+", "", there)


def test_every_link_of_it_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        name, _, anchor = target.partition("#")
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        titles = re.findall(r"^#+ (.*)$", page, re.M)
        anchors = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in titles}
        assert not anchor or anchor in anchors, target
