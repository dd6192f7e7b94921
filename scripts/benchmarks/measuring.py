"""What one measurement has found, and how it is taken.

Redis itself says how many commands it has run, by name and with those inside scripts, and how often it has
read from a socket. Those reads are the round trips, and some more: what is larger than 16 KiB is read in
several. Where everything happens in one process, round trips are counted there, and are exact.
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


class Wrong(Exception):
    """Something came out otherwise than it must: then its figures mean nothing."""


@dataclass
class Run:
    """One measurement, once. `steps` is how many of what was done, which are not always steps; processor
    seconds are by who spent them; `facts` are whatever else was found."""

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
    def nobody(cls) -> Run:
        """For what must be done and is not measured."""
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
        """Of these processes, or of all but the client."""
        spent = (cpu for kind, cpu in self.cpu_s.items() if (kind in kinds if kinds else kind != "client"))
        return 1000 * sum(spent) / self.steps


@dataclass(frozen=True)
class Tally:
    """What a Redis has done since it began."""

    commands: Counter[str]
    reads: int
    cpu_s: float

    @classmethod
    def of(cls, client: Client) -> Tally:
        """Asked for in one read; what it is asked with is not counted as a command."""
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
def tallied(run: Run, client: Client, others: Counter[str] | None = None) -> Iterator[None]:
    """What Redis does while a block runs, but for the commands that `others` have counted by its end."""
    before, others_before = Tally.of(client), Counter(others)
    yield
    Tally.of(client).add_since(before, run)
    if others is not None:
        run.commands = dict(Counter(run.commands) - (others - others_before))


@contextmanager
def metered(run: Run, who: str = "client") -> Iterator[None]:
    """What this process spends, and how often it speaks to Redis, while a block runs."""
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
        run.cpu_s[who] = run.cpu_s.get(who, 0.0) + time.process_time() - cpu
        connections.send_packed_command = original
