"""The server of warm_processes.py: it imports all modules once, and forks a process for each request.

python warm_server.py SOCKET      serves until its standard input is closed
"""

from __future__ import annotations

import atexit
import io
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from warm_request import receive_number, receive_request, send_number, send_request

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("orchestrator.client", "orchestrator.coordinator", "orchestrator.redis_rq", "orchestrator.worker")
MODULES = ("orchestrator.cli.main", "orchestrator.embedded", "orchestrator.wiring", "rq.cli")


class WarmProcess(subprocess.Popen[Any]):
    """A process that the server has forked."""

    def __init__(
        self,
        command: Sequence[str],
        connection: socket.socket,
        output: IO[str] | None = None,
        errors: IO[str] | None = None,
    ) -> None:
        self.args = command
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = None, output, errors
        self._child_created = False  # this process is not its parent
        self._connection = connection
        self.pid = receive_number(connection)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Read what it prints, if a pipe was asked for, and wait for its end."""
        assert input is None
        output, errors = map(_read_to_the_end, (self.stdout, self.stderr))
        self.wait(timeout)
        return output, errors

    def poll(self) -> int | None:
        return self._receive_exit_code(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._receive_exit_code(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _receive_exit_code(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], timeout_s)[0]:
            self.returncode = receive_number(self._connection)
            self._connection.close()
        return self.returncode


def _read_to_the_end(stream: IO[str] | None) -> str | None:
    if stream is None or stream.closed:
        return None
    with stream:
        return stream.read()


def start_child_of_runtime(
    path: str, arguments: list[str], environment: dict[str, str], lifeline: int
) -> subprocess.Popen[str]:
    """What orchestrator.runtime.start_child() does, with a fork of the server at this path."""
    command, (reader, writer) = ["orchestrator", *arguments, "--lifeline", str(lifeline)], os.pipe()
    with open(os.devnull) as null, open(writer, "wb") as output:
        files = {0: null.fileno(), 1: output.fileno(), 2: output.fileno(), lifeline: lifeline}
        connection = send_request(path, command, environment, os.getcwd(), files)
    return WarmProcess(command, connection, open(reader, errors="replace"))


def import_modules() -> None:
    import importlib
    import pkgutil

    for name in MODULES:
        importlib.import_module(name)
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            importlib.import_module(module.name)


def serve(path: str) -> list[str] | None:
    """Fork a process for each request. Returns its command in the process, and None at the end."""
    callers: dict[int, socket.socket] = {}
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(128)
        os.write(1, b"\n")  # the test process waits for it
        while True:
            ready, _, _ = select.select([0, woken, listener.fileno()], [], [])
            if woken in ready:
                os.read(woken, 512)
                _send_exit_codes(callers)
            if listener.fileno() in ready:
                caller, _ = listener.accept()
                command, environment, folder, files = receive_request(caller)
                if not (pid := os.fork()):
                    signal.set_wakeup_fd(-1)
                    for other in callers.values():
                        other.close()
                    listener.close()
                    os.close(woken)
                    os.close(waker)
                    _become(caller, environment, folder, files)
                    return command
                callers[pid] = caller
                for file in files.values():
                    os.close(file)
            elif 0 in ready:
                return None


def _send_exit_codes(callers: dict[int, socket.socket]) -> None:
    while callers:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with callers.pop(pid) as caller, suppress(OSError):  # its caller may have ended
            send_number(caller, os.waitstatus_to_exitcode(status))


def _become(caller: socket.socket, environment: dict[str, str], folder: str, files: dict[int, int]) -> None:
    """Become the process of a request: with a session, a folder, an environment and files of its own."""
    for number in (signal.SIGCHLD, signal.SIGHUP):  # under nohup, SIGHUP and SIGINT are ignored
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    send_number(caller, os.getpid())  # from now on it can be signalled
    caller.close()
    _take_files(files)
    _open_streams("PYTHONUNBUFFERED" in environment)
    # As for `python -m`: the folder comes first, then the variable.
    sys.path[0:0] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]


def _take_files(files: dict[int, int]) -> None:
    """Give the files their numbers. No number is that of another one that was received."""
    above = max(*files, *files.values()) + 1
    moved = {number: os.dup2(file, above + place) for place, (number, file) in enumerate(files.items())}
    for file in files.values():
        os.close(file)
    for number, file in moved.items():
        os.dup2(file, number)
        os.close(file)


def _open_streams(is_unbuffered: bool) -> None:
    """Standard streams as a new interpreter has them."""
    sys.stdin = os.fdopen(0, closefd=False)
    if is_unbuffered:
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    else:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)


class QuickExit:
    """Ends a process with a code, if it has one, without the cost of freeing all modules."""

    code: int | None = None

    def __call__(self) -> None:
        if self.code is not None:
            with suppress(OSError, ValueError):  # then the interpreter reports it
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(self.code & 0xFF)


def main(path: str) -> None:
    import gc
    import runpy
    from functools import partial

    quick_exit = QuickExit()
    atexit.register(quick_exit)  # the first that is registered is the last to be called
    sys.path[0] = str(ROOT)  # as for `python -m`, not the folder of this file
    import_modules()
    from orchestrator import runtime

    runtime.start_child = partial(start_child_of_runtime, path)
    gc.freeze()  # a child does not copy these objects to look at them
    command = serve(path)
    if command is not None:
        sys.argv[1:] = command[1:]
        try:
            runpy.run_module(command[0], run_name="__main__", alter_sys=True)
        except SystemExit as end:
            quick_exit.code = end.code if isinstance(end.code, int) else None if end.code else 0
            raise
        quick_exit.code = 0


if __name__ == "__main__":
    main(sys.argv[1])
