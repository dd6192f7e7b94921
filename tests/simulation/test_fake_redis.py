"""fakeredis returns the error messages of Redis for missing streams and groups, which our code compares."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from orchestrator.redis_rq.connection import connect
from simulation.fake_redis import FakeRedisServer

ASKED = (
    ["XREADGROUP", "GROUP", "g", "one", "STREAMS", "x", ">"],
    ["XPENDING", "x", "g", "-", "+", "10"],
    ["XCLAIM", "x", "g", "one", "0", "1-1"],
)


def refusal(execute: Any, words: list[str]) -> str:
    with pytest.raises(redis.exceptions.ResponseError) as refused:
        execute(*words)
    return str(refused.value).split()[0]


@pytest.mark.parametrize("words", ASKED, ids=lambda words: words[0])
def test_a_stream_that_is_gone_and_a_group_that_is_gone_have_the_same_name(
    redis_url: str, words: list[str]
) -> None:
    client, fake = connect(redis_url), FakeRedisServer(lambda: 1_700_000_000_000)
    for execute in (client.execute_command, fake.execute):
        execute("DEL", "x")
        assert refusal(execute, words) == "NOGROUP"
        execute("XADD", "x", "1-1", "a", "b")
        assert refusal(execute, words) == "NOGROUP"
    client.close()
