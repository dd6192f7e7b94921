"""Every implementation of a port, by name: what the contract suites run on. A new one is one line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from fakeredis import FakeRedis, FakeServer

from orchestrator.application.lines import Line
from orchestrator.backend import InMemoryStore, InProcessRunner, SqliteRunner, SqliteStore
from orchestrator.backend.ports import Commons, Store
from orchestrator.backend.results import ResultRunner
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.store import RedisStore
from redis_server import own_redis


class KeepingStore(Store, Protocol):
    """A Store with what each of ours knows besides."""

    @property
    def commons(self) -> Commons: ...

    def full_id(self, execution_id: str) -> str: ...

    def history(self, workflow_execution_id: str) -> list[dict[str, Any]]: ...

    def add_lines(self, workflow_execution_id: str, lines: Sequence[Line]) -> None: ...

    def lines(self, workflow_execution_id: str) -> list[Line]: ...


@contextmanager
def in_memory_store(folder: Path) -> Iterator[KeepingStore]:
    yield InMemoryStore()


@contextmanager
def sqlite_store(folder: Path) -> Iterator[KeepingStore]:
    store = SqliteStore(folder / "orchestrator.db")
    yield store
    store.close()


@contextmanager
def in_process_runner(folder: Path) -> Iterator[ResultRunner]:
    yield InProcessRunner()


@contextmanager
def sqlite_runner(folder: Path) -> Iterator[ResultRunner]:
    runner = SqliteRunner(folder / "orchestrator.db")
    yield runner
    runner.close()


@contextmanager
def redis_store(folder: Path) -> Iterator[KeepingStore]:
    with own_redis(folder) as server:
        yield RedisStore(connect(server.url))


@contextmanager
def fakeredis_store(folder: Path) -> Iterator[KeepingStore]:
    yield RedisStore(FakeRedis(server=FakeServer(), protocol=2, decode_responses=True))


STORES: dict[str, Callable[[Path], Any]] = {
    "memory": in_memory_store,
    "sqlite": sqlite_store,
    "redis": redis_store,
    "fakeredis": fakeredis_store,
}

RUNNERS: dict[str, Callable[[Path], Any]] = {
    "memory": in_process_runner,
    "sqlite": sqlite_runner,
}
