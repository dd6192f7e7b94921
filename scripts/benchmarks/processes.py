"""A redis-server of the benchmark's own, and processes around it; all of them end with their block."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.client import Client
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from scripts.benchmarks.measuring import Run, Tally, Wrong

ROOT = Path(__file__).resolve().parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
FUNCTIONS = "scripts.benchmarks.functions"
OURS = "orchestrator worker"
STOCK = "rq worker"
QUIET = ("--log-level", "warning")
LOOK_S = 0.02


class Server:
    """A redis-server on a socket, up when this is made."""

    def __init__(self, folder: Path, aof: bool) -> None:
        socket = folder / "redis.sock"
        aof_words = ("--appendonly", "yes", "--appendfsync", "everysec") if aof else ("--appendonly", "no")
        command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", *aof_words]
        with (folder / "redis.log").open("wb") as log:
            self.process = subprocess.Popen([*command, "--dir", str(folder)], stdout=log, stderr=log)
        self.url, self.aof = f"unix://{socket}", aof
        wait_until(socket.exists)
        self.client = connect(self.url)
        wait_until(self.client.ping)

    def end(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait()


class Fleet:
    """The processes around one Redis, by what they are."""

    def __init__(self, folder: Path, server: Server) -> None:
        self._folder, self.server = folder, server
        self._processes: dict[str, list[subprocess.Popen[bytes]]] = {}
        ours = {name: text for name, text in os.environ.items() if not name.startswith("ORCHESTRATOR_")}
        self._environment = {
            **ours,
            "ORCHESTRATOR_REDIS_URL": server.url,
            "ORCHESTRATOR_EXECUTORS": FUNCTIONS,
            "PYTHONPATH": str(ROOT),
        }

    def coordinators(self, count: int) -> None:
        for _ in range(count):
            self._start("coordinator", "-m", "orchestrator", "coordinator", *QUIET)

    def workers(self, count: int, kind: str, *words: str) -> None:
        for _ in range(count):
            if kind == OURS:
                self._start("workers", "-m", "orchestrator", "worker", *QUIET, *words)
            else:
                url = ("--url", self.server.url, "--serializer", "json", "-q")
                self._start("workers", "-m", "rq.cli", "worker", *url, *words)

    def get_ready(self) -> None:
        """Wait until all that were started are registered."""
        redis, started = self.server.client, {kind: len(some) for kind, some in self._processes.items()}
        wait_until(lambda: redis.zcard(Keys().coordinators) == started.get("coordinator", 0), self)
        wait_until(lambda: redis.scard("rq:workers") == started.get("workers", 0), self)

    def _start(self, kind: str, *words: str) -> None:
        with (self._folder / f"{kind}.log").open("ab") as log:
            made = subprocess.Popen(
                [sys.executable, *words], env=self._environment, cwd=self._folder, stdout=log, stderr=log
            )
        self._processes.setdefault(kind, []).append(made)

    def cpu_s(self) -> dict[str, float]:
        found = {
            kind: sum(tree_cpu_s(process.pid) for process in processes)
            for kind, processes in self._processes.items()
        }
        return found | {"client": time.process_time()}

    def check(self) -> None:
        """Nobody has ended."""
        for kind, processes in self._processes.items():
            if any(process.poll() is not None for process in processes):
                said = (self._folder / f"{kind}.log").read_text(errors="replace")[-2_000:]
                raise Wrong(f"a process has ended that should not: {kind}\n{said}")

    def end(self) -> None:
        """At once: nobody needs what they would leave behind. A work-horse that outlives its supervisor and
        its Redis tries for an hour to hand in its last step, so it is killed too."""
        for process in (one for processes in self._processes.values() for one in processes):
            process.send_signal(signal.SIGSTOP)  # it begins no other child
            for child in children_of(process.pid):
                os.kill(child, signal.SIGKILL)
            process.kill()
            process.wait()


@contextmanager
def started(aof: bool = False) -> Iterator[Fleet]:
    """A Redis, and nobody else yet."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    server = Server(folder, aof)
    fleet = Fleet(folder, server)
    try:
        yield fleet
    finally:
        fleet.end()
        server.end()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def measured(run: Run, fleet: Fleet) -> Iterator[None]:
    """All that the processes do while a block runs."""
    run.aof = fleet.server.aof
    before, cpu, began = Tally.of(fleet.server.client), fleet.cpu_s(), time.perf_counter()
    yield
    run.seconds = time.perf_counter() - began
    after = Tally.of(fleet.server.client)
    after.add_since(before, run)
    run.round_trips = after.reads - before.reads - 1  # the one by which we ask is nobody's
    run.cpu_s |= {kind: spent - cpu.get(kind, 0.0) for kind, spent in fleet.cpu_s().items()}


class Ends:
    """Hears of executions that end. Redis is not asked again and again, which would count: it tells."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._line = connect(fleet.server.url).pubsub()  # type: ignore[no-untyped-call]
        self._line.psubscribe(Keys().done("*"))
        self._line.get_message(timeout=10)  # that we are subscribed

    def wait(self, count: int) -> None:
        while count:
            heard = self._line.get_message(timeout=1.0)
            if heard is None:
                self._fleet.check()
            elif heard["data"] != "complete":
                raise Wrong(f"{heard['channel']} ended as {heard['data']}")
            else:
                count -= 1


def client_of(fleet: Fleet) -> Client:
    return Client(fleet.server.client)


def tree_cpu_s(pid: int) -> float:
    """Of a process, its children that live, and those that it has outlived."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(word) for word in words[11:15]) / TICKS + sum(map(tree_cpu_s, children_of(pid)))


def children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def wait_until(fact: Callable[[], object], fleet: Fleet | None = None, patience_s: float = 600.0) -> int:
    """Look until it is so; returns how often, for whoever counts."""
    until, looks = time.monotonic() + patience_s, 0
    while True:
        looks += 1
        try:
            if fact():
                return looks
        except Exception:
            if time.monotonic() > until:
                raise
        if time.monotonic() > until:
            raise Wrong(f"gave up waiting after {patience_s:g} s")
        if fleet is not None:
            fleet.check()
        time.sleep(LOOK_S)
