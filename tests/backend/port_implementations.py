"""Every implementation of a port, by name: what the contract suites run on. A new one is one line here."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.values.payload_refs import PayloadStore
from orchestrator.backend import InMemoryStore, InProcessRunner, SqliteRunner, SqliteStore
from orchestrator.backend.payloads import MemoryPayloads
from orchestrator.backend.ports import Store
from orchestrator.backend.results import ResultRunner
from orchestrator.payload_stores.folder import DirectoryPayloads
from orchestrator.payload_stores.s3 import S3Payloads
from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.payloads import RedisPayloads
from orchestrator.redis_rq.store import RedisStore
from servers.redis_server import RedisServer, own_redis
from servers.s3_server import CREDENTIALS, s3_server


@contextmanager
def in_memory_store(folder: Path) -> Iterator[Store]:
    yield InMemoryStore()


@contextmanager
def sqlite_store(folder: Path) -> Iterator[Store]:
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


@cache
def _redis_server() -> RedisServer:
    """One redis-server for all contract tests of this process."""
    stack = ExitStack()
    atexit.register(stack.close)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="contract"))
    return stack.enter_context(own_redis(Path(folder)))


@contextmanager
def redis_client() -> Iterator[Client]:
    """A client of that server, emptied."""
    with connect(_redis_server().url) as client:
        client.flushall()
        yield client


@contextmanager
def redis_store(folder: Path) -> Iterator[Store]:
    with redis_client() as client:
        yield RedisStore(client)


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
    with redis_client() as client:
        yield RedisPayloads(client, Keys())


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
}

PAYLOADS: dict[str, Callable[[Path], Any]] = {
    "memory": in_memory_payloads,
    "sqlite": sqlite_payloads,
    "redis": redis_payloads,
    "directory": directory_payloads,
    "s3": s3_payloads,
}

RUNNERS: dict[str, Callable[[Path], Any]] = {
    "memory": in_process_runner,
    "sqlite": sqlite_runner,
}
