"""Everything is deleted while all runs; Redis dies with timers that are due."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.application.errors import Unavailable
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.event_log import RedisEventLog
from orchestrator.redis_rq.keys import Keys, timer_member
from processes import stack, wait_until
from worlds.redis_world import durable_world
from worlds.waiting import at_some_pace

KEYS = Keys()
TIMERS = 10_000


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--concurrency", "4")], ids=["orchestrator worker", "crew"])
def test_a_flushed_redis_is_told_of_loudly_and_served_again(
    options: tuple[str, ...], redis_url: str, tmp_path: Path
) -> None:
    spec = {"steps": [{"id": "s", "fn": "slow_add", "input": {"a": 1, "b": 2, "seconds": 0.5}}]}
    fields = {"spec": json.dumps(spec)}
    with stack(redis_url, "step_functions", tmp_path) as world, connect(redis_url) as redis:
        processes = [world.coordinator(), world.worker("default", *options)]
        for _ in range(5):
            redis.xadd(KEYS.starts, {**fields})
        wait_until(lambda: redis.zcard(KEYS.leases), what=world.log())

        redis.flushall()
        redis.xadd(KEYS.starts, {**fields, "execution_id": "later"})

        def is_complete() -> bool:
            weid = redis.get(KEYS.execution("later"))
            return redis.zscore(KEYS.index("complete"), str(weid)) is not None

        wait_until(is_complete, what=world.log())
        assert "Redis was flushed" in world.log()
        assert world.log().count("ERROR") < 5, "said, and not repeated"
        assert [process.poll() for process in processes] == [None, None]


def test_ten_thousand_timers_and_three_sweepers_and_a_killed_redis_make_each_event_once(
    tmp_path: Path,
) -> None:
    """On a busy machine it takes more of them: the server is to be killed before all are raised."""
    at_some_pace(lambda pace: each_event_once(tmp_path, pace * TIMERS))


def each_event_once(folder: Path, count: int) -> None:
    with durable_world(folder) as (world, server):
        world.log().open()
        world.client.zadd(
            KEYS.timers, {timer_member("deadline", "w#x", f"s{n}", f"t{n}"): 1 for n in range(count)}
        )

        def sweep(log: RedisEventLog) -> None:
            with suppress(Unavailable):
                for _ in range(count):
                    log.sweep()

        threads = [
            threading.Thread(target=sweep, args=[world.log(f"c{n}", world.connect())]) for n in range(3)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: world.client.zcard(KEYS.timers) < count // 2, what="half of them to be raised")
        server.kill()
        for thread in threads:
            thread.join()
        server.start()
        assert world.client.zcard(KEYS.timers) > 0, "it was killed in the middle"
        while world.log().sweep():
            pass

        tokens = [fields["token"] for _, fields in world.events()]
        assert len(tokens) == len(set(tokens)) == count
