"""Runs a command under its guard (`guard.py`), and reads what it prints with a limit.

Nothing of the calling process is touched, neither its signals nor its folder, so any number of threads may do
this at once. Between the two stands a process of Python's, which costs some 20 ms.
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
"""More than a pipe holds. Somebody else may have been handed its end, and go on writing."""


class CapturedStream:
    """The first bytes of a stream, and the last few; what lies between is only counted."""

    def __init__(self, most: int) -> None:
        self._most, self._head, self.tail, self.size = most, bytearray(), b"", 0

    def add(self, chunk: bytes) -> None:
        self._head += chunk[: self._most - len(self._head)]
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
    """`argv` begins with the path of the program; `folder` is the descriptor of where it runs, or else /."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    stdin: bytes = b""
    folder: int | None = None

    def encoded(self) -> bytes:
        """As the guard reads it."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        fields = [str(len(self.argv)), *self.argv, *variables]
        order = b"".join(field.encode() + b"\0" for field in fields)
        return len(order).to_bytes(8) + order


@dataclass(frozen=True)
class CommandResult:
    """`returncode` as subprocess has it, negative for a signal; None if the command was stopped. `error` is
    the errno if it never began."""

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
    """Run a command to its end, or as long as it `goes_on`, which is asked a few times a second; nothing of
    it is left when this returns or raises."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            guard = _started(theirs.fileno(), command.folder)
        try:
            return _Talk(guard, ours, command, max_bytes).until_the_end(should_continue, on_output)
        finally:
            ours.close()
            _take_leave(guard)


def _started(lifeline: int, folder: int | None) -> subprocess.Popen[bytes]:
    """Without any variable: what a spec sets for its command must not reach the guard."""
    inside = -1 if folder is None else folder
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(GUARD_SCRIPT), str(lifeline), str(inside)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},
        cwd="/",
        pass_fds=[lifeline] if folder is None else [lifeline, folder],
        start_new_session=True,
        bufsize=0,
    )


def _take_leave(guard: subprocess.Popen[bytes]) -> None:
    for stream in (guard.stdin, guard.stdout, guard.stderr):
        if stream is not None:
            stream.close()
    try:
        guard.wait(GUARD_EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()


class _Talk:
    """With a guard: one order out, one answer back, and the streams of the command between."""

    def __init__(
        self, guard: subprocess.Popen[bytes], lifeline: socket.socket, command: Command, max_bytes: int
    ) -> None:
        assert guard.stdin is not None
        assert guard.stdout is not None
        assert guard.stderr is not None
        self._lifeline, self._stdin, self._answer = lifeline, guard.stdin, b""
        self._unsent = {
            lifeline.fileno(): memoryview(command.encoded()),
            guard.stdin.fileno(): memoryview(command.stdin),
        }
        self._stdout, self._stderr = CapturedStream(max_bytes), CapturedStream(max_bytes)
        self._kept = {guard.stdout.fileno(): self._stdout, guard.stderr.fileno(): self._stderr}
        for descriptor in (*self._unsent, *self._kept):
            os.set_blocking(descriptor, False)

    def until_the_end(
        self, should_continue: Callable[[], bool], on_output: Callable[[], None]
    ) -> CommandResult:
        lifeline = self._lifeline.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(lifeline, selectors.EVENT_READ | selectors.EVENT_WRITE)
            selector.register(self._stdin.fileno(), selectors.EVENT_WRITE)
            for descriptor in self._kept:
                selector.register(descriptor, selectors.EVENT_READ)
            while lifeline in selector.get_map() and should_continue():
                for key, events in selector.select(POLL_INTERVAL_S):
                    if events & selectors.EVENT_WRITE and self._sent(key.fd):
                        self._is_sent(selector, key.fd)
                    if events & selectors.EVENT_READ and not self._received(key.fd):
                        selector.unregister(key.fd)
                    elif key.fd in self._kept:
                        on_output()
        for descriptor in self._kept:  # what was written is here by now, if the writers are gone
            for _ in range(MAX_CHUNKS_LEFT):
                if not self._received(descriptor):
                    break
        return self._ended()

    def _sent(self, descriptor: int) -> bool:
        """Send what the other side has room for; True if that was all, or nobody reads it."""
        try:
            sent = os.write(descriptor, self._unsent[descriptor][:CHUNK_BYTES])
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):
            return True
        self._unsent[descriptor] = self._unsent[descriptor][sent:]
        return not self._unsent[descriptor]

    def _is_sent(self, selector: selectors.BaseSelector, descriptor: int) -> None:
        if descriptor == self._lifeline.fileno():
            selector.modify(descriptor, selectors.EVENT_READ)
        else:
            selector.unregister(descriptor)
            self._stdin.close()

    def _received(self, descriptor: int) -> bool:
        """Take what is there; False if that is nothing, now or for ever."""
        try:
            chunk = os.read(descriptor, CHUNK_BYTES)
        except (BlockingIOError, ConnectionResetError):
            return False
        if descriptor in self._kept:
            self._kept[descriptor].add(chunk)
        else:
            self._answer += chunk
        return bool(chunk)

    def _ended(self) -> CommandResult:
        word, _, value = self._answer.partition(b"\n")[0].partition(b" ")
        returncode = os.waitstatus_to_exitcode(int(value)) if word == b"ended" else None
        error = int(value) if word == b"error" else None
        return CommandResult(returncode, error, self._stdout, self._stderr)
