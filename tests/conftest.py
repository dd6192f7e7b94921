"""What every test may ask for: a Redis of our own, empty; a world on it; a connection that can be cut."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from redis import Redis

from effort import IS_FULL, count
from orchestrator.redis_rq.connection import Client, connect
from servers.proxy import Proxy
from servers.redis_server import RedisServer, own_redis
from worlds.redis_world import RedisWorld

# A busy machine is not a defect: examples have no deadline.
settings.register_profile("shared-cores", deadline=None, max_examples=count(30, 100))
settings.load_profile("shared-cores")


SLOWEST_FIRST = Path(__file__).with_name("slowest-first.txt")
SLOW_S = 5.0
"""Files whose tests take longer than this are listed in slowest-first.txt."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-slowest-first", action="store_true", help=f"Write {SLOWEST_FIRST.name} anew after the run."
    )


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")  # of xdist; the process that started it gets its reports too
    if config.getoption("--write-slowest-first", False) and not is_worker:
        config.pluginmanager.register(SlowestFirst(config.rootpath))


class SlowestFirst:
    """Adds up how long the tests of each file take, and writes the list of the slowest."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        path = self._root / report.nodeid.partition("::")[0]
        self._seconds[path.relative_to(SLOWEST_FIRST.parent).as_posix()] += report.duration

    def pytest_sessionfinish(self) -> None:
        slow = sorted(
            (name for name in self._seconds if self._seconds[name] > SLOW_S),
            key=lambda name: -self._seconds[name],
        )
        SLOWEST_FIRST.write_text("".join(f"{name}\n" for name in slow))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only --full runs, and begin with the slowest files, so that none of them comes last."""
    left_out = [] if IS_FULL else [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    order = {name: place for place, name in enumerate(SLOWEST_FIRST.read_text().split())}
    chosen = [item for item in items if IS_FULL or not item.get_closest_marker("full")]
    tests = Path(__file__).parent
    items[:] = sorted(chosen, key=lambda item: order.get(item.path.relative_to(tests).as_posix(), len(order)))


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One redis-server for each test process. A test that kills servers starts its own with own_redis()."""
    with own_redis(tmp_path_factory.getbasetemp()) as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The URL of our own Redis, emptied for this test."""
    with redis_server.client() as client:
        client.flushall()
    return redis_server.url


@pytest.fixture
def redis_client(redis_server: RedisServer, redis_url: str) -> Iterator[Redis]:
    """A client of our own Redis, emptied for this test; it replies in bytes."""
    with redis_server.client() as client:
        yield client


@pytest.fixture
def world(redis_url: str) -> Iterator[RedisWorld]:
    """Coordinators and a worker in this process, on our own Redis."""
    world = RedisWorld(lambda: connect(redis_url))
    yield world
    world.close()


@pytest.fixture
def proxy(redis_server: RedisServer, redis_url: str) -> Iterator[Proxy]:
    """A connection to our Redis that can be cut."""
    with tempfile.TemporaryDirectory(prefix="p") as folder:
        made = Proxy(redis_server.socket, Path(folder, "p.sock"))
        yield made
        made.close()


@pytest.fixture
def proxied(proxy: Proxy) -> Iterator[Client]:
    client = connect(f"unix://{proxy.path}")
    yield client
    client.close()
