"""Real processes for a test: coordinators, stock RQ workers and our own, to be killed at will.

Every process is started here, ends with the test, and is ended by its pid.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from effort import IS_FULL
from orchestrator.client import Client
from orchestrator.client.bulk import BulkControls
from orchestrator.client.controls import Controls
from orchestrator.client.replies import REPLY_TIMEOUT_S, Replies
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.keys import Keys
from warm_processes import WARM_SERVER, run_warm

ROOT = Path(__file__).parent.parent
PYTHON_MODULE = (sys.executable, "-m")
JSON_SERIALIZER = ("--serializer", "rq.serializers.JSONSerializer")
"""The option of `rq worker`; its short form `--serializer json` needs rq 2.9."""
PATIENCE_S = 180.0
"""How long a test waits for what must happen. On a busy machine that may take a while."""


def wait_until(fact: Callable[[], object], patience_s: float = PATIENCE_S, what: str = "") -> None:
    """Wait for a fact, not for a duration."""
    until = time.monotonic() + patience_s
    while not fact():
        if time.monotonic() > until:
            raise AssertionError(f"did not become true within {patience_s:g} s: {what or fact}")
        time.sleep(0.01)


def run_module(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    timeout_s: float,
    is_warm: bool = not IS_FULL,
) -> subprocess.CompletedProcess[str]:
    """Run a module with arguments in a process of its own, and return what it printed."""
    if is_warm:
        return run_warm(command, environment, folder, timeout_s)
    return subprocess.run(
        [*PYTHON_MODULE, *command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def start_module(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    output: int | IO[Any],
    errors: int | IO[Any] = subprocess.STDOUT,
    is_warm: bool = not IS_FULL,
) -> subprocess.Popen[str]:
    """Start a module with arguments. Its files are as subprocess.Popen takes them."""
    if is_warm:
        return WARM_SERVER.start(command, environment, output, errors, folder)
    return subprocess.Popen(
        [*PYTHON_MODULE, *command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        text=True,
        preexec_fn=_restore_signal_handlers,
    )


def _restore_signal_handlers() -> None:
    """Restore the default handlers: under nohup or in the background, these signals are ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def is_running(pid: int) -> bool:
    """Whether there is such a process; a zombie has ended."""
    return _state_of(pid) not in ("", "Z")


