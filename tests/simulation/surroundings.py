"""Simulated time, threads and random numbers for the modules under simulation, driven by the scheduler.

These modules import `time`, `threading` and `secrets` as usual. While a simulation runs, the names in them
are patched; everywhere else they are unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from importlib import import_module
from random import Random
from typing import Any

from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import check_spec, load_spec, load_stored_spec
from orchestrator.application.values.document_limits import DEFAULT_LIMITS, DocumentLimits
from simulation.scheduler import Scheduler

TIMED = (
    "orchestrator.coordinator.periodic",
    "orchestrator.coordinator.loop",
    "orchestrator.coordinator.sweeps",
    "orchestrator.redis_rq.connection",
    "orchestrator.redis_rq.event_log",
    "orchestrator.redis_rq.job_taker",
    "orchestrator.worker.harness",
    "orchestrator.worker.leaving",
    "orchestrator.worker.step_call",
    "orchestrator.worker.lease",
)
THREADED = ("orchestrator.worker.harness", "orchestrator.worker.lease", "orchestrator.worker.step_log")
FAKE_REDIS = ("fakeredis._helpers", "fakeredis.model._stream", "fakeredis.commands_mixins.server_mixin")
FOREVER_MS = 10 * 365 * 86_400_000


class Time:
    """As the module `time`; `skew_ms` is the clock error of the process that asks."""

    def __init__(self, scheduler: Scheduler, skew_ms: Callable[[], int]) -> None:
        self._scheduler, self._skew_ms = scheduler, skew_ms

    def time(self) -> float:
        return (self._scheduler.now_ms + self._skew_ms()) / 1000

    def monotonic(self) -> float:
        return self._scheduler.now_ms / 1000

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds * 1000)


class Clock:
    """As the class `datetime`, for the current time."""

    def __init__(self, time: Time) -> None:
        self._time = time

    def now(self, zone: tzinfo = UTC) -> datetime:
        return datetime.fromtimestamp(self._time.time(), zone)


class Event:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._is_set = scheduler, False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._scheduler.wait(self.is_set, FOREVER_MS if timeout is None else timeout * 1000)
        return self._is_set


class Thread:
    """It belongs to the process that starts it, and dies with it."""

    def __init__(
        self, scheduler: Scheduler, target: Callable[[], object], name: str, daemon: bool = True
    ) -> None:
        self._scheduler, self._target, self._name = scheduler, target, name
        self._is_over = False

    def start(self) -> None:
        process = self._scheduler.current.process
        self._scheduler.spawn(f"{process} {self._name}", self._run, process)

    def join(self, timeout: float | None = None) -> None:
        if not self._is_over:
            self._scheduler.wait(lambda: self._is_over, FOREVER_MS if timeout is None else timeout * 1000)

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._is_over = True


class Timer(Thread):
    def __init__(self, scheduler: Scheduler, interval: float, function: Callable[[], object]) -> None:
        super().__init__(scheduler, self._ring, "timer")
        self._interval, self._function, self._cancelled = interval, function, Event(scheduler)

    def cancel(self) -> None:
        self._cancelled.set()

    def _ring(self) -> None:
        if not self._cancelled.wait(self._interval):
            self._function()


class Threading:
    """As the module `threading`, as far as it is used."""

    def __init__(self, scheduler: Scheduler) -> None:
        from threading import Lock

        self._scheduler, self.Lock = scheduler, Lock

    def Event(self) -> Event:
        return Event(self._scheduler)

    def Thread(self, target: Callable[[], object], name: str = "thread", daemon: bool = True) -> Thread:
        return Thread(self._scheduler, target, name, daemon)

    def Timer(self, interval: float, function: Callable[[], object]) -> Timer:
        return Timer(self._scheduler, interval, function)


class Secrets:
    """As the module `secrets`."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw

    def token_hex(self, count: int) -> str:
        return f"{self._draw.getrandbits(8 * count):0{2 * count}x}"


def checked_once(document: dict[str, Any]) -> LoadedSpec:
    """Check a spec once per process: every coordinator checks it, always with the same result."""
    return _checked(json.dumps(document, sort_keys=True))


@lru_cache(maxsize=64)
def _checked(text: str) -> LoadedSpec:
    return check_spec(json.loads(text))


@lru_cache(maxsize=64)
def _stored(text: str) -> LoadedSpec:
    return load_stored_spec(json.loads(text))


def _stored_once(document: dict[str, Any]) -> LoadedSpec:
    return _stored(json.dumps(document, sort_keys=True))


def _loaded_once(text: str, *, with_warnings: bool, limits: DocumentLimits = DEFAULT_LIMITS) -> LoadedSpec:
    if text.startswith("{") and len(text) <= limits.max_bytes:
        return checked_once(json.loads(text))
    return load_spec(text, with_warnings=with_warnings, limits=limits)


@contextmanager
def surroundings(
    scheduler: Scheduler, skew_ms: Callable[[], int], redis_ms: Callable[[], int]
) -> Iterator[None]:
    """`skew_ms` is that of the process that runs, `redis_ms` the time of Redis."""
    time = Time(scheduler, skew_ms)
    of_redis = Time(scheduler, lambda: redis_ms() - scheduler.now_ms)
    replaced: list[tuple[str, str, Any]] = [
        *((module, "time", time) for module in TIMED),
        *((module, "time", of_redis) for module in FAKE_REDIS),
        *((module, "threading", Threading(scheduler)) for module in THREADED),
        ("orchestrator.redis_rq.store", "secrets", Secrets(scheduler.draw)),
        ("orchestrator.redis_rq.job_taker", "datetime", Clock(time)),
        ("orchestrator.redis_rq.store", "load_stored_spec", _stored_once),
        ("orchestrator.backend.backend", "check_spec", checked_once),
        ("orchestrator.coordinator.starts", "load_spec", _loaded_once),
        ("orchestrator.coordinator.large_document", "load_spec", _loaded_once),
        ("orchestrator.coordinator.large_document", "load_stored_spec", _stored_once),
    ]
    before = [
        (import_module(module), name, getattr(import_module(module), name)) for module, name, _ in replaced
    ]
    try:
        for (module, name, _), (_, _, other) in zip(before, replaced, strict=True):
            setattr(module, name, other)
        yield
    finally:
        for module, name, was in before:
            setattr(module, name, was)
