"""A backlog that came while no coordinator ran: it is drained, nothing is lost, and memory is bounded."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from effort import count
from orchestrator.application.errors import Busy
from orchestrator.redis_rq import backlog
from processes import PatientClient
from worlds.documents import document, step
from worlds.redis_world import RedisWorld, running
from worlds.waiting import PATIENCE_S, wait_until

SCRIPT = Path(__file__).parents[2] / "scripts" / "backlog"
COUNT = count(2_000, 5_000)
ONE = document(step("a"))


@pytest.mark.slow
def test_starts_that_came_before_any_coordinator_are_all_taken() -> None:
    command = [sys.executable, str(SCRIPT), str(COUNT), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    found = json.loads(done.stdout)
    assert found["accepted"] == COUNT
    assert found["most_rss_mb"] < found["first_rss_mb"] + 60


@pytest.mark.slow
def test_fast_producers_are_told_to_wait_and_all_that_they_sent_is_taken(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that is slow by itself: a batch of ten, a pause of 20 ms before each, and
    nothing at all before a producer was told to wait."""
    world, most = world, 200
    monkeypatch.setattr(backlog, "CHECK_INTERVAL_S", 0.0)
    one = world.coordinator("one", world.connect(), batch=10, block_ms=5, trim_every_s=0.05)
    read = one._log.read
    pause, was_told = threading.Event(), threading.Event()

    def slowly(count: int, block_ms: int) -> object:
        assert was_told.wait(PATIENCE_S)
        pause.wait(0.02)
        return read(count, block_ms)

    monkeypatch.setattr(one._log, "read", slowly)
    producer, sent, refused = PatientClient(world.connect(), world.keys, max_backlog=most), list[str](), 0
    with running(one):
        while len(sent) < 1_000:
            try:
                sent.append(producer.send_start(ONE, {}))
            except Busy:
                refused += 1
                was_told.set()
                pause.wait(0.02)
            assert backlog.count_waiting_starts(world.client, world.keys) <= most
        wait_until(lambda: world.client.zcard(world.keys.index("in_progress")) == len(sent))

    assert refused > 0
    assert all(world.answer(entry)["ok"] for entry in sent)
