"""A Redis of our own for the tests: a socket in a short folder, up in 40 ms, nobody else's data in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

MAX_SOCKET_PATH_BYTES = 100  # the kernel allows 108 bytes on Linux and 104 elsewhere
PATIENCE_S = 180.0


@dataclass
class RedisServer:
    """One redis-server process and its folder, which may be killed and started again on the same data."""

    folder: Path
    arguments: tuple[str, ...] = ()
    binary: str | None = None
    prefix: tuple[str, ...] = ()
    """A command that runs the server, such as `ip netns exec NAME`. It must not fork."""
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def socket(self) -> Path:
        return self.folder / "redis.sock"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        if self.process is None:
            raise RuntimeError("this redis-server was never started")
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def client(self, **options: Any) -> Redis:
        """A client that never repeats a command by itself: what a test sends is what the server gets."""
        defaults: dict[str, Any] = {
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": PATIENCE_S,
        }
        return Redis(unix_socket_path=str(self.socket), **(defaults | options))

    def start(self) -> None:
        """Start the process and return when it answers, its data loaded."""
        self.socket.unlink(missing_ok=True)  # a killed server leaves its socket behind
        command = [
            *self.prefix,
            self.binary or _binary(),
            *("--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700"),
            *("--save", "", "--dir", str(self.folder)),
            *self.arguments,
        ]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                restore_signals=False,  # a file that may not grow is an error, not the end: see outages.py
            )
        self._wait_until_it_answers()

    def stop(self) -> None:
        """End the process the polite way; by force when it does not go."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL: what was not on disk is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def restart(self) -> None:
        """Start again with the same folder and arguments; stops the process first if it still runs."""
        self.stop()
        self.start()

    @property
    def _log(self) -> Path:
        return self.folder / "redis.log"

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.is_running and time.monotonic() < deadline:
            if self.socket.exists():
                with suppress(RedisError), self.client() as client:
                    client.ping()
                    return
            time.sleep(0.005)
        self.kill()
        log = self._log.read_text(errors="replace")
        raise RuntimeError(f"redis-server {' '.join(self.arguments)} did not come up:\n{log}")


@contextmanager
def own_redis(folder: Path, *arguments: str, binary: str | None = None) -> Iterator[RedisServer]:
    """A private redis-server, ended by its pid when the block is left, and its files removed.

    It lives in a folder of its own under `folder`, or under the system's temporary folder where the path of
    the socket would be too long. Further arguments go to redis-server: "--appendonly", "yes" keeps its data
    over a kill() and a restart().
    """
    home = Path(tempfile.mkdtemp(prefix="r", dir=folder))
    if len(os.fsencode(home / "redis.sock")) >= MAX_SOCKET_PATH_BYTES:
        home.rmdir()
        home = Path(tempfile.mkdtemp(prefix="r"))
    server = RedisServer(home, arguments, binary)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


def require_redis_server() -> None:
    """Skip the test where there is no redis-server, except where somebody counts on the test being run."""
    if shutil.which("redis-server"):
        return
    if os.environ.get("CI") or os.environ.get("ORCHESTRATOR_REQUIRE_REDIS"):
        pytest.fail("there is no redis-server on the PATH", pytrace=False)
    pytest.skip("there is no redis-server on the PATH")


def require_redis_version(least: tuple[int, int], reason: str) -> None:
    """Skip the test where the server is older, for this reason."""
    printed = subprocess.run([_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v=(\d+)\.(\d+)", printed)
    assert found is not None, printed
    if (int(found[1]), int(found[2])) < least:
        pytest.skip(f"needs Redis {least[0]}.{least[1]}: {reason}")


def find_redis_cli() -> str:
    """The path of redis-cli or valkey-cli. The test is skipped where there is none: wheels of servers may
    come without one."""
    found = shutil.which("redis-cli") or shutil.which("valkey-cli")
    if found:
        return found
    if os.environ.get("CI"):
        pytest.fail("there is no redis-cli on the PATH", pytrace=False)
    pytest.skip("there is no redis-cli on the PATH")


def _binary() -> str:
    require_redis_server()
    return shutil.which("redis-server") or "redis-server"
