"""A coordinator and a worker under attack: after each attack the same worker must run an honest step."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from effort import IS_FULL
from orchestrator.application.records.decisions import Complete, Failed
from orchestrator.client import Client
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from processes import PatientClient, Stack, stack
from servers.redis_server import own_redis

Json = dict[str, Any]

STOCK, WARM, CREW = "rq worker", "orchestrator worker", "orchestrator worker --concurrency 4"
WORKERS = [STOCK, WARM, CREW] if IS_FULL else [WARM, CREW]
FRESH = "orchestrator worker --recycle-after 1"
PATIENCE_S = 180.0
MARK = "HOSTILE_MARK"
"""The environment variable that marks all processes which a worker has forked."""


@dataclass
class System:
    kind: str
    processes: Stack
    redis: RedisClient
    client: Client
    folder: Path
    worker: subprocess.Popen[bytes] = field(init=False)
    _names: Iterator[str] = field(default_factory=lambda: (f"x{n}" for n in count()))

    def serve(self) -> None:
        """Start a worker."""
        if self.kind == STOCK:
            self.worker = self.processes.rq_worker()
        else:
            self.worker = self.processes.worker("default", *self.kind.split()[2:])

    def start(self, step: Json, **document: Any) -> str:
        """Start a workflow with this one step, `a`."""
        made = {"steps": [{"id": "a", "retry": 0, **step}], **document}
        return self.client.start(made, execution_id=next(self._names)).execution_id

    def output(self, execution_id: str) -> Any:
        """The output of the step."""
        final = self.client.wait(execution_id, PATIENCE_S)
        assert isinstance(final, Complete), (final, self.log())
        return self.client.record(execution_id).steps["a"].output

    def error(self, execution_id: str) -> Json:
        """The error of the step."""
        final = self.client.wait(execution_id, PATIENCE_S)
        assert isinstance(final, Failed), (final, self.log())
        return dict(final.error)

    def runs(self, step: Json, **document: Any) -> Any:
        return self.output(self.start(step, **document))

    def fails(self, step: Json, **document: Any) -> Json:
        return self.error(self.start(step, **document))

    def messages(self, steps: Iterable[Json]) -> list[str]:
        """The errors of these steps, which run at the same time."""
        started = [self.start(step) for step in steps]
        return [self.error(one)["message"] for one in started]

    def lost(self, execution_id: str) -> int:
        return self.client.record(execution_id).steps["a"].lost

    def still_serves(self) -> None:
        """Check that the same worker runs an honest step, sync and async."""
        started = [self.start({"fn": fn}) for fn in ("honest", "honest_later")]
        assert [self.output(one)["honest"] for one in started] == [True, True]
        assert self.worker.poll() is None, self.log()

    def log(self) -> str:
        return self.processes.log()[-20_000:]


@contextmanager
def attacked(kind: str, folder: Path, **environment: str) -> Iterator[System]:
    with (
        own_redis(folder) as server,
        stack(server.url, "hostile_functions", folder / "logs", **environment) as processes,
    ):
        if MARK in environment:
            processes.is_warm = False  # marked() reads the environment that a process was started with
        processes.coordinator()
        redis = connect(server.url)
        system = System(kind, processes, redis, PatientClient(redis), folder)
        system.serve()
        yield system
        redis.close()


def program(code: str, *arguments: Any, **settings: Any) -> Json:
    """A step that runs a program in Python."""
    return {"fn": "process", "input": {"command": [sys.executable, "-c", code, *arguments], **settings}}


def marked(mark: str) -> set[int]:
    """All running processes that have this among their arguments or variables."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                said = (entry / "cmdline").read_bytes() + b"\0" + (entry / "environ").read_bytes()
            except OSError:
                continue  # it is gone, or not ours
            if mark.encode() in said:
                found.add(int(entry.name))
    return found
