"""Starts modules as real processes, without their import time: coordinators, workers and commands.

Most of the processor time of a short-lived process is spent on imports. A server imports all modules once,
in a process that does nothing else, and forks a child for each process. The child is a process like any
other: it has a session, a folder, an environment and files of its own, and it can be killed at any time.

    warm_request.py   asks for a process, and runs commands in the shells of the pages
    warm_server.py    the server; what its `orchestrator run` starts is forked by it too
    this module       starts the server, one for each test process

`scripts/test --full` starts every process as a new interpreter. So do tests/e2e/test_readme.py and
tests/e2e/test_quickstart.py, always.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from warm_request import send_request
from warm_server import WarmProcess, start_child_of_runtime

ROOT = Path(__file__).resolve().parent.parent
SERVER = Path(__file__).with_name("warm_server.py")


def run_warm(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a module with arguments to its end, as subprocess.run() does."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = WARM_SERVER.start(command, environment, output, errors, folder)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(command, code, output.read(), errors.read())


class WarmServer:
    """The server of this test process. It is started by the first process, and ends with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def path(self) -> str:
        """The socket of the server, which serves when this returns."""
        with self._lock:
            if self._folder is None:
                self._start()
            assert self._folder is not None
            return f"{self._folder.name}/s"

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        output: int | IO[Any],
        errors: int | IO[Any] = subprocess.STDOUT,
        folder: Path = ROOT,
    ) -> WarmProcess:
        """Start a module with arguments. The first of them is its name. The files are as for Popen."""
        with ExitStack() as stack:
            null = stack.enter_context(open(os.devnull, "r+")).fileno()
            files, pipes = {0: null}, {}
            for number, file in ((1, output), (2, errors)):
                if file == subprocess.PIPE:
                    reader, files[number] = os.pipe()
                    pipes[number] = os.fdopen(reader)
                    stack.callback(os.close, files[number])
                elif file == subprocess.STDOUT:
                    files[number] = files[1]
                elif file == subprocess.DEVNULL:
                    files[number] = null
                else:
                    files[number] = file if isinstance(file, int) else file.fileno()
            connection = send_request(self.path, command, environment, str(folder), files)
        return WarmProcess(command, connection, pipes.get(1), pipes.get(2))

    def start_child_of_runtime(
        self, arguments: list[str], environment: dict[str, str], lifeline: int
    ) -> subprocess.Popen[str]:
        """In the place of orchestrator.runtime.start_child(), for a Runtime of this test process."""
        return start_child_of_runtime(self.path, arguments, environment, lifeline)

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="w")
        atexit.register(self._end)
        self._process = subprocess.Popen(
            [sys.executable, SERVER, f"{self._folder.name}/s"],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._process.stdout.read(1)

    def _end(self) -> None:
        """Close the standard input of the server, so that it ends."""
        assert self._process is not None
        self._process.communicate()


WARM_SERVER = WarmServer()
