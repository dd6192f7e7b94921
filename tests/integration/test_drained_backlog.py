"""A backlog that came while no coordinator ran: it is drained, nothing is lost, and memory is bounded."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from coreworld import document, step
from integration.world import World, running, wait_until
from orchestrator.application.errors import Busy
from orchestrator.client import Client
from orchestrator.redis_rq import backlog

SCRIPT = Path(__file__).parents[2] / "scripts" / "backlog"
COUNT = 5_000
ONE = document(step("a"))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_starts_that_came_before_any_coordinator_are_all_taken() -> None:
    command = [sys.executable, str(SCRIPT), str(COUNT), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    found = json.loads(done.stdout)
    assert found["accepted"] == COUNT
    assert found["most_rss_mb"] < found["first_rss_mb"] + 60


@pytest.mark.slow
def test_fast_producers_are_told_to_wait_and_all_that_they_sent_is_taken(
    real_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that is slow by itself: a batch of ten, and a pause of 20 ms before each."""
    world, most = real_world, 200
    monkeypatch.setattr(backlog, "CHECK_INTERVAL_S", 0.0)
    one = world.coordinator("one", world.connect(), batch=10, block_ms=5, trim_every_s=0.05)
    read = one._log.read
    pause = threading.Event()

    def slowly(count: int, block_ms: int) -> object:
        pause.wait(0.02)
        return read(count, block_ms)

    monkeypatch.setattr(one._log, "read", slowly)
    producer, sent, refused = Client(world.connect(), world.keys, max_backlog=most), list[str](), 0
    with running(one):
        while len(sent) < 1_000:
            try:
                sent.append(producer.send_start(ONE, {}))
            except Busy:
                refused += 1
                pause.wait(0.02)
            assert backlog.count_waiting_starts(world.client, world.keys) <= most
        wait_until(lambda: world.client.zcard(world.keys.index("in_progress")) == len(sent), 60)

    assert refused > 0
    assert all(world.answer(entry)["ok"] for entry in sent)
