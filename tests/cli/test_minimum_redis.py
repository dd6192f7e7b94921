"""A service ends at its start, with an advice, when its Redis is older than the oldest that is supported."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from orchestrator.redis_rq.connection import MINIMUM_REDIS
from processes import ROOT, run_module

SERVICES = {
    "coordinator": ["orchestrator", "coordinator"],
    "worker": ["orchestrator", "worker", "default", "--built-in-only"],
}


@contextmanager
def redis_of_version(version: str) -> Iterator[str]:
    """The URL of a server that says in INFO which version it is, and 0 to all else."""
    info = f"# Server\r\nredis_version:{version}\r\n"
    reply = f"${len(info)}\r\n{info}\r\n".encode()

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while data := connection.recv(1 << 16):
                commands = data.count(b"*")
                connection.sendall(reply if b"INFO\r\n" in data else b":0\r\n" * commands)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("version", ["6.0.16", "5.0.14"])
def test_a_service_ends_when_redis_is_too_old(service: str, version: str, tmp_path: Path) -> None:
    with redis_of_version(version) as url:
        environment = {**os.environ, "ORCHESTRATOR_REDIS_URL": url, "PYTHONPATH": str(ROOT)}

        run = run_module(SERVICES[service], environment, tmp_path, 180)

    assert run.returncode == 1, run.stderr
    current = version.rpartition(".")[0]
    assert f"is version {current}: 6.2 or newer is needed; upgrade it" in run.stderr


def test_the_page_about_compatibility_states_the_minimum() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")

    assert f"| Redis | {'.'.join(map(str, MINIMUM_REDIS))} and later |" in page
