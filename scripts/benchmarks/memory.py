"""How much of Redis's memory things take: what becomes free when they are deleted."""

from __future__ import annotations

from typing import Any

from orchestrator.redis_rq.connection import Client
from scripts.benchmarks.documents import DIAMOND, fan
from scripts.benchmarks.measuring import Run, Wrong
from scripts.benchmarks.processes import started
from scripts.benchmarks.rig import Rig

DIAMONDS = 500
KEYS_AT_ONCE = 100


def memory(steps: int) -> Run:
    """Of each step of one execution with so many, of small executions, and of jobs that wait; in bytes.
    What they leave in the history is counted apart."""
    with started() as fleet:
        rig = Rig(fleet.server)
        run, redis, keys = Run("memory", steps, "redis", steps), rig.redis, rig.keys
        rig.producer.send_start(fan(steps - 2), {})
        rig.settle(Run.nobody())
        run.facts["settled_step"] = _freed(redis, keys.workflow("*")) / steps
        run.facts["history_of_a_step"] = _freed(redis, keys.history("*")) / steps
        rig.producer.send_start(fan(steps - 2), {})
        rig.coordinate(Run.nobody())
        rig.work()
        rig.coordinate(Run.nobody())  # now all but two of its steps wait in their queue
        run.facts["hash_of_a_job"] = _freed(redis, keys.rq_job("*")) / (steps - 2)
        places = _freed(redis, keys.rq_queue("*"), keys.leases) / (steps - 2)
        run.facts["queued_job"] = run.facts["hash_of_a_job"] + places
    with started() as fleet:
        rig = Rig(fleet.server)
        rig.producer.register("diamond", DIAMOND)
        rig.start_many("diamond", DIAMONDS, "d")
        rig.settle(Run.nobody())
        own = (keys.workflow("*"), keys.execution("*"))
        run.facts["execution_of_4_steps"] = _freed(rig.redis, *own) / DIAMONDS
        run.facts["history_of_4_steps"] = _freed(rig.redis, keys.history("*")) / DIAMONDS
    return run


def _freed(redis: Client, *patterns: str) -> int:
    """How many bytes all keys of these names took."""
    found = [str(key) for pattern in patterns for key in redis.scan_iter(pattern, count=1_000)]
    if len(found) < len(patterns):
        raise Wrong(f"nothing to measure: {found} of {patterns}")
    before = _used(redis)
    for first in range(0, len(found), KEYS_AT_ONCE):
        redis.delete(*found[first : first + KEYS_AT_ONCE])
    return before - _used(redis)


def _used(redis: Client) -> int:
    info: Any = redis.info("memory")
    return int(info["used_memory"])
