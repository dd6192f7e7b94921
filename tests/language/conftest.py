"""The stages on which a case is played."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from language.memory_stage import MemoryStage
from language.redis_stage import RedisStage
from language.sqlite_stage import SqliteStage
from language.stage import Stage
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from worlds.redis_world import RedisWorld


@pytest.fixture(params=["memory", pytest.param("sqlite", marks=pytest.mark.full), "redis"])
def stage(request: pytest.FixtureRequest) -> Stage:
    if request.param == "memory":
        return MemoryStage()
    stage: Stage = request.getfixturevalue(f"{request.param}_stage")
    return stage


@pytest.fixture
def sqlite_stage(tmp_path: Path) -> Iterator[SqliteStage]:
    stage = SqliteStage(tmp_path / "stage.db")
    yield stage
    stage.close()


@pytest.fixture
def redis_stage(redis_url: str) -> Iterator[RedisStage]:
    """For tests of queues, workers and streams."""
    world = RedisWorld(lambda: connect(redis_url), Keys(partitions=1))
    yield RedisStage(world)
    world.close()
