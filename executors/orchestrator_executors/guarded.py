"""Runs a command under its guard (`guard.py`), and captures its output up to a limit.

The calling process keeps its signal handlers and its working directory, so any number of threads may do this
at once. The guard is a Python process, whose start costs about 20 ms.
"""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GUARD_SCRIPT = Path(__file__).with_name("guard.py")
POLL_INTERVAL_S = 0.2
GUARD_EXIT_TIMEOUT_S = 4.0
CHUNK_BYTES = 65_536
TAIL_BYTES = 2_000
MAX_CHUNKS_LEFT = 64
"""More chunks than a pipe holds. The limit is for a pipe to which another process still writes."""


class CapturedStream:
    """The first `max_bytes` of a stream and its last few; the bytes between are only counted."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._head, self.tail, self.size = max_bytes, bytearray(), b"", 0

    def add(self, chunk: bytes) -> None:
        self._head += chunk[: self._max_bytes - len(self._head)]
        self.tail = (self.tail + chunk)[-TAIL_BYTES:]
        self.size += len(chunk)

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    @property
    def is_cut(self) -> bool:
        return self.size > len(self._head)


@dataclass(frozen=True)
class Command:
    """`argv` begins with the path of the program; `folder` is the descriptor of its working directory, / if
    None."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    stdin: bytes = b""
    folder: int | None = None

    def encode(self) -> bytes:
        """The message that the guard reads."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        fields = [str(len(self.argv)), *self.argv, *variables]
        message = b"".join(field.encode() + b"\0" for field in fields)
        return len(message).to_bytes(8) + message


@dataclass(frozen=True)
class CommandResult:
    """`returncode` is as in subprocess, negative for a signal, and None if the command was stopped. `error`
    is the errno if the command could not be started."""

    returncode: int | None
    error: int | None
    stdout: CapturedStream
    stderr: CapturedStream


def run(
    command: Command,
    max_bytes: int,
    should_continue: Callable[[], bool],
    on_output: Callable[[], None] = lambda: None,
) -> CommandResult:
    """Run a command until it ends, or until `should_continue`, called a few times a second, returns False. No
    process of the command is left when this returns or raises."""
    lifeline, guard_end = socket.socketpair()
    with lifeline:
        with guard_end:
            guard = _start_guard(guard_end.fileno(), command.folder)
        try:
            return _Session(guard, lifeline, command, max_bytes).run(should_continue, on_output)
        finally:
            lifeline.close()
            _wait_for_guard(guard)


def _start_guard(lifeline: int, folder: int | None) -> subprocess.Popen[bytes]:
    """Start the guard with an empty environment: the variables of a command must not affect the guard."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(GUARD_SCRIPT), str(lifeline), str(-1 if folder is None else folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},
        cwd="/",
        pass_fds=[lifeline] if folder is None else [lifeline, folder],
        start_new_session=True,
        bufsize=0,
    )


def _wait_for_guard(guard: subprocess.Popen[bytes]) -> None:
    for stream in (guard.stdin, guard.stdout, guard.stderr):
        if stream is not None:
            stream.close()
    try:
        guard.wait(GUARD_EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()


class _Session:
    """The exchange with a guard: sends the command, copies its streams, and receives the reply."""

    def __init__(
        self, guard: subprocess.Popen[bytes], lifeline: socket.socket, command: Command, max_bytes: int
    ) -> None:
        assert guard.stdin is not None
        assert guard.stdout is not None
        assert guard.stderr is not None
        self._lifeline, self._stdin, self._reply = lifeline, guard.stdin, b""
        self._unsent = {
            lifeline.fileno(): memoryview(command.encode()),
            guard.stdin.fileno(): memoryview(command.stdin),
        }
        self._stdout, self._stderr = CapturedStream(max_bytes), CapturedStream(max_bytes)
        self._captured = {guard.stdout.fileno(): self._stdout, guard.stderr.fileno(): self._stderr}
        for descriptor in (*self._unsent, *self._captured):
            os.set_blocking(descriptor, False)

    def run(self, should_continue: Callable[[], bool], on_output: Callable[[], None]) -> CommandResult:
        lifeline = self._lifeline.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(lifeline, selectors.EVENT_READ | selectors.EVENT_WRITE)
            selector.register(self._stdin.fileno(), selectors.EVENT_WRITE)
            for descriptor in self._captured:
                selector.register(descriptor, selectors.EVENT_READ)
            while lifeline in selector.get_map() and should_continue():
                for key, events in selector.select(POLL_INTERVAL_S):
                    if events & selectors.EVENT_WRITE and self._send(key.fd):
                        self._stop_sending(selector, key.fd)
                    if events & selectors.EVENT_READ and not self._receive(key.fd):
                        selector.unregister(key.fd)
                    elif key.fd in self._captured:
                        on_output()
        for descriptor in self._captured:  # the command is gone; read the output that is left in the pipes
            for _ in range(MAX_CHUNKS_LEFT):
                if not self._receive(descriptor):
                    break
        return self._result()

    def _send(self, descriptor: int) -> bool:
        """Send as much as fits. Returns True if everything is sent, or the other end is closed."""
        try:
            sent = os.write(descriptor, self._unsent[descriptor][:CHUNK_BYTES])
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):
            return True
        self._unsent[descriptor] = self._unsent[descriptor][sent:]
        return not self._unsent[descriptor]

    def _stop_sending(self, selector: selectors.BaseSelector, descriptor: int) -> None:
        if descriptor == self._lifeline.fileno():
            selector.modify(descriptor, selectors.EVENT_READ)
        else:
            selector.unregister(descriptor)
            self._stdin.close()

    def _receive(self, descriptor: int) -> bool:
        """Read a chunk. Returns False if there is none, now or because the stream has ended."""
        try:
            chunk = os.read(descriptor, CHUNK_BYTES)
        except (BlockingIOError, ConnectionResetError):
            return False
        if descriptor in self._captured:
            self._captured[descriptor].add(chunk)
        else:
            self._reply += chunk
        return bool(chunk)

    def _result(self) -> CommandResult:
        kind, _, value = self._reply.partition(b"\n")[0].partition(b" ")
        returncode = os.waitstatus_to_exitcode(int(value)) if kind == b"ended" else None
        error = int(value) if kind == b"error" else None
        return CommandResult(returncode, error, self._stdout, self._stderr)
