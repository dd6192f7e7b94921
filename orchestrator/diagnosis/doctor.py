"""Everything looked at once: a bounded number of commands, however much this Redis holds."""

from __future__ import annotations

from collections.abc import Sequence

from redis.exceptions import NoPermissionError

from orchestrator.application.errors import StoreError
from orchestrator.diagnosis.checks import Check, problem
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
    "dead_letters",
    "counters",
    "index",
    "rq",
    "executors",
)
"""Every check, in the order in which they are made."""


def run_checks(client: Client, keys: Keys, executors: Sequence[str] = ()) -> list[Check]:
    """How this Redis is, and those who serve it. One that cannot be used is a problem, not an error."""
    snapshot = RedisSnapshot(client, keys)
    try:
        return [*check_server(client), *check_throughput(snapshot), *check_leftovers(snapshot, executors)]
    except NoPermissionError as error:
        advice = "give it the rights of a reader, see docs/security.md; ACL LOG names the command and the key"
        return [problem("redis", f"this user lacks a permission: {error}", advice)]
    except StoreError as error:
        cause = str(error).removeprefix("Redis: ")
        advice = "start it, or name another with --redis-url or ORCHESTRATOR_REDIS_URL"
        return [problem("redis", f"Redis cannot be used: {cause}", advice)]
