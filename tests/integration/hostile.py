"""A coordinator and one worker of a kind, to be attacked: each attack is followed by an honest step."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from orchestrator.application.decisions import Complete, Failed
from orchestrator.client import Client
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from processes import Stack, stack
from redis_server import own_redis

Json = dict[str, Any]

STOCK, FORKING, CREW = "rq worker", "orchestrator worker", "orchestrator worker --concurrency 4"
WORKERS = [STOCK, FORKING, CREW]
PATIENCE_S = 60.0
LEASE_S = "4"


@dataclass
class System:
    kind: str
    processes: Stack
    redis: RedisClient
    client: Client
    folder: Path
    worker: subprocess.Popen[bytes]

    def __post_init__(self) -> None:
        self._names = (f"x{n}" for n in count())

    def start(self, step: Json, **document: Any) -> str:
        """Begin a workflow of this one step, `a`."""
        made = {"steps": [{"id": "a", "retry": 0, **step}], **document}
        return self.client.start(made, execution_id=next(self._names)).execution_id

    def end(self, execution_id: str) -> Complete | Failed:
        final = self.client.wait(execution_id, PATIENCE_S)
        assert isinstance(final, Complete | Failed), (final, self.log())
        return final

    def output(self, execution_id: str) -> Any:
        """What the step returned."""
        final = self.end(execution_id)
        assert isinstance(final, Complete), (final, self.log())
        return self.client.record(execution_id).steps["a"].output

    def error(self, execution_id: str) -> Json:
        """Why the step failed."""
        final = self.end(execution_id)
        assert isinstance(final, Failed), (final, self.log())
        return dict(final.error)

    def runs(self, step: Json, **document: Any) -> Any:
        return self.output(self.start(step, **document))

    def fails(self, step: Json, **document: Any) -> Json:
        return self.error(self.start(step, **document))

    def still_serves(self) -> None:
        """The same worker runs an honest step."""
        assert "pid" in self.runs({"fn": "honest"})
        assert self.worker.poll() is None, self.log()

    def log(self) -> str:
        return self.processes.log()[-20_000:]


@contextmanager
def attacked(kind: str, folder: Path, **environment: str) -> Iterator[System]:
    with (
        own_redis(folder) as server,
        stack(server.url, "hostile_functions", folder / "logs", **environment) as processes,
    ):
        processes.coordinator()
        redis = connect(server.url)
        yield System(kind, processes, redis, Client(redis), folder, serve(processes, kind))
        redis.close()


def serve(processes: Stack, kind: str) -> subprocess.Popen[bytes]:
    if kind == STOCK:
        return processes.rq_worker()
    return processes.worker("default", *kind.split()[2:])
