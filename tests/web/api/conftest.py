"""The API of a page on our own Redis, with a coordinator that replies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api_client import ApiClient
from servers.page_server import PageServer
from worlds.redis_world import RedisWorld, running


@pytest.fixture
def api(site: PageServer) -> ApiClient:
    """The API without a coordinator: what needs one gets no reply."""
    return ApiClient(site)


@pytest.fixture
def live(world: RedisWorld) -> Iterator[RedisWorld]:
    """A world whose coordinator runs beside the test."""
    with running(world.coordinator("live")):
        yield world
