"""Everything at once: a whole system of real processes under mixed faults, and its invariants.

The same as `scripts/torture`, for half a minute. TORTURE_SEED draws other faults.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, TimeoutError
from redis.retry import Retry

from orchestrator.redis_rq.connection import connect
from processes import wait_until
from servers.redis_server import RedisServer, require_redis_server
from torture.fleet import Fleet, marked
from torture.partition import is_possible, partition
from torture.proxy import Proxy
from torture.run import PROCESSES, torture

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("TORTURE_SEED", "6"))


@pytest.mark.full
@pytest.mark.timeout(900)
def test_nothing_is_lost_and_nothing_counts_twice_whatever_fails() -> None:
    require_redis_server()

    report = torture(0.5, SEED, PROCESSES["mixed"])

    text = "\n".join(report.lines())
    assert not report.broken, text
    assert report.killed_or_stopped >= 10, text
    assert report.faults.total() >= 40, text
    assert report.ended["complete"] >= 10, text


@pytest.mark.timeout(900)
@pytest.mark.skipif(not is_possible(), reason="network namespaces need root and ip")
def test_hosts_that_were_cut_off_from_redis_come_back_and_count_once() -> None:
    found = partition(12)

    assert found.broken == [], "\n".join(found.lines())
    assert (found.dispatches, found.lost, found.completions) == (2, 1, 1)


def test_a_supervisor_restarts_members_and_records_unexpected_exits(tmp_path: Path) -> None:
    """There is no Redis to connect to; the supervisor keeps the processes running anyway."""
    with Proxy(tmp_path / "missing.sock") as proxy:
        fleet = Fleet(tmp_path, proxy, {"coordinator": 2})
        fleet.start()
        first, second = fleet.members
        before = first.process.pid, second.process.pid
        fleet.kill(first)
        os.kill(second.process.pid, signal.SIGKILL)  # not by the fleet
        wait_until(lambda: fleet.restarts == 2, what="two restarts")
        assert not {first.process.pid, second.process.pid} & set(before)
        wait_until(lambda: len(marked(tmp_path)) == 2, what="two processes of this folder")
        fleet.end()

    assert [(exit.name, exit.how) for exit in fleet.exits if "by itself" in exit.how] == [
        ("coordinator-2", "exited by itself with code -9")
    ]
    assert marked(tmp_path) == []


def test_a_line_loses_replies_is_cut_parted_and_slow(redis_server: RedisServer, redis_url: str) -> None:
    with Proxy(redis_server.socket) as proxy, connect(redis_url) as direct:
        line = proxy.line("any")
        client = Redis.from_url(line.url, socket_timeout=0.5, retry=Retry(NoBackoff(), 0))
        client.incr("k")
        line.drop_reply_of("INCR")
        with pytest.raises(ConnectionError):
            client.incr("k")
        assert direct.get("k") == "2", "it was executed, but its reply was lost"

        client.get("k")
        line.cut()
        assert proxy.faults == {"reply dropped": 1, "connection cut": 1}
        assert client.get("k") == b"2"
        line.part(60)
        with pytest.raises(TimeoutError):
            client.get("k")
        line.heal()
        assert client.get("k") == b"2"

        line.slow(0.1, 60)
        began = time.monotonic()
        client.get("k")
        assert time.monotonic() - began >= 0.2, "there and back"
        client.close()
