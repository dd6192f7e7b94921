"""What attacks are tried on: a page with users, and one without; each request is sent in this process.

No client would write these requests: see asgi_sender.py. Those that need a connection or a browser are in
test_connections.py and test_other_pages.py. Every route with every method and role is in test_routes.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import web
from servers.asgi_sender import AsgiSender
from worlds.page_users import write_users
from worlds.redis_world import RedisWorld, running


@pytest.fixture
def users(tmp_path: Path) -> Path:
    return write_users(tmp_path)


@pytest.fixture
def page(redis_url: str, users: Path) -> AsgiSender:
    """A page with users, asked without one."""
    return AsgiSender(web.app(redis_url, tokens=str(users)))


@pytest.fixture
def local(redis_url: str) -> AsgiSender:
    """A page without users: every request of this machine may operate."""
    return AsgiSender(web.app(redis_url))


@pytest.fixture
def live(world: RedisWorld) -> Iterator[None]:
    """A coordinator, so that no action waits for its reply."""
    with running(world.coordinator("live")):
        yield
