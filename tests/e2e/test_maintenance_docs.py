"""The pages about maintenance do what they say: backups, hosts, passwords, partitions and another Redis."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.pages import blocks, check_treatments, reading
from orchestrator.redis_rq.connection import connect

ROOT = Path(__file__).parents[2]
PAGES = ["backup", "draining", "moving-redis", "partitions", "rotating"]
SCREEN = 100
"""Lines of a page at most."""


def text_of(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, tmp_path: Path) -> None:
    """The name is short because the paths of sockets must be."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    (tmp_path / "new").mkdir()
    with reading(tmp_path, f"docs/{page}.md") as reader:
        for block in blocks(text_of(page)):
            reader.do(replace(block, text=block.text.replace("6379", port)))

        with connect(reader.redis_url) as redis:
            assert not redis.exists("orchestrator:dead")
        assert {service.poll() for service in reader.services} <= {None}, "a service has ended"


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_tested_and_the_page_is_short(page: str) -> None:
    check_treatments(f"docs/{page}.md")
    assert text_of(page).count("\n") <= SCREEN
