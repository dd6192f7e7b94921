"""The small Redis answers as a real one does: the same commands, drawn by chance, to both of them.

Times are left out of it: entries have ids of their own, and what is idle is not asked for. Scripts are the
orchestrator's own, which the simulations run; here it is whether numbers, nothing and lists pass as they do
in Redis.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import redis

from orchestrator.redis_rq.connection import connect
from simulation.small_redis import SmallRedis

KEYS = {"string": "s", "hash": "h", "list": "l", "set": "m", "zset": "z", "stream": "x"}
COMMANDS = 300

ECHO = """
local kept = redis.call("HGET", KEYS[1], "nothing")
redis.call("ZADD", KEYS[2], ARGV[1] + 0.5, "half")
local listed = redis.call("LRANGE", "l", 0, -1)
local answer = { tostring(kept), ARGV[1] * 2, 7.9, redis.call("ZSCORE", KEYS[2], "half"), #listed }
answer[6] = redis.pcall("LPUSH_", "x").err and "refused" or "done"
answer[7] = cjson.decode('{"a": [1, {"b": "c"}]}').a[2].b
answer[8] = redis.sha1hex("x")
answer[9] = false
answer[10] = "beyond what is nothing"
return answer
"""


def command(draw: Random, number: int) -> list[Any]:
    """One command, upon a key that mostly has the right type."""
    key = KEYS[draw.choice(list(KEYS))] if draw.random() < 0.03 else ""
    field, value = draw.choice("abc"), str(draw.randint(0, 9))
    score, low, high = draw.choice(["1", "2.5", "+inf", "7"]), draw.choice(["-inf", "2", "(2"]), "+inf"
    first, last = str(draw.randint(-3, 2)), str(draw.randint(-2, 3))
    entry, group = f"{draw.randint(1, number)}-0", draw.choice(["g", "g", "g", "other"])
    s, h, lists, z, x = (key or one for one in ("s", "h", "l", "z", "x"))
    commands: list[list[Any]] = [
        ["SET", s, value], ["GET", s], ["DEL", s, h], ["EXISTS", s, h, z], ["TYPE", draw.choice("shlmzx")],
        ["SET", s, value, "EX", "100"], ["TTL", s], ["PERSIST", s], ["EXPIRE", h, "50"],
        ["TTL", h], ["TTL", "none"],
        ["HSET", h, field, value, "z", "1"], ["HGET", h, field], ["HMGET", h, "a", "q"], ["HDEL", h, field],
        ["HINCRBY", h, "n", value], ["HEXISTS", h, field], ["HSETNX", h, field, value], ["HLEN", h],
        ["RPUSH", lists, value, field], ["LPOP", lists], ["LPOP", lists, "2"], ["LRANGE", lists, first, last],
        ["LINDEX", lists, first], ["LLEN", lists], ["SADD", "m", field, value],
        ["ZADD", z, score, field], ["ZADD", z, "NX", score, field], ["ZADD", z, "XX", "CH", score, field],
        ["ZREM", z, field], ["ZSCORE", z, field], ["ZMSCORE", z, "a", "q"], ["ZCARD", z],
        ["ZRANGE", z, first, last], ["ZRANGE", z, "0", "-1", "WITHSCORES"],
        ["ZRANGEBYSCORE", z, low, high], ["ZRANGEBYSCORE", z, low, high, "WITHSCORES", "LIMIT", "0", "1"],
        ["ZREVRANGEBYSCORE", z, high, low, "LIMIT", "0", "2", "WITHSCORES"],
        ["ZREMRANGEBYSCORE", z, "-inf", "(2"], ["ZREMRANGEBYRANK", z, "0", "0"],
        ["XADD", x, f"{number}-0", field, value], ["XADD", x, f"{number}-0", field, value], ["XLEN", x],
        ["XADD", x, "NOMKSTREAM", "MAXLEN", "~", "1000", f"{number}-0", field, value],
        ["XRANGE", x, "-", "+"], ["XRANGE", x, entry, "+", "COUNT", "2"],
        ["XREVRANGE", x, "+", "-", "COUNT", "1"],
        ["XGROUP", "CREATE", x, "g", draw.choice(["0", "$"]), "MKSTREAM"],
        ["XREADGROUP", "GROUP", group, "one", "COUNT", "2", "STREAMS", x, ">"],
        ["XREADGROUP", "GROUP", group, "two", "COUNT", "1", "STREAMS", x, ">"],
        ["XACK", x, group, entry], ["XPENDING", x, group], ["XCLAIM", x, "g", "two", "0", entry],
        ["XCLAIM", x, "g", "one", "0", entry, "JUSTID"],
        ["XDEL", x, entry], ["XTRIM", x, "MINID", entry],
    ]  # fmt: skip
    return draw.choice(commands)


def answer_of(execute: Any, words: list[Any]) -> Any:
    try:
        return execute(*words)
    except redis.exceptions.ResponseError as error:
        return str(error).split()[0]  # the kind of the error: its words are Redis' own


@pytest.mark.parametrize("seed", range(12))
def test_the_same_commands_have_the_same_answers(redis_url: str, seed: int) -> None:
    client, small, draw = connect(redis_url), SmallRedis(lambda: 1_700_000_000_000), Random(seed)
    client.response_callbacks.clear()
    client.execute_command("FLUSHALL")  # type: ignore[no-untyped-call]
    for number in range(1, COMMANDS):
        words = command(draw, number)
        wanted, found = answer_of(client.execute_command, words), answer_of(small.execute, words)
        assert found == wanted, f"{words} after {number} commands"
    client.close()


def test_scripts_see_what_they_see_in_redis(redis_url: str) -> None:
    client, small = connect(redis_url), SmallRedis(lambda: 1_700_000_000_000)
    answers = []
    for execute in (client.execute_command, small.execute):
        execute("DEL", "h", "z", "l")
        execute("RPUSH", "l", "a", "b")
        sha = execute("SCRIPT", "LOAD", ECHO)
        answers.append(execute("EVALSHA", sha, "2", "h", "z", "3"))
    client.close()

    assert answers[0] == answers[1]
    assert answers[1][:5] == ["false", 6, 7, "3.5", 2]


def test_what_is_put_back_is_as_it_was() -> None:
    small = SmallRedis(lambda: 1_700_000_000_000)
    small.execute("XADD", "x", "1-0", "a", "b")
    small.execute("XGROUP", "CREATE", "x", "g", "0")
    before = small.copy()
    small.execute("XREADGROUP", "GROUP", "g", "one", "STREAMS", "x", ">")
    small.execute("HSET", "h", "a", "b")

    small.restore(before)

    assert small.keys() == ["x"]
    assert small.execute("XPENDING", "x", "g") == [0, None, None, None]


def test_what_has_expired_is_gone() -> None:
    now_ms = 1_700_000_000_000
    small = SmallRedis(lambda: now_ms)
    small.execute("SET", "s", "1", "EX", "10")
    now_ms += 9_999
    assert small.execute("GET", "s") == "1"
    now_ms += 1
    assert small.execute("GET", "s") is None
