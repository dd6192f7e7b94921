"""What tests of the tools may ask for: a system on our own Redis, with a coordinator that replies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.mcp.system import System
from orchestrator.settings import Settings
from worlds.redis_world import RedisWorld, running


@pytest.fixture
def system(redis_url: str) -> System:
    return System(Settings(redis_url=redis_url), user="ada")


@pytest.fixture
def live(world: RedisWorld) -> Iterator[RedisWorld]:
    """A world whose coordinator runs beside the test."""
    with running(world.coordinator("live")):
        yield world
