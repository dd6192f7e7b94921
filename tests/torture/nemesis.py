"""The nemesis draws faults from a table by a seed and injects them into the running system.

The same seed draws the same faults in the same order; which operation they interrupt depends on the machine.
A fault that has to be reverted (a stopped process, a partitioned line, a full Redis) is reverted after some
time, and at the latest by `calm`.
"""

from __future__ import annotations

import heapq
import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import Keys
from servers.redis_server import RedisServer
from torture import poison
from torture.fleet import WORKERS, Fleet, Member
from torture.producers import Outages, Producers
from torture.proxy import Proxy, Weather

KEYS = Keys()
EVERY_S = 0.35
"""The average time between two faults."""
COMMANDS = ("XADD", "EVALSHA", "XREADGROUP", "ZADD", "BLMOVE", "BLPOP", "EXEC", "XPENDING", "XCLAIM", "HSET")
PROCESSES = ("coordinator", "worker", "work-horse", "process", "redis killed")
"""Prefixes of the faults that kill or stop a process."""


class Nemesis:
    def __init__(
        self,
        seed: int,
        server: RedisServer,
        proxy: Proxy,
        fleet: Fleet,
        producers: Producers,
        outages: Outages,
        only: Collection[str] = (),
    ) -> None:
        """`only`: the names of the faults to draw from; all faults if it is empty."""
        self.server, self.proxy, self.fleet = server, proxy, fleet
        self.producers, self.outages = producers, outages
        self.faults, self.poison = Counter[str](), dict[str, float | None]()
        self._rng = random.Random(f"nemesis {seed}")
        self._table = [(weight, name) for weight, name in self.TABLE if not only or name in only]
        self._client: Client = connect(server.url)
        self._later, self._order = list[tuple[float, int, Callable[[], Any]]](), itertools.count()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nemesis", daemon=True)
        self.raised: list[BaseException] = []

    TABLE: tuple[tuple[int, str], ...] = (
        (6, "kill_coordinator"),
        (6, "kill_worker"),
        (5, "kill_worker_and_horse"),
        (7, "kill_horse"),
        (4, "stop_coordinator"),
        (3, "stop_worker"),
        (4, "stop_horse"),
        (3, "tell_to_stop"),
        (4, "kill_redis"),
        (8, "drop_reply"),
        (6, "cut"),
        (4, "part"),
        (4, "slow"),
        (8, "double_events"),
        (4, "double_start"),
        (8, "send_poison"),
        (4, "kill_clients"),
        (2, "flush_scripts"),
        (3, "fill_redis"),
        (2, "make_replica"),
        (2, "debug_sleep"),
        (2, "rewrite_file"),
    )

    def start(self) -> None:
        for line in self.proxy.lines:
            is_stock = line.name.startswith("stock")
            line.weather = Weather(0.0 if is_stock else 0.001, 0.002)
        self._thread.start()

    def calm(self) -> None:
        """Stop injecting faults, and revert all of them."""
        self._is_over.set()
        self._thread.join()
        while self._later:
            heapq.heappop(self._later)[2]()
        for line in self.proxy.lines:
            line.heal()
        if not self.server.is_running:
            self.server.start()
        for member in self.fleet.members:
            member.send(signal.SIGCONT)

    @property
    def total(self) -> Counter[str]:
        """All faults by kind, including those of the lines."""
        return self.faults + self.proxy.faults

    # ---- the loop

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._revert_due_faults()
                weights, names = zip(*self._table, strict=True)
                [name] = self._rng.choices(names, weights)
                with suppress(RedisError):  # the test may have killed it
                    getattr(self, name)()
                self._is_over.wait(self._rng.expovariate(1 / EVERY_S))
        except BaseException as error:
            self.raised.append(error)

    def _revert_due_faults(self) -> None:
        while self._later and self._later[0][0] <= time.monotonic():
            heapq.heappop(self._later)[2]()

    def _revert_after(self, seconds: float, action: Callable[[], Any]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._order), action))

    def _one_of(self, *roles: str) -> Member:
        return self._rng.choice(self.fleet.of(*roles))

    # ---- processes

    def kill_coordinator(self) -> None:
        self.fleet.kill(self._one_of("coordinator"))
        self.faults["coordinator killed"] += 1

    def kill_worker(self) -> None:
        """Kill a worker without its work-horse, which continues its step."""
        self.fleet.kill(self._one_of(*WORKERS))
        self.faults["worker killed"] += 1

    def kill_worker_and_horse(self) -> None:
        self.fleet.kill(self._one_of(*WORKERS), with_horse=True)
        self.faults["worker and work-horse killed"] += 1

    def kill_horse(self) -> None:
        for member in self._shuffled(*WORKERS):
            horse = member.horse()
            if horse is not None:
                with suppress(ProcessLookupError):
                    os.kill(horse, signal.SIGKILL)
                    self.faults["work-horse killed"] += 1
                    return

    def stop_coordinator(self) -> None:
        self._stop(self._one_of("coordinator").process.pid, "coordinator stopped", self._rng.uniform(0.5, 9))

    def stop_worker(self) -> None:
        self._stop(self._one_of(*WORKERS).process.pid, "worker stopped", self._rng.uniform(0.5, 9))

    def stop_horse(self) -> None:
        seconds = self._rng.uniform(0.5, 7)
        for member in self._shuffled(*WORKERS):
            horse = member.horse()
            if horse is not None:
                self._stop(horse, "work-horse stopped", seconds)
                return

    def _stop(self, pid: int, name: str, seconds: float) -> None:
        """Stop a process by a handle, because its pid may be reused before it is continued."""
        try:
            handle = os.pidfd_open(pid)
            signal.pidfd_send_signal(handle, signal.SIGSTOP)
        except ProcessLookupError:
            return
        self.faults[name] += 1

        def resume() -> None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGCONT)
            os.close(handle)

        self._revert_after(seconds, resume)

    def tell_to_stop(self) -> None:
        self.fleet.tell_to_stop(self._one_of("coordinator", *WORKERS))
        self.faults["process told to stop"] += 1

    def _shuffled(self, *roles: str) -> list[Member]:
        found = self.fleet.of(*roles)
        self._rng.shuffle(found)
        return found

    def kill_redis(self) -> None:
        seconds = self._rng.uniform(0, 5)
        if not self.server.is_running:
            return
        self.outages.at.append(time.monotonic())
        self.server.kill()
        self.faults["redis killed"] += 1
        self._revert_after(seconds, self.server.start)

    # ---- lines

    def drop_reply(self) -> None:
        line, command = self._rng.choice(self.proxy.lines), self._rng.choice(COMMANDS)
        line.drop_reply_of(command)  # counted when it happens

    def cut(self) -> None:
        self._rng.choice(self.proxy.lines).cut()

    def part(self) -> None:
        line, seconds = self._rng.choice(self.proxy.lines), self._rng.uniform(0.5, 12)
        line.part(seconds)

    def slow(self) -> None:
        line, delay_s = self._rng.choice(self.proxy.lines), self._rng.uniform(0.01, 0.2)
        line.slow(delay_s, 2.0)

    # ---- events

    def double_events(self) -> None:
        """Copy recent events, except those from outside: an external event sent twice is meant twice."""
        stream = KEYS.events(self._rng.randrange(KEYS.partitions))
        found: Any = self._client.xrevrange(stream, count=20)
        copied = [fields for _, fields in found if not poison.mark_of(fields) and "reply" not in fields]
        self._rng.shuffle(copied)
        for fields in copied[: self._rng.randint(1, 5)]:
            self._client.xadd(stream, fields)
            self.faults["event doubled"] += 1

    def double_start(self) -> None:
        sent = [one for one in self.producers.sent[-30:] if one.answered_at is not None and one.tries]
        for one in self._rng.sample(sent, min(2, len(sent))):
            self._client.xadd(KEYS.starts, one.fields())
            self.faults["start doubled"] += 1

    def send_poison(self) -> None:
        number = len(self.poison)
        stream, fields = poison.draw(self._rng, number)
        mark = str(poison.mark_of(fields))
        self.poison[mark] = None
        self._client.xadd(stream, fields)
        self.poison[mark] = time.monotonic()
        self.faults["poison sent"] += 1

    # ---- redis

    def kill_clients(self) -> None:
        kind = self._rng.choice(["normal", "pubsub"])
        self.faults["client killed"] += int(self._do("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"))

    def flush_scripts(self) -> None:
        self._client.script_flush()
        self.faults["scripts flushed"] += 1

    def fill_redis(self) -> None:
        seconds = self._rng.uniform(0.2, 2)
        self._client.config_set("maxmemory", 1)
        self.faults["redis full"] += 1
        self._revert_after(seconds, lambda: self._restore("CONFIG", "SET", "maxmemory", "0"))

    def make_replica(self) -> None:
        """Make Redis a replica of a server that does not exist: it keeps its data and rejects writes."""
        seconds = self._rng.uniform(0.2, 2)
        self._do("REPLICAOF", "127.0.0.1", "1")
        self.faults["redis read-only"] += 1
        self._revert_after(seconds, lambda: self._restore("REPLICAOF", "NO", "ONE"))

    def _restore(self, *command: str) -> None:
        """Revert a setting. A Redis that was killed meanwhile has its original configuration anyway."""
        with suppress(RedisError):
            self._do(*command)

    def debug_sleep(self) -> None:
        self._do("DEBUG", "SLEEP", f"{self._rng.uniform(0.1, 1.5):.2f}")
        self.faults["redis asleep"] += 1

    def rewrite_file(self) -> None:
        self._client.bgrewriteaof()
        self.faults["file rewritten"] += 1

    def _do(self, *command: str) -> Any:
        return self._client.execute_command(*command)  # type: ignore[no-untyped-call]
