"""The result of one measurement, and how it is taken.

Redis counts the commands it has run, by name and including those inside scripts, and its reads from sockets.
The reads are the round trips and a few more, because requests above 16 KiB are read in several parts. If
everything runs in one process, the round trips are counted there and are exact.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from redis.connection import AbstractConnection

from orchestrator.redis_rq.connection import Client


class WrongResult(Exception):
    """A measurement gave a wrong result, so its figures are meaningless."""


@dataclass
class Run:
    """One measurement. `steps` is the number of units of work, which are not always steps. `cpu_s` has CPU
    seconds by process. `facts` has further figures."""

    workload: str
    size: int
    system: str
    steps: int
    seconds: float = 0.0
    commands: dict[str, int] = field(default_factory=dict)
    round_trips: int = 0
    cpu_s: dict[str, float] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)
    aof: bool = False

    @classmethod
    def unmeasured(cls) -> Run:
        """Return a run for work that is not measured."""
        return cls("", 0, "", 1)

    @property
    def per_s(self) -> float:
        return self.steps / self.seconds if self.seconds else 0.0

    @property
    def commands_each(self) -> float:
        return sum(self.commands.values()) / self.steps

    @property
    def round_trips_each(self) -> float:
        return self.round_trips / self.steps

    def cpu_ms_each(self, *kinds: str) -> float:
        """Return the CPU time per unit of these processes, or of all except the client."""
        spent = (cpu for kind, cpu in self.cpu_s.items() if (kind in kinds if kinds else kind != "client"))
        return 1000 * sum(spent) / self.steps


@dataclass(frozen=True)
class Tally:
    """The counters of a Redis since its start."""

    commands: Counter[str]
    reads: int
    cpu_s: float

    @classmethod
    def of(cls, client: Client) -> Tally:
        """Read the counters with one command, which is not counted."""
        info: Any = client.info("all")
        calls = {
            name.removeprefix("cmdstat_"): int(stat["calls"])
            for name, stat in info.items()
            if name.startswith("cmdstat_") and name != "cmdstat_info"
        }
        spent = float(info["used_cpu_user"]) + float(info["used_cpu_sys"])
        return cls(Counter(calls), int(info["total_reads_processed"]), spent)

    def add_since(self, before: Tally, run: Run) -> None:
        run.commands = dict(Counter(run.commands) + (self.commands - before.commands))
        run.cpu_s["redis"] = run.cpu_s.get("redis", 0.0) + self.cpu_s - before.cpu_s


@contextmanager
def count_redis(run: Run, client: Client, others: Counter[str] | None = None) -> Iterator[None]:
    """Add the work of Redis during the block to the run, without the commands that `others` counts."""
    before, others_before = Tally.of(client), Counter(others)
    yield
    Tally.of(client).add_since(before, run)
    if others is not None:
        run.commands = dict(Counter(run.commands) - (others - others_before))


@contextmanager
def count_process(run: Run, process: str = "client") -> Iterator[None]:
    """Add the time and the round trips of this process during the block to the run."""
    connections: Any = AbstractConnection
    original = connections.send_packed_command

    def counting(connection: Any, *args: Any, **kwargs: Any) -> Any:
        run.round_trips += 1
        return original(connection, *args, **kwargs)

    connections.send_packed_command = counting
    cpu, began = time.process_time(), time.perf_counter()
    try:
        yield
    finally:
        run.seconds += time.perf_counter() - began
        run.cpu_s[process] = run.cpu_s.get(process, 0.0) + time.process_time() - cpu
        connections.send_packed_command = original
