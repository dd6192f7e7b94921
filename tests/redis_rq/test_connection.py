"""Clients of ours, made like those of others."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from orchestrator.redis_rq.connection import connect_like


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("url", ["redis://localhost:1/3", "rediss://localhost:1/3", "unix:///a/b?db=3"])
def test_a_client_is_made_like_that_of_a_stock_worker_whatever_it_speaks(url: str, protocol: int) -> None:
    other = redis.Redis.from_url(url, protocol=protocol)

    made: Any = connect_like(other).connection_pool.make_connection()

    assert made.db == 3
    assert type(made) is other.connection_pool.connection_class


def test_a_client_is_made_like_one_that_says_nothing_of_a_protocol() -> None:
    """As `rq worker --url redis://...` makes it."""
    other = redis.Redis.from_url("redis://me:secret@localhost:1/3")

    made: Any = connect_like(other).connection_pool.make_connection()

    assert (made.db, made.username, made.password) == (3, "me", "secret")
