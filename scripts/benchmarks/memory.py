"""Measures the memory of keys in Redis: the memory that is free after they are deleted."""

from __future__ import annotations

from typing import Any

from orchestrator.redis_rq.connection import Client
from scripts.benchmarks.documents import DIAMOND, fan
from scripts.benchmarks.measuring import Run, WrongResult
from scripts.benchmarks.processes import start_fleet
from scripts.benchmarks.rig import Rig

DIAMONDS = 500
DELETE_BATCH_SIZE = 100


def memory(steps: int) -> Run:
    """Measure the bytes of each step of a large execution, of small executions, and of queued jobs. The
    history is counted separately."""
    with start_fleet() as fleet:
        rig = Rig(fleet.server)
        run, redis, keys = Run("memory", steps, "redis", steps), rig.redis, rig.keys
        rig.producer.send_start(fan(steps - 2), {})
        rig.settle(Run.unmeasured())
        run.facts["settled_step"] = _delete_and_measure(redis, keys.workflow("*")) / steps
        run.facts["history_of_a_step"] = _delete_and_measure(redis, keys.history("*")) / steps
        rig.producer.send_start(fan(steps - 2), {})
        rig.coordinate(Run.unmeasured())
        rig.work()
        rig.coordinate(Run.unmeasured())  # now all but two of its steps are queued
        run.facts["hash_of_a_job"] = _delete_and_measure(redis, keys.rq_job("*")) / (steps - 2)
        entries = _delete_and_measure(redis, keys.rq_queue("*"), keys.leases) / (steps - 2)
        run.facts["queued_job"] = run.facts["hash_of_a_job"] + entries
    with start_fleet() as fleet:
        rig = Rig(fleet.server)
        rig.producer.register("diamond", DIAMOND)
        rig.start_many("diamond", DIAMONDS, "d")
        rig.settle(Run.unmeasured())
        own = (keys.workflow("*"), keys.execution("*"))
        run.facts["execution_of_4_steps"] = _delete_and_measure(rig.redis, *own) / DIAMONDS
        run.facts["history_of_4_steps"] = _delete_and_measure(rig.redis, keys.history("*")) / DIAMONDS
    return run


def _delete_and_measure(redis: Client, *patterns: str) -> int:
    """Delete all keys that match and return the freed bytes."""
    found = [str(key) for pattern in patterns for key in redis.scan_iter(pattern, count=1_000)]
    if len(found) < len(patterns):
        raise WrongResult(f"nothing to measure: {found} of {patterns}")
    before = _used_bytes(redis)
    for first in range(0, len(found), DELETE_BATCH_SIZE):
        redis.delete(*found[first : first + DELETE_BATCH_SIZE])
    return before - _used_bytes(redis)


def _used_bytes(redis: Client) -> int:
    info: Any = redis.info("memory")
    return int(info["used_memory"])
