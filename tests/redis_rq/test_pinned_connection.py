"""A connection that is kept is closed when a reply does not come."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis.backoff import NoBackoff
from redis.exceptions import TimeoutError
from redis.retry import Retry

from orchestrator.redis_rq.connection import create_client
from orchestrator.redis_rq.pinned_connection import PinnedConnection
from servers.failovers import own_cell

TIMEOUT_S = 0.5


def first_reply(connection: PinnedConnection, text: str) -> object:
    """The first reply that comes at all: on a busy machine some may be too late."""
    for _ in range(100):
        try:
            return connection.echo(text)
        except TimeoutError:
            continue
    raise AssertionError("no reply at all")


@pytest.mark.slow
def test_after_a_timeout_a_connection_by_sentinels_reads_no_reply_of_an_earlier_command(
    tmp_path: Path,
) -> None:
    with own_cell(tmp_path) as cell:
        options = {"protocol": 2, "socket_timeout": TIMEOUT_S, "retry": Retry(NoBackoff(), 0)}
        connection = PinnedConnection(create_client(cell.url, **options, decode_responses=True))
        assert first_reply(connection, "before") == "before"

        with pytest.raises(TimeoutError):
            connection.execute_command("BLPOP", "nothing", 2 * TIMEOUT_S)

        assert first_reply(connection, "after") == "after"
        pipeline = connection.pipeline(transaction=False)
        pipeline.execute_command("BLPOP", "nothing", 2 * TIMEOUT_S)  # type: ignore[no-untyped-call]
        with pytest.raises(TimeoutError):
            pipeline.execute()
        assert first_reply(connection, "last") == "last"
        connection.connection_pool.disconnect()
