"""Runtime: runs coordinators and workers for a Python program, as processes that it starts and ends.

    with Runtime("redis://localhost:6379/0", executors=["greetings"]) as runtime:
        runtime.client.start(...)

They are `python -m orchestrator coordinator` and `worker`, so steps are as isolated as on any worker, and the
program needs no `if __name__ == "__main__"`.

No process outlives the program. Each reads a pipe whose writing end only the program holds. If the program
dies, by any signal, the kernel closes the pipe, and the processes exit at once. Their steps are lost then,
and run again when the next worker takes them.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from orchestrator.application.errors import OrchestratorError
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect, translate_errors
from orchestrator.settings import Settings
from orchestrator.wiring import make_client, make_keys

if TYPE_CHECKING:
    from orchestrator.client import Client

logger = logging.getLogger(__name__)

WORKERS = 2
GRACE_S = 30.0
READY_TIMEOUT_S = 30.0
EXIT_TIMEOUT_S = 5.0
POLL_INTERVAL_S = 0.02
RQ_WORKERS = "rq:workers"
RQ_WORKER_PREFIX = "rq:worker:"
QUIET_LOG_OPTIONS = ("--log-level", "warning")


class LinePrinter(Protocol):
    """Prints one line of this process, or of the named child."""

    def __call__(self, line: str, child: str = "") -> None: ...


class ChildEnded(OrchestratorError):
    """A child process exited by itself; its last line and exit code say why."""

    def __init__(self, name: str, exit_code: int, last_line: str) -> None:
        super().__init__(f"the {name} exited with code {exit_code}: {last_line or 'it printed nothing'}")
        self.exit_code = exit_code


class Runtime:
    """Coordinators and workers of one program.

    As a block, it ends with shutdown() and join(), and raises ChildEnded if a process has exited by itself.
    Otherwise call spawn(), and shutdown() and join() at the end.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        executors: Sequence[str] | None = None,
        workers: int = WORKERS,
        queues: Sequence[str] = ("default",),
        *,
        coordinators: int = 1,
        grace_s: float = GRACE_S,
        settings: Settings | None = None,
        worker_options: Sequence[str] = (),
        log_options: Sequence[str] = QUIET_LOG_OPTIONS,
        print_line: LinePrinter | None = None,
        import_paths: Sequence[str] = (),
    ) -> None:
        """`executors` are names of modules. They and the Redis default to those of the settings, and the
        settings to those of the environment.

        A step that still runs `grace_s` after shutdown() is killed, and will be dispatched again.
        `worker_options` are more options of `orchestrator worker`, such as `["--concurrency", "10"]`.
        `print_line` gets each line that a process prints; by default the lines are logged. `import_paths` are
        folders that the processes import modules from, besides the current directory and their own path.
        """
        settings = settings if settings is not None else Settings.from_environment()
        self.settings = replace(settings, redis_url=redis_url or settings.redis_url)
        self._modules = settings.executors if executors is None else executors
        self._workers, self._coordinators, self._queues = workers, coordinators, queues
        self._worker_options, self._log_options = worker_options, log_options
        self._grace_s, self._print_line = grace_s, print_line or _log_line
        self._import_paths = import_paths
        self._processes: ChildProcesses | None = None
        self._client: Client | None = None
        self._stop_at: float | None = None

    @property
    def client(self) -> Client:
        """A client of the same Redis."""
        if self._client is None:
            self._client = make_client(self.settings)
        return self._client

    def spawn(self) -> Self:
        """Start the processes, and wait until they are ready; ChildEnded if one exits before that."""
        if self._processes is not None:
            raise RuntimeError("this runtime has been spawned already; shut it down and join it first")
        self._processes, self._stop_at = ChildProcesses(self._environment(), self._print_line), None
        try:
            self._start(self._processes)
            self._wait_until_ready(self._processes)
        except BaseException:
            self.kill()
            raise
        return self

    def check(self) -> None:
        """Raise ChildEnded if a process has exited by itself."""
        if self._processes is not None and self._stop_at is None:
            self._processes.check()

    def shutdown(self) -> None:
        """Ask the processes to finish the steps that they run, and to exit. join() waits for them."""
        if self._processes is not None and self._stop_at is None:
            self._stop_at = time.monotonic() + self._grace_s
            self._processes.terminate()

    def join(self) -> None:
        """Wait until the processes have exited. Without a shutdown() they only do so by themselves; then this
        ends the others, and raises ChildEnded."""
        if self._processes is None:
            return
        try:
            while self._stop_at is None:
                self._processes.check()
                time.sleep(POLL_INTERVAL_S)
            self._processes.wait(self._stop_at)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the processes at once, whatever they do. Steps that they run will be dispatched again."""
        processes, self._processes = self._processes, None
        if processes is not None:
            processes.kill()

    def __enter__(self) -> Self:
        return self.spawn()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.check()
        finally:
            self.shutdown()
            self.join()

    def _environment(self) -> dict[str, str]:
        paths = [*self._import_paths, *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            **({"PYTHONPATH": os.pathsep.join(paths)} if self._import_paths else {}),
            "ORCHESTRATOR_REDIS_URL": self.settings.redis_url,
            "ORCHESTRATOR_PREFIX": self.settings.prefix,
            "ORCHESTRATOR_PARTITIONS": str(self.settings.partitions),
            "ORCHESTRATOR_TAGS": self.settings.tags,
            "ORCHESTRATOR_EXECUTORS": ",".join(self._modules),
        }

    def _start(self, processes: ChildProcesses) -> None:
        for number in range(1, self._coordinators + 1):
            name = "coordinator" if self._coordinators == 1 else f"coordinator {number}"
            processes.start(name, "coordinator", *self._log_options)
        # The workflows may need only built-in executors.
        options = ("--built-in-only", *self._queues, *self._worker_options, *self._log_options)
        for number in range(1, self._workers + 1):
            processes.start(f"worker {number}", "worker", *options)

    def _wait_until_ready(self, processes: ChildProcesses) -> None:
        """Wait until all processes are registered, so that their start does not count as time of a step. One
        that takes very long is not waited for: what it is to do waits in Redis."""
        redis, deadline = connect(self.settings.redis_url), time.monotonic() + READY_TIMEOUT_S
        try:
            while processes.count_registered(self._registered(redis)) < self._coordinators + self._workers:
                processes.check()
                if time.monotonic() > deadline:
                    return
                time.sleep(POLL_INTERVAL_S)
        finally:
            redis.close()

    def _registered(self, redis: RedisClient) -> list[str]:
        """The names of all coordinators and workers of this Redis."""
        with translate_errors():
            coordinators: Any = redis.zrange(make_keys(self.settings).coordinators, 0, -1)
            workers: Any = redis.smembers(RQ_WORKERS)
        return [*coordinators, *(one.removeprefix(RQ_WORKER_PREFIX) for one in workers)]


def _log_line(line: str, child: str = "") -> None:
    logger.warning("%s: %s", child or "runtime", line)


# ---- child processes


def start_child(arguments: list[str], environment: dict[str, str], lifeline: int) -> subprocess.Popen[str]:
    """Start one of our commands. It exits when the pipe is closed whose reading end it inherits."""
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *arguments, "--lifeline", str(lifeline)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        pass_fds=[lifeline],
        start_new_session=True,  # Ctrl-C in the terminal goes to this process only, which stops the rest
    )


@dataclass
class ChildProcess:
    name: str
    process: subprocess.Popen[str]
    last_line: str = ""

    def forward_output(self, print_line: LinePrinter) -> None:
        """Print each line of its output until it exits, and keep the last one to explain an early exit."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.last_line = line.rstrip()
            print_line(self.last_line, self.name)


