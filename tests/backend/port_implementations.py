"""Every implementation of a port, by name: what the contract suites run on. A new one is one line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from fakeredis import FakeRedis, FakeServer

from orchestrator.application.records.step_log import LogLine
from orchestrator.application.values.payload_refs import PayloadStore
from orchestrator.backend import InMemoryStore, InProcessRunner, SqliteRunner, SqliteStore
from orchestrator.backend.payloads import MemoryPayloads
from orchestrator.backend.ports import SharedState, Store
from orchestrator.backend.results import ResultRunner
from orchestrator.payload_stores.folder import DirectoryPayloads
from orchestrator.payload_stores.s3 import S3Payloads
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.payloads import RedisPayloads
from orchestrator.redis_rq.store import RedisStore
from redis_server import own_redis
from s3_server import CREDENTIALS, s3_server


class KeepingStore(Store, Protocol):
    """A Store with what each of ours knows besides."""

    @property
    def shared_state(self) -> SharedState: ...

    def full_id(self, execution_id: str) -> str: ...

    def history(self, workflow_execution_id: str) -> list[dict[str, Any]]: ...

    def add_log_lines(self, workflow_execution_id: str, lines: Sequence[LogLine]) -> None: ...

    def log_lines(self, workflow_execution_id: str) -> list[LogLine]: ...


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


@contextmanager
def in_memory_payloads(folder: Path) -> Iterator[PayloadStore]:
    yield MemoryPayloads()


@contextmanager
def sqlite_payloads(folder: Path) -> Iterator[PayloadStore]:
    store = SqliteStore(folder / "orchestrator.db")
    yield store.payloads
    store.close()


@contextmanager
def redis_payloads(folder: Path) -> Iterator[PayloadStore]:
    with own_redis(folder) as server:
        yield RedisPayloads(connect(server.url), Keys())


@contextmanager
def fakeredis_payloads(folder: Path) -> Iterator[PayloadStore]:
    yield RedisPayloads(FakeRedis(server=FakeServer(), protocol=2, decode_responses=True), Keys())


@contextmanager
def directory_payloads(folder: Path) -> Iterator[PayloadStore]:
    yield DirectoryPayloads(folder / "payloads", ttl_s=3_600)


@contextmanager
def s3_payloads(folder: Path) -> Iterator[PayloadStore]:
    with s3_server() as s3, pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield S3Payloads(s3.bucket, "some/prefix", s3.url)


STORES: dict[str, Callable[[Path], Any]] = {
    "memory": in_memory_store,
    "sqlite": sqlite_store,
    "redis": redis_store,
    "fakeredis": fakeredis_store,
}

PAYLOADS: dict[str, Callable[[Path], Any]] = {
    "memory": in_memory_payloads,
    "sqlite": sqlite_payloads,
    "redis": redis_payloads,
    "fakeredis": fakeredis_payloads,
    "directory": directory_payloads,
    "s3": s3_payloads,
}

RUNNERS: dict[str, Callable[[Path], Any]] = {
    "memory": in_process_runner,
    "sqlite": sqlite_runner,
}
