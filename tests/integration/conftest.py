"""The worlds of the integration tests: every behaviour on a real Redis, and on a fake one where it can."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakeredis import FakeRedis, FakeServer
from redis.backoff import NoBackoff
from redis.retry import Retry

from integration.world import Proxy, World
from orchestrator.redis_rq.connection import Client, connect
from redis_server import RedisServer


@pytest.fixture(params=["fake", "real"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "real":
        yield from _real(request.getfixturevalue("redis_url"))
    else:
        yield from _fake()


@pytest.fixture
def real_world(redis_url: str) -> Iterator[World]:
    yield from _real(redis_url)


@pytest.fixture
def proxy(redis_server: RedisServer, redis_url: str) -> Iterator[Proxy]:
    """A line to our Redis that can be cut."""
    with tempfile.TemporaryDirectory(prefix="p") as folder:
        made = Proxy(redis_server.socket, Path(folder, "p.sock"))
        yield made
        made.close()


@pytest.fixture
def proxied(proxy: Proxy) -> Iterator[Client]:
    client = connect(f"unix://{proxy.path}")
    yield client
    client.close()


def _real(url: str) -> Iterator[World]:
    world = World(lambda: connect(url))
    yield world
    world.close()


def _fake() -> Iterator[World]:
    server = FakeServer()

    def fake() -> Client:
        return FakeRedis(
            server=server,
            protocol=2,
            decode_responses=True,
            encoding_errors="replace",
            retry=Retry(NoBackoff(), 0),
        )

    world = World(fake, is_fake=True)
    yield world
    world.close()
