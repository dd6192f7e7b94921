"""What every test may ask for: our own Redis, empty; a fake one; and patience with slow machines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakeredis import FakeRedis, FakeServer
from hypothesis import settings
from redis import Redis

from redis_server import RedisServer, own_redis

settings.register_profile("shared-cores", deadline=None)  # a busy machine is not a defect
settings.load_profile("shared-cores")


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One redis-server for each test process. A test that kills servers starts its own with own_redis()."""
    with own_redis(tmp_path_factory.getbasetemp()) as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The URL of our own Redis, emptied for this test."""
    with redis_server.client() as client:
        client.flushall()
    return redis_server.url


@pytest.fixture
def redis_client(redis_server: RedisServer, redis_url: str) -> Iterator[Redis]:
    """A client of our own Redis, emptied for this test; it answers in bytes."""
    with redis_server.client() as client:
        yield client


@pytest.fixture
def fake_redis() -> Iterator[Redis]:
    """A Redis inside this process, with no other test's data in it; it answers in bytes."""
    with FakeRedis(server=FakeServer(), protocol=2) as client:
        yield client
