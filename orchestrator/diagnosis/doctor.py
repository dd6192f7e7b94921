"""Runs every check, in a bounded number of Redis commands, whatever amount of data Redis holds."""

from __future__ import annotations

from collections.abc import Sequence

from redis.exceptions import NoPermissionError

from orchestrator.application.errors import StoreError
from orchestrator.diagnosis.checks import Check, problem
from orchestrator.diagnosis.damage import check_damage
from orchestrator.diagnosis.leftovers import check_leftovers
from orchestrator.diagnosis.server import check_server
from orchestrator.diagnosis.snapshot import RedisSnapshot
from orchestrator.diagnosis.throughput import check_throughput
from orchestrator.redis_rq.connection import Client
from orchestrator.redis_rq.keys import Keys

CHECK_NAMES = (
    "redis",
    "aof",
    "rdb",
    "eviction",
    "memory",
    "replication",
    "clock",
    "coordinators",
    "starts",
    "events",
    "streams",
    "partitions",
    "timers",
    "leases",
    "workers",
    "queues",
    "failed_jobs",
    "declined",
    "stream_ids",
    "partial",
    "dead_letters",
    "webhooks",
    "counters",
    "index",
    "rq",
    "executors",
)
"""Every check, in the order in which they run."""


def run_checks(client: Client, keys: Keys, executors: Sequence[str] = ()) -> list[Check]:
    """Check Redis and the processes that use it. A Redis that cannot be used is reported as a problem."""
    snapshot = RedisSnapshot(client, keys)
    try:
        return [
            *check_server(client),
            *check_throughput(snapshot),
            *check_damage(snapshot),
            *check_leftovers(snapshot, executors),
        ]
    except NoPermissionError as error:
        advice = "grant it the reader permissions (docs/security.md); ACL LOG shows the command and the key"
        return [problem("redis", f"this Redis user lacks a permission: {error}", advice)]
    except StoreError as error:
        cause = str(error).removeprefix("Redis: ")
        advice = "start Redis, or set another URL with --redis-url or ORCHESTRATOR_REDIS_URL"
        return [problem("redis", f"cannot use Redis: {cause}", advice)]
