"""Starts the modules of coordinators and workers as real processes, without their import time.

Most of the processor time of a short-lived service is spent on imports. A server imports all modules once,
in a process that does nothing else, and forks a child for each service. The child is a process like any
other: it has a session, a folder, an environment and a log of its own, and it can be killed at any time.

    test process --request--> server --fork--> service
                 <--pid-----
                 <--exit code, on a pipe for each service

`scripts/test --full` starts every service as a new process, and so do the tests of the commands in tests/e2e.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("orchestrator.coordinator", "orchestrator.redis_rq", "orchestrator.worker")
MODULES = ("orchestrator.cli.main", "orchestrator.wiring", "rq.cli")
MAX_REQUEST_BYTES = 1 << 16


class WarmProcess(subprocess.Popen[bytes]):
    """A service that the server has forked."""

    def __init__(self, command: Sequence[str], pid: int, exit_code: int) -> None:
        """`exit_code` is the file descriptor from which the exit code can be read."""
        self.args, self.pid = command, pid
        self.returncode: int | None = None
        self.stdin = self.stdout = self.stderr = None
        self._child_created = False  # this process is not its parent
        self._exit_code = exit_code

    def poll(self) -> int | None:
        return self._read_exit_code(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._read_exit_code(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _read_exit_code(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._exit_code], [], [], timeout_s)[0]:
            self.returncode = int(os.read(self._exit_code, 16) or -signal.SIGKILL)
            os.close(self._exit_code)
        return self.returncode


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
    """The server of this test process. It is started by the first service, and ends with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: IO[Any],
        errors: IO[Any] | None = None,
        folder: Path = ROOT,
    ) -> WarmProcess:
        """Start a module with arguments. The first of them is its name. `errors` is its standard error, by
        default that of its log."""
        request = json.dumps([list(command), dict(environment), str(folder)]).encode()
        files = [log.fileno(), (errors or log).fileno()]
        exit_code, writer = os.pipe()
        try:
            with self._lock:
                server = self._socket or self._start()
                server.sendall(len(request).to_bytes(4, "big"))
                socket.send_fds(server, [request[:MAX_REQUEST_BYTES]], [*files, writer])
                server.sendall(request[MAX_REQUEST_BYTES:])
                pid = int(server.recv(16))
        finally:
            os.close(writer)
        return WarmProcess(command, pid, exit_code)

    def _start(self) -> socket.socket:
        self._socket, its = socket.socketpair()
        atexit.register(self._end)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(its.fileno())],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                start_new_session=True,
            )
        return self._socket

    def _end(self) -> None:
        """Close the connection, so that the server ends."""
        assert self._socket is not None
        assert self._process is not None
        self._socket.close()
        self._process.wait()


WARM_SERVER = WarmServer()


# ---- in the server


def import_modules() -> None:
    import gc
    import importlib
    import pkgutil

    for name in MODULES:
        importlib.import_module(name)
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            importlib.import_module(module.name)
    gc.freeze()  # a child does not copy these objects to look at them


def serve(requests: socket.socket) -> list[str] | None:
    """Fork a child for each request. Returns the command in a child, and None at the end."""
    exit_codes: dict[int, int] = {}
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([requests.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 512)
            _send_exit_codes(exit_codes)
        if requests.fileno() not in ready:
            continue
        size = int.from_bytes(requests.recv(4, socket.MSG_WAITALL), "big")
        if not size:
            return None
        data, (log, errors, exit_code), _, _ = socket.recv_fds(requests, min(size, MAX_REQUEST_BYTES), 3)
        if len(data) < size:
            data += requests.recv(size - len(data), socket.MSG_WAITALL)
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGHUP):  # under nohup, SIGHUP and SIGINT are ignored
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for file in (woken, waker, exit_code, *exit_codes.values()):
                os.close(file)
            command, environment, folder = json.loads(data)
            _become(environment, folder, log, errors)
            requests.sendall(str(os.getpid()).encode())  # from now on it can be signalled
            requests.close()
            return list(command)
        os.close(log)
        os.close(errors)
        exit_codes[pid] = exit_code


def _send_exit_codes(exit_codes: dict[int, int]) -> None:
    while exit_codes:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        file = exit_codes.pop(pid)
        with suppress(BrokenPipeError):  # its test has ended
            os.write(file, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(file)


def _become(environment: dict[str, str], folder: str, log: int, errors: int) -> None:
    """Become the process of a service: with a session, a folder, an environment and a log of its own."""
    os.setsid()
    os.chdir(folder)
    os.dup2(log, 1)
    os.dup2(errors, 2)
    os.close(log)
    os.close(errors)
    os.environ.clear()
    os.environ.update(environment)
    # As for `python -m`: the folder comes first, then the variable.
    paths = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.path[0:0] = paths


if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # as for `python -m`, not the folder of this file
    import_modules()
    with socket.socket(fileno=int(sys.argv[1])) as made:
        service = serve(made)
    if service is not None:
        import runpy

        sys.argv[1:] = service[1:]
        runpy.run_module(service[0], run_name="__main__", alter_sys=True)
