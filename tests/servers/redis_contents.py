"""What a Redis contains, and which commands it has executed."""

from __future__ import annotations

from typing import Any

from orchestrator.redis_rq.connection import Client

Json = dict[str, Any]


def snapshot(client: Client, *without: str) -> Json:
    """Everything in a Redis, but the keys that begin with one of these."""
    found: Json = {}
    for key in sorted(client.scan_iter()):
        if not key.startswith(without or ("\0",)) and (content := _content(client, key)) is not None:
            found[key] = content
    return found


def _content(client: Client, key: str) -> Any:
    match client.type(key):
        case "string":
            return client.get(key)
        case "hash":
            return client.hgetall(key)
        case "list":
            return client.lrange(key, 0, -1)
        case "set":
            return sorted(client.smembers(key))
        case "zset":
            return client.zrange(key, 0, -1, withscores=True)
        case "stream":
            return client.xrange(key)
        case "none":
            return None  # it expired under our eyes
    raise AssertionError(f"{key} has an unexpected type")


def calls(client: Client) -> dict[str, int]:
    """How often each command was called since CONFIG RESETSTAT, inside scripts too."""
    stats: Any = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): int(one["calls"]) for name, one in stats.items()}
