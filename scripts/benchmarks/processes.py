"""A private redis-server and the processes that use it. All of them end with their block."""

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
from scripts.benchmarks.measuring import Run, Tally, WrongResult

ROOT = Path(__file__).resolve().parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
FUNCTIONS = "scripts.benchmarks.functions"
OURS = "orchestrator worker"
STOCK = "rq worker"
QUIET = ("--log-level", "warning")
POLL_EVERY_S = 0.02


class Server:
    """A redis-server on a socket. It is ready after the constructor returns."""

    def __init__(self, folder: Path, aof: bool) -> None:
        socket = folder / "redis.sock"
        aof_options = ("--appendonly", "yes", "--appendfsync", "everysec") if aof else ("--appendonly", "no")
        command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", *aof_options]
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
    """The processes that use one Redis, by kind."""

    def __init__(self, folder: Path, server: Server) -> None:
        self._folder, self.server = folder, server
        self._processes: dict[str, list[subprocess.Popen[bytes]]] = {}
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("ORCHESTRATOR_")}
        self._environment = {
            **inherited,
            "ORCHESTRATOR_REDIS_URL": server.url,
            "ORCHESTRATOR_EXECUTORS": FUNCTIONS,
            "PYTHONPATH": str(ROOT),
        }

    def coordinators(self, count: int) -> None:
        for _ in range(count):
            self._start("coordinator", "-m", "orchestrator", "coordinator", *QUIET)

    def workers(self, count: int, kind: str, *args: str) -> None:
        for _ in range(count):
            if kind == OURS:
                self._start("workers", "-m", "orchestrator", "worker", *QUIET, *args)
            else:
                url = ("--url", self.server.url, "--serializer", "json", "-q")
                self._start("workers", "-m", "rq.cli", "worker", *url, *args)

    def get_ready(self) -> None:
        """Wait until all processes are registered."""
        redis = self.server.client
        counts = {kind: len(processes) for kind, processes in self._processes.items()}
        wait_until(lambda: redis.zcard(Keys().coordinators) == counts.get("coordinator", 0), self)
        wait_until(lambda: redis.scard("rq:workers") == counts.get("workers", 0), self)

    def _start(self, kind: str, *args: str) -> None:
        with (self._folder / f"{kind}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *args], env=self._environment, cwd=self._folder, stdout=log, stderr=log
            )
        self._processes.setdefault(kind, []).append(process)

    def cpu_s(self) -> dict[str, float]:
        found = {
            kind: sum(tree_cpu_s(process.pid) for process in processes)
            for kind, processes in self._processes.items()
        }
        return found | {"client": time.process_time()}

    def check(self) -> None:
        """Raise WrongResultResult if a process has exited."""
        for kind, processes in self._processes.items():
            if any(process.poll() is not None for process in processes):
                log = (self._folder / f"{kind}.log").read_text(errors="replace")[-2_000:]
                raise WrongResult(f"a process exited unexpectedly: {kind}\n{log}")

    def end(self) -> None:
        """Kill all processes. A work-horse that outlives its supervisor and its Redis would try for an hour
        to publish its last result, so it is killed too."""
        for process in (one for processes in self._processes.values() for one in processes):
            process.send_signal(signal.SIGSTOP)  # so that it starts no other child
            for child in children_of(process.pid):
                os.kill(child, signal.SIGKILL)
            process.kill()
            process.wait()


@contextmanager
def start_fleet(aof: bool = False) -> Iterator[Fleet]:
    """Start a Redis without other processes."""
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
def measure_fleet(run: Run, fleet: Fleet) -> Iterator[None]:
    """Add the work of all processes during the block to the run."""
    run.aof = fleet.server.aof
    before, cpu, began = Tally.of(fleet.server.client), fleet.cpu_s(), time.perf_counter()
    yield
    run.seconds = time.perf_counter() - began
    after = Tally.of(fleet.server.client)
    after.add_since(before, run)
    run.round_trips = after.reads - before.reads - 1  # without the read of this query
    run.cpu_s |= {kind: spent - cpu.get(kind, 0.0) for kind, spent in fleet.cpu_s().items()}


class EndListener:
    """Waits for the end of executions by subscribing, because polling Redis would count as commands."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._subscription = connect(fleet.server.url).pubsub()  # type: ignore[no-untyped-call]
        self._subscription.psubscribe(Keys().done("*"))
        self._subscription.get_message(timeout=10)  # the confirmation of the subscription

    def wait(self, count: int) -> None:
        while count:
            message = self._subscription.get_message(timeout=1.0)
            if message is None:
                self._fleet.check()
            elif message["data"] != "complete":
                raise WrongResult(f"{message['channel']} ended as {message['data']}")
            else:
                count -= 1


def make_client(fleet: Fleet) -> Client:
    return Client(fleet.server.client)


def tree_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of its running and finished children."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(ticks) for ticks in fields[11:15]) / TICKS + sum(map(tree_cpu_s, children_of(pid)))


def children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def wait_until(condition: Callable[[], object], fleet: Fleet | None = None, timeout_s: float = 600.0) -> int:
    """Wait until the condition is true. Return how often it was evaluated."""
    until, checks = time.monotonic() + timeout_s, 0
    while True:
        checks += 1
        try:
            if condition():
                return checks
        except Exception:
            if time.monotonic() > until:
                raise
        if time.monotonic() > until:
            raise WrongResult(f"gave up waiting after {timeout_s:g} s")
        if fleet is not None:
            fleet.check()
        time.sleep(POLL_EVERY_S)
