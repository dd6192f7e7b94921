"""The Redis server itself: does it keep what it is told, does it take writes, is its clock right."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import redis

from orchestrator.application.explain.text import format_duration
from orchestrator.diagnosis.checks import Check, ok, problem, warning
from orchestrator.redis_rq.connection import MINIMUM_REDIS, Client, translate_errors

NEARLY_FULL, FULL = 0.8, 0.95
SKEW_MS, LARGE_SKEW_MS = 2_000, 30_000

Info = dict[str, Any]


def check_server(client: Client, clock: Callable[[], float] = time.time) -> list[Check]:
    """`clock` is that of this machine, in seconds."""
    info = _info(client)
    if info is None:
        found = "it does not say what it is (INFO is refused)"
        server = [warning("redis", found, "allow INFO to this user, or ask whoever runs this Redis")]
    else:
        server = [
            _version(info),
            _aof(info),
            _rdb(info),
            _eviction(info),
            _memory(info),
            _replication(info),
        ]
    return [*server, _clock(client, clock)]


def _info(client: Client) -> Info | None:
    """All sections that matter, in one command; None where INFO is not known or not allowed."""
    try:
        with translate_errors():
            found: Any = client.info()
    except redis.exceptions.ResponseError:
        return None
    return dict(found)


def _version(info: Info) -> Check:
    text = str(info.get("redis_version", "?"))
    version = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if version < MINIMUM_REDIS:
        need = ".".join(map(str, MINIMUM_REDIS))
        return problem("redis", f"Redis {text} is too old", f"upgrade it to {need} or newer")
    return ok("redis", f"Redis {text} answers")


def _aof(info: Info) -> Check:
    if not info.get("aof_enabled"):
        advice = "start it with --appendonly yes (redis.conf: appendonly yes)"
        return problem("aof", "no append-only file: what it holds is lost when it dies", advice)
    if info.get("aof_last_write_status", "ok") != "ok" or info.get("aof_last_bgrewrite_status", "ok") != "ok":
        return problem(
            "aof",
            "the append-only file cannot be written",
            "look at the disk and the log of Redis: it refuses writes until this is put right",
        )
    return ok("aof", "the append-only file is written")


def _rdb(info: Info) -> Check:
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        return warning(
            "rdb",
            "the last snapshot failed",
            "look at the disk and the memory of its host: with stop-writes-on-bgsave-error it refuses writes",
        )
    return ok("rdb", "no snapshot has failed")


def _eviction(info: Info) -> Check:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        return problem(
            "eviction",
            f"it evicts keys when it is full ({policy}), workflows too",
            "start it with --maxmemory-policy noeviction (redis.conf: maxmemory-policy noeviction)",
        )
    return ok("eviction", "it evicts nothing")


def _memory(info: Info) -> Check:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    megabytes = f"{used / 2**20:,.0f} MB are used"
    if not most:
        return ok("memory", f"{megabytes}, without a limit")
    share, found = used / most, f"{megabytes} of {most / 2**20:,.0f} MB ({used / most:.0%})"
    advice = "give it more memory, or keep finished executions shorter (ORCHESTRATOR_RETENTION_S)"
    if share >= FULL:
        return problem("memory", f"{found}: it is about to refuse writes", advice)
    if share >= NEARLY_FULL:
        return warning("memory", found, advice)
    return ok("memory", found)


def _replication(info: Info) -> Check:
    if info.get("role") == "slave":
        return problem(
            "replication",
            f"this is a replica of {info.get('master_host')}:{info.get('master_port')}: it takes no writes",
            "name the primary with --redis-url, or ask Sentinel who that is",
        )
    replicas = int(info.get("connected_slaves", 0))
    return ok("replication", f"a primary with {replicas} replicas")


def _clock(client: Client, clock: Callable[[], float]) -> Check:
    """The clock of this machine against that of Redis, in the middle of asking for it."""
    before = clock()
    with translate_errors():
        seconds, micros = client.time()
    mine = (before + clock()) / 2
    skew_ms = (mine - int(seconds) - int(micros) / 1e6) * 1000
    side = "ahead of" if skew_ms > 0 else "behind"
    found = f"this machine is {format_duration(abs(skew_ms))} {side} Redis"
    advice = "set both clocks by NTP: times of steps are told by their workers, and RQ compares them"
    if abs(skew_ms) >= LARGE_SKEW_MS:
        return problem("clock", found, advice)
    if abs(skew_ms) >= SKEW_MS:
        return warning("clock", found, advice)
    return ok("clock", found)