class ChildProcesses:
    """Child processes that run our commands and exit when this process does."""

    def __init__(self, environment: dict[str, str], print_line: LinePrinter) -> None:
        self._environment = {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}
        self._print_line = print_line
        self._reading_end, self._lifeline = os.pipe()
        self._children: list[ChildProcess] = []
        self._readers: list[threading.Thread] = []

    def start(self, name: str, *arguments: str) -> None:
        process = start_child(list(arguments), self._environment, self._reading_end)
        child = ChildProcess(name, process)
        self._children.append(child)
        reader = threading.Thread(target=child.forward_output, args=[self._print_line], daemon=True)
        self._readers.append(reader)
        reader.start()

    def check(self) -> None:
        """Raise ChildEnded if a child has exited by itself."""
        for child, reader in zip(self._children, self._readers, strict=True):
            if child.process.poll() is not None:
                reader.join(1.0)
                raise ChildEnded(child.name, child.process.returncode, child.last_line)

    def count_registered(self, names: Sequence[str]) -> int:
        """The number of children that are among these processes, which are named <host>-<pid>-<nonce>."""
        host = socket.gethostname()
        own = tuple(f"{host}-{child.process.pid}-" for child in self._children)
        return sum(name.startswith(own) for name in names)

    def terminate(self) -> None:
        """Ask the children to finish their current steps and to exit."""
        for child in self._children:
            child.process.terminate()

    def wait(self, deadline: float) -> None:
        """Wait until the children have exited, at most until a time of the monotonic clock."""
        for child in self._children:
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._print_line(
                    f"{child.name} is still busy and will be killed; its step will be dispatched again"
                )

    def kill(self) -> None:
        """Stop the children now, whatever they are doing."""
        os.close(self._lifeline)
        for child in self._children:
            try:
                child.process.wait(EXIT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        os.close(self._reading_end)
        for child, reader in zip(self._children, self._readers, strict=True):
            reader.join(1.0)
            if child.process.stdout is not None and not reader.is_alive():
                child.process.stdout.close()
