"""The stages on which a case is played."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakeredis import FakeRedis, FakeServer
from redis.backoff import NoBackoff
from redis.retry import Retry

from integration.world import World
from language.memory_stage import MemoryStage
from language.redis_stage import RedisStage
from language.stage import Stage
from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import Keys


@pytest.fixture(params=["memory", "redis", "fakeredis"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    if request.param == "memory":
        yield MemoryStage()
    else:
        yield from _on_redis(request)


@pytest.fixture(params=["redis", "fakeredis"])
def redis_stage(request: pytest.FixtureRequest) -> Iterator[RedisStage]:
    """For what can only be said of queues, workers and streams."""
    yield from _on_redis(request)


def _on_redis(request: pytest.FixtureRequest) -> Iterator[RedisStage]:
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        world = World(lambda: connect(url), Keys(partitions=1))
    else:
        server = FakeServer()
        world = World(lambda: fake_client(server), Keys(partitions=1), is_fake=True)
    yield RedisStage(world)
    world.close()


def fake_client(server: FakeServer) -> Client:
    return FakeRedis(
        server=server,
        protocol=2,
        decode_responses=True,
        encoding_errors="replace",
        retry=Retry(NoBackoff(), 0),
    )
