"""Sweeps: timers fire on time while a coordinator is idle, on a clock that the test moves."""

from __future__ import annotations

from typing import Any, cast

import pytest

from orchestrator.backend.ports import Delivery, EventLog
from orchestrator.coordinator import sweeps
from orchestrator.coordinator.sweeps import LATE_MS, MIN_GAP_S, Sweeps

EVERY_S = 0.5


class IdleLog:
    """An event log without events, on a Redis that ends every blocking read as late as it may."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[float] = []
        self.fired: dict[float, float] = {}
        self.swept_at: list[float] = []
        self.reads = 0
        self.next_timer_s: float | None = None

    def sweep(self) -> int:
        self.swept_at.append(self.now)
        due = [at for at in self.timers if at <= self.now]
        self.fired |= dict.fromkeys(due, self.now)
        self.timers = sorted(set(self.timers) - set(due))
        self.next_timer_s = self.timers[0] - self.now if self.timers else None
        return len(due)

    def read(self, count: int, block_ms: int) -> list[Delivery]:
        self.reads += 1
        self.now += (block_ms + LATE_MS) / 1000 if block_ms else 0.0001
        return []

    # ---- as the module time

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> IdleLog:
    made = IdleLog()
    monkeypatch.setattr(sweeps, "time", made)
    monkeypatch.setattr("orchestrator.coordinator.periodic.time", made)
    return made


def turns(log: IdleLog, one: Sweeps, until: float) -> None:
    while log.now < until:
        one.run_if_due()
        one.read(100, 500)


def make(log: IdleLog) -> Sweeps:
    return Sweeps(cast("EventLog", log), EVERY_S)


def test_a_timer_that_a_sweep_has_seen_fires_on_time(log: IdleLog) -> None:
    one = make(log)
    log.timers = [log.now + 0.2, log.now + 0.7, log.now + 0.71, log.now + 5]
    wanted = list(log.timers)

    turns(log, one, log.now + 6)

    assert sorted(log.fired) == wanted
    assert all(fired - due < 0.03 for due, fired in log.fired.items()), log.fired


def test_a_timer_that_this_coordinator_arms_fires_on_time(log: IdleLog) -> None:
    one = make(log)
    turns(log, one, log.now + 1)
    due = log.now + 0.2
    log.timers.append(due)
    one.expect_timer(0.2)

    turns(log, one, log.now + 1)

    assert log.fired[due] - due < 0.03


def test_a_timer_of_another_coordinator_fires_at_the_next_sweep(log: IdleLog) -> None:
    one = make(log)
    turns(log, one, log.now + 1)
    due = log.now + 0.01
    log.timers.append(due)

    turns(log, one, log.now + 2)

    assert log.fired[due] - due <= EVERY_S + 2 * LATE_MS / 1000


def test_sweeps_are_apart_however_many_timers_are_due(log: IdleLog) -> None:
    one = make(log)
    log.timers = [log.now + n / 1000 for n in range(300)]

    turns(log, one, log.now + 0.5)

    gaps = [after - before for before, after in zip(log.swept_at, log.swept_at[1:], strict=False)]
    assert min(gaps) >= MIN_GAP_S
    assert len(log.fired) == 300


def test_without_timers_a_coordinator_reads_and_sweeps_as_seldom_as_before(log: IdleLog) -> None:
    one = make(log)

    turns(log, one, log.now + 60)

    assert log.reads <= 60 / EVERY_S
    assert len(log.swept_at) <= 60 / EVERY_S + 1


def test_a_read_that_must_not_block_never_does(log: IdleLog) -> None:
    one = make(log)
    log.timers = [log.now + 0.05]
    one.run()

    before = log.now
    one.read(100, 0)

    assert log.now - before < 0.001


def test_events_are_returned_at_once_while_a_timer_is_near(log: IdleLog) -> None:
    one = make(log)
    log.timers = [log.now + 0.05]
    one.run()
    event: Any = object()
    log.read = lambda count, block_ms: [event]  # type: ignore[method-assign]

    assert one.read(100, 500) == [event]
