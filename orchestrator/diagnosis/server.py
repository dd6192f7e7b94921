"""Checks the Redis server itself: persistence, memory, replication, clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import redis

from orchestrator.application.explain.text import format_duration
from orchestrator.diagnosis.checks import Check, ok, problem, warning
from orchestrator.redis_rq.connection import MINIMUM_REDIS, Client, translate_errors

MEMORY_WARNING_SHARE, MEMORY_PROBLEM_SHARE = 0.8, 0.95
SKEW_MS, LARGE_SKEW_MS = 2_000, 30_000

Info = dict[str, Any]


def check_server(client: Client, clock: Callable[[], float] = time.time) -> list[Check]:
    """Check the server. `clock` returns the time of this machine in seconds."""
    info = _read_info(client)
    if info is None:
        found = "the command INFO is not allowed, so the server settings cannot be checked"
        advice = "allow INFO for this user, or ask the administrator of this Redis"
        server = [warning("redis", found, advice)]
    else:
        server = [
            _check_version(info),
            _check_aof(info),
            _check_rdb(info),
            _check_eviction(info),
            _check_memory(info),
            _check_replication(info),
        ]
    return [*server, _check_clock(client, clock)]


def _read_info(client: Client) -> Info | None:
    """Read all sections in one command; None if INFO is unknown or not allowed."""
    try:
        with translate_errors():
            found: Any = client.info()
    except redis.exceptions.ResponseError:
        return None
    return dict(found)


def _check_version(info: Info) -> Check:
    text = str(info.get("redis_version", "?"))
    version = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if version < MINIMUM_REDIS:
        required = ".".join(map(str, MINIMUM_REDIS))
        return problem("redis", f"Redis {text} is too old", f"upgrade to Redis {required} or newer")
    return ok("redis", f"Redis {text} responds")


def _check_aof(info: Info) -> Check:
    if not info.get("aof_enabled"):
        found = "the append-only file is disabled: all data is lost when Redis stops"
        advice = "set appendonly yes in redis.conf, or start Redis with --appendonly yes"
        return problem("aof", found, advice)
    if info.get("aof_last_write_status", "ok") != "ok" or info.get("aof_last_bgrewrite_status", "ok") != "ok":
        found = "the append-only file cannot be written"
        advice = "check the disk and the Redis log: Redis rejects writes until this is fixed"
        return problem("aof", found, advice)
    return ok("aof", "the append-only file is enabled")


def _check_rdb(info: Info) -> Check:
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        advice = (
            "check the disk and the memory of the Redis host: with stop-writes-on-bgsave-error, Redis rejects"
            " writes"
        )
        return warning("rdb", "the last snapshot failed", advice)
    return ok("rdb", "no snapshot has failed")


def _check_eviction(info: Info) -> Check:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        found = f"Redis evicts keys when its memory is full ({policy}), including workflows"
        advice = "set maxmemory-policy noeviction in redis.conf, or start Redis with that option"
        return problem("eviction", found, advice)
    return ok("eviction", "keys are never evicted")


def _check_memory(info: Info) -> Check:
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    used_mb = f"{used / 2**20:,.0f} MB used"
    if not limit:
        return ok("memory", f"{used_mb}, no limit", used_bytes=used)
    numbers = {"used_bytes": used, "limit_bytes": limit}
    share, found = used / limit, f"{used_mb} of {limit / 2**20:,.0f} MB ({used / limit:.0%})"
    advice = "add memory, or keep finished executions for less time (ORCHESTRATOR_RETENTION_S)"
    if share >= MEMORY_PROBLEM_SHARE:
        return problem("memory", f"{found}: Redis is about to reject writes", advice, **numbers)
    if share >= MEMORY_WARNING_SHARE:
        return warning("memory", found, advice, **numbers)
    return ok("memory", found, **numbers)


def _check_replication(info: Info) -> Check:
    if info.get("role") == "slave":
        primary = f"{info.get('master_host')}:{info.get('master_port')}"
        found = f"this server is a replica of {primary} and does not accept writes"
        return problem("replication", found, "set --redis-url to the primary, or to a Sentinel URL")
    replicas = int(info.get("connected_slaves", 0))
    return ok("replication", f"primary with {replicas} replicas", replicas=replicas)


def _check_clock(client: Client, clock: Callable[[], float]) -> Check:
    """Compare the clock of this machine, halfway through the request, with that of Redis."""
    before = clock()
    with translate_errors():
        seconds, micros = client.time()
    here = (before + clock()) / 2
    skew_ms = (here - int(seconds) - int(micros) / 1e6) * 1000
    side = "ahead of" if skew_ms > 0 else "behind"
    found = f"this machine is {format_duration(abs(skew_ms))} {side} Redis"
    advice = "synchronize both clocks with NTP: workers report the times of steps, and RQ compares times"
    if abs(skew_ms) >= LARGE_SKEW_MS:
        return problem("clock", found, advice, skew_ms=round(skew_ms))
    if abs(skew_ms) >= SKEW_MS:
        return warning("clock", found, advice, skew_ms=round(skew_ms))
    return ok("clock", found, skew_ms=round(skew_ms))
