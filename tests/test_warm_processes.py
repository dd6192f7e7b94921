"""Services that a warm server forks are processes like any other: they end with a code, and can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import is_running, wait_until
from warm_processes import WARM_SERVER
from warm_server import WarmProcess

SERVER = ("http.server", "--bind", "127.0.0.1", "0")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WarmProcess]:
    process = start(tmp_path, *SERVER)
    yield process
    process.kill()
    process.wait()


def start(folder: Path, *module: str) -> WarmProcess:
    with (folder / "log").open("wb") as log:
        return WARM_SERVER.start(module, {**os.environ, "COLUMNS": "80"}, log)


def test_a_process_writes_its_log_and_ends_with_a_code(tmp_path: Path) -> None:
    assert start(tmp_path, "json.tool", "--help").wait(60) == 0
    assert "usage: " in (tmp_path / "log").read_text()

    assert start(tmp_path, "json.tool", "--no-such-option").wait(60) == 2
    assert "no-such-option" in (tmp_path / "log").read_text()


def test_a_process_has_a_session_of_its_own_and_runs_until_it_is_killed(server: WarmProcess) -> None:
    assert server.poll() is None
    assert os.getsid(server.pid) == server.pid
    with pytest.raises(subprocess.TimeoutExpired):
        server.wait(0.01)

    server.send_signal(signal.SIGKILL)

    assert server.wait(60) == -signal.SIGKILL
    assert not is_running(server.pid)
    server.terminate()  # a process that has ended is not signalled: its number may be another's


def test_the_end_of_one_process_is_not_the_end_of_another(server: WarmProcess, tmp_path: Path) -> None:
    others = [start(tmp_path, *SERVER) for _ in range(3)]

    for other in others:
        other.terminate()

    assert {other.wait(60) for other in others} == {-signal.SIGTERM}
    wait_until(lambda: not any(is_running(other.pid) for other in others))
    assert server.poll() is None
