"""The README of each example is correct: its commands run in order, beside the files of the example."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.pages import blocks, check_treatments, reading
from processes import ROOT, wait_until
from servers.ports import free_ports

FOLDERS = sorted(path.parent.name for path in (ROOT / "docs" / "examples").glob("*/README.md"))
MAX_LINES = 50
"""A README is read without scrolling much."""


def page_of(folder: str) -> str:
    return f"docs/examples/{folder}/README.md"


def text_of(folder: str) -> str:
    return (ROOT / page_of(folder)).read_text(encoding="utf-8")


@contextmanager
def ending_what_was_started(folder: Path) -> Iterator[None]:
    """End the web server of a page, by the file with its pid."""
    try:
        yield
    finally:
        for path in folder.glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(path.read_text()), signal.SIGKILL)


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_everything_in_the_readme_works(folder: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs" / "examples" / folder, tmp_path, dirs_exist_ok=True)
    [port] = free_ports(1)
    with reading(tmp_path, page_of(folder)) as reader, ending_what_was_started(tmp_path):
        python = tmp_path / "bin" / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        for block in blocks(text_of(folder)):
            reader.do(replace(block, text=block.text.replace("8000", str(port))))
            if "http.server" in block.text:
                wait_until(lambda: listens(port), what="the web server of the page")

        assert not [service for service in reader.services if service.poll() is not None]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_block_of_it_names_its_treatment(folder: str) -> None:
    check_treatments(page_of(folder))


@pytest.mark.parametrize("folder", FOLDERS)
def test_it_fits_on_a_screen(folder: str) -> None:
    assert len(text_of(folder).splitlines()) <= MAX_LINES


def test_the_page_lists_every_example() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")

    assert sorted(re.findall(r"\]\(examples/([\w-]+)/README\.md\)", page)) == FOLDERS
