"""Everything that a Redis holds, as JSON, and back: for data that an older release has written.

Of a group what it has read and not acknowledged is not kept: let there be nothing of the kind.
"""

from __future__ import annotations

from typing import Any

from redis import Redis

Kept = dict[str, dict[str, Any]]


def dump(client: Redis) -> Kept:
    """`client` decodes what it reads."""
    return {key: _dumped(client, key) for key in sorted(map(str, client.scan_iter()))}


def _dumped(client: Redis, key: str) -> dict[str, Any]:
    kind, ttl_s = str(client.type(key)), int(client.ttl(key))
    content: Any
    match kind:
        case "string":
            content = client.get(key)
        case "hash":
            content = client.hgetall(key)
        case "list":
            content = client.lrange(key, 0, -1)
        case "set":
            content = sorted(client.smembers(key))
        case "zset":
            members: Any = client.zrange(key, 0, -1, withscores=True)
            content = [[member, repr(score)] for member, score in members]
        case "stream":
            groups: Any = client.xinfo_groups(key)
            assert not any(group["pending"] for group in groups), f"{key} has pending entries"
            last: Any = client.xinfo_stream(key)
            content = {
                "entries": client.xrange(key),
                "groups": {group["name"]: group["last-delivered-id"] for group in groups},
                "last": last["last-generated-id"],
            }
        case _:
            raise AssertionError(f"{key} is a {kind}")
    return {"type": kind, "content": content, **({"ttl_s": ttl_s} if ttl_s >= 0 else {})}


def restore(client: Redis, kept: Kept) -> None:
    for key, one in kept.items():
        _restored(client, key, one["type"], one["content"])
        if "ttl_s" in one:
            client.expire(key, one["ttl_s"])


def _restored(client: Redis, key: str, kind: str, content: Any) -> None:
    match kind:
        case "string":
            client.set(key, content)
        case "hash":
            client.hset(key, mapping=content)
        case "list":
            client.rpush(key, *content)
        case "set":
            client.sadd(key, *content)
        case "zset":
            client.zadd(key, {member: float(score) for member, score in content})
        case "stream":
            client.xadd(key, {"x": "x"}, id="0-1")
            client.xtrim(key, maxlen=0, approximate=False)
            for entry_id, fields in content["entries"]:
                client.xadd(key, fields, id=entry_id)
            for group, read in content["groups"].items():
                client.xgroup_create(key, group, id=read)
