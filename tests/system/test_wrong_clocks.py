"""Hosts whose clocks are two minutes ahead or behind: nobody is taken for lost, and timers are in time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from processes import ROOT, Stack, stack, wait_until
from system.test_every_hop import WORKERS
from worlds.waiting import at_some_pace

pytestmark = pytest.mark.slow

KEYS = Keys()
LATE_S = 100
"""A timer that a wrong clock has delayed is later than this."""


def steps(pace: int) -> list[dict[str, Any]]:
    """The first one runs longer than the lease."""
    numbers = {"a": 1, "b": 2}
    return [
        {"id": "long", "fn": "slow_add", "input": {**numbers, "seconds": 3 * pace}, "timeout": "60s"},
        {"id": "nap", "delay": "1s"},
        {"id": "after", "fn": "slow_add", "input": numbers, "depends_on": ["long", "nap"]},
    ]


ROLES: dict[str, Callable[[Stack], Any]] = {
    "coordinator": Stack.coordinator,
    **WORKERS,
    "crew": lambda world: world.worker("default", "--concurrency", "2"),
}

SKEWED = [
    ("coordinator", 120),
    ("coordinator", -120),
    ("rq worker", 120),
    ("orchestrator worker", -120),
    ("crew", 120),
]

# Python imports it before anything else. Only the time of day is wrong: a monotonic clock has none.
SITE = """
import datetime, time

right = time.time
time.time = lambda: right() + SKEW
time.time_ns = lambda: int(time.time() * 1e9)

class Datetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls):
        return cls.now(datetime.timezone.utc).replace(tzinfo=None)

datetime.datetime = Datetime
"""


def wrong_clock(folder: Path, skew_s: int) -> dict[str, str]:
    """The environment of a process whose clock is off by so much."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"SKEW = {skew_s}\n{SITE}")
    return {"PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT, ROOT / "tests")))}


@pytest.mark.parametrize(("role", "skew_s"), SKEWED)
def test_a_clock_that_is_wrong_harms_nothing(role: str, skew_s: int, redis_url: str, tmp_path: Path) -> None:
    at_some_pace(lambda pace: harms_nothing(role, skew_s, redis_url, tmp_path / f"{pace}", pace))


def harms_nothing(role: str, skew_s: int, redis_url: str, folder: Path, pace: int) -> None:
    environment = {"ORCHESTRATOR_LEASE_S": f"{2 * pace}"}
    folder.mkdir()
    wrong = environment | wrong_clock(folder / "site", skew_s)
    with (
        stack(redis_url, "step_functions", folder / "right", **environment) as world,
        stack(redis_url, "step_functions", folder / "wrong", **wrong) as skewed,
        connect(redis_url) as redis,
    ):
        redis.flushall()
        ROLES["orchestrator worker" if role == "coordinator" else "coordinator"](world)
        ROLES[role](skewed)
        wait_until(lambda: redis.zcard(KEYS.coordinators) == redis.scard("rq:workers") == 1, what="both")
        began: Any = redis.time()
        redis.xadd(KEYS.starts, {"spec": json.dumps({"steps": steps(pace)}), "execution_id": "x"})
        wait_until(lambda: redis.zcard(KEYS.ended) == 1, what="its end")

        ended: Any = redis.time()
        assert ended[0] - began[0] < LATE_S, "a timer was two minutes late"
        assert redis.hget(KEYS.counters, "lost") is None, world.log() + skewed.log()
        record: Any = redis.hgetall(KEYS.workflow(str(redis.get(KEYS.execution("x")))))
        assert record["status"] == "complete", record
        told = json.loads(record["step:long"])
        assert told["dispatches"] == 1
        if role in WORKERS:
            times = [datetime.fromisoformat(told[name]) for name in ("dispatched_at", "started_at")]
            assert abs((times[1] - times[0]).total_seconds() - skew_s) < 60, "its clock was not wrong at all"