def _state_of(pid: int) -> str:
    """The letter by which Linux names the state of a process; empty when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # it may also end while it is read
        return ""
    return stat.rpartition(")")[2].split()[0]


class PatientReplies(Replies):
    """Waits for a reply as long as a test does, where the caller leaves the time to the client."""

    def wait(
        self, name: str, timeout_s: float, entry_id: str | None = None, stream: str | None = None
    ) -> dict[str, Any]:
        patience_s = PATIENCE_S if timeout_s == REPLY_TIMEOUT_S else timeout_s
        return super().wait(name, patience_s, entry_id, stream)


class PatientClient(Client):
    """A client of processes that have just been started: on a busy machine that takes its time."""

    def __init__(self, redis: str | RedisClient, keys: Keys | None = None, **options: Any) -> None:
        super().__init__(redis, keys, **options)
        self._replies = PatientReplies(self._redis, self._keys)
        self._controls = Controls(self._redis, self._keys, self._replies)
        self._bulk = BulkControls(self._controls, self._listing, self._failures)


@dataclass
class Stack:
    """The processes around one Redis. If it is warm, they need no time for imports: see warm_processes.py."""

    url: str
    executors: str
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    is_warm: bool = not IS_FULL

    def coordinator(self, *options: str) -> subprocess.Popen[bytes]:
        quiet = ("--log-level", "WARNING")
        return self._spawn(sys.executable, "-m", "orchestrator", "coordinator", *quiet, *options)

    def worker(self, *queues: str) -> subprocess.Popen[bytes]:
        """Our own worker; without executors of a module it serves the built-in ones."""
        options = () if self.executors else ("--built-in-only",)
        return self._spawn(
            sys.executable, "-m", "orchestrator", "worker", *options, *(queues or ("default",))
        )

    def rq_worker(
        self,
        *queues: str,
        worker_class: str = "rq.worker.Worker",
        serializer: tuple[str, ...] = JSON_SERIALIZER,
    ) -> subprocess.Popen[bytes]:
        """A worker as RQ ships it: nothing of ours but the function it calls."""
        names = queues or ("orchestrator.default",)
        rq = (sys.executable, "-m", "rq.cli", "worker", "--url", self.url, *serializer)
        return self._spawn(*rq, "--worker-class", worker_class, "--worker-ttl", "30", *names)

    def web(self, *options: str) -> tuple[subprocess.Popen[bytes], str]:
        """The web page on a free port, and its URL without the last slash."""
        return self._serve("web", r"The page is at (\S+)/ ", *options)

    def exporter(self, *options: str) -> tuple[subprocess.Popen[bytes], str]:
        """The exporter of metrics on a free port, and its URL without the path."""
        return self._serve("exporter", r"The metrics are at (\S+)/metrics ", *options)

    def _serve(self, command: str, message: str, *options: str) -> tuple[subprocess.Popen[bytes], str]:
        """A command that listens on a free port, and the URL in its message."""
        log = self._next_log()
        process = self._spawn(sys.executable, "-m", "orchestrator", command, "--port", "0", *options)
        wait_until(lambda: re.search(message, log.read_text()) or not is_running(process.pid))
        found = re.search(message, log.read_text())
        assert found is not None, log.read_text()
        return process, found[1]

    def traces(self, *options: str) -> subprocess.Popen[bytes]:
        return self._spawn(sys.executable, "-m", "orchestrator", "traces", *options)

    def module(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """A module of the tests that is a program."""
        return self._spawn(sys.executable, "-m", name, *arguments)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()

    def horse_of(self, process: subprocess.Popen[bytes]) -> int | None:
        """The work-horse that an RQ worker has forked, if it is busy."""
        return next(iter(self._children_of(process)), None)

    def _children_of(self, process: subprocess.Popen[bytes]) -> list[int]:
        """The children of all threads of a process."""
        pids: list[int] = []
        for thread in Path(f"/proc/{process.pid}/task").glob("*/children"):
            with suppress(OSError):  # it has just ended
                pids += map(int, thread.read_text().split())
        return sorted(pids)

    def kill_horse(self, process: subprocess.Popen[bytes]) -> bool:
        horse = self.horse_of(process)
        return horse is not None and self.kill_pid(horse)

    def freeze(self, process: subprocess.Popen[bytes]) -> None:
        """A worker, and the processes in which it runs steps, if it has any now."""
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: _state_of(process.pid) == "T", what="the worker to stop")
        for child in self._children_of(process):
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(child, signal.SIGSTOP)

    def kill_with_horse(self, process: subprocess.Popen[bytes]) -> None:
        """A worker and all its children. It is stopped first, so that it forks no other one meanwhile."""
        self.freeze(process)
        children = self._children_of(process)
        self.kill(process)
        for child in children:
            self.kill_pid(child)

    def kill_pid(self, pid: int) -> bool:
        """Kill a child of one of our processes; False when it has just ended."""
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def end(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill(process)

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def _next_log(self) -> Path:
        return self.folder / f"{len(self.processes):03}.log"

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
            "ORCHESTRATOR_REDIS_URL": self.url,
            "ORCHESTRATOR_EXECUTORS": self.executors,
            **self.environment,
        }
        with self._next_log().open("wb") as sink:
            process = self._start(command, environment, sink)
        self.processes.append(process)
        return process

    def _start(
        self, command: tuple[str, ...], environment: dict[str, str], log: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        # The interpreter reads these variables when it starts, and a forked one has started already.
        needs_new_interpreter = any(name.startswith(("PYTHON", "LD_")) for name in self.environment)
        if self.is_warm and command[:2] == PYTHON_MODULE and not needs_new_interpreter:
            return WARM_SERVER.start(command[2:], environment, log)
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # a process that kills its own group must not kill the tests
        )


@contextmanager
def stack(url: str, executors: str, folder: Path, **environment: str) -> Iterator[Stack]:
    made = Stack(url, executors, folder, environment)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield made
    finally:
        made.end()
