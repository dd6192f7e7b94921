"""The processes under test, and the supervisor that restarts each of them when it exits."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from processes import Stack
from torture.proxy import Line, Proxy

ROLES = ("coordinator", "stock", "ours", "concurrent")
WORKERS = ROLES[1:]
MARK_VARIABLE = "TORTURE_FOLDER"
MAX_STOP_S = 180.0
"""How long a process may take to stop while faults are injected."""

Popen = subprocess.Popen[bytes]

START: dict[str, Callable[[Stack], Popen]] = {
    "coordinator": lambda stack: stack.coordinator(),
    "stock": lambda stack: stack.rq_worker("orchestrator.default", "--job-monitoring-interval", "5"),
    "ours": lambda stack: stack.worker("default", "--log-level", "WARNING"),
    "concurrent": lambda stack: stack.worker("default", "--concurrency", "4", "--log-level", "WARNING"),
}


@dataclass(frozen=True, slots=True)
class Exit:
    """A process exited without being stopped, or did not exit when it was stopped."""

    name: str
    role: str
    how: str


@dataclass(eq=False)
class Member:
    """A named member of the fleet and its current process."""

    name: str
    role: str
    line: Line
    stack: Stack
    process: Popen = field(init=False)
    is_ended_by_test: bool = field(default=False, init=False)
    """Whether the test killed or stopped it."""
    stop_requested_at: float | None = field(default=None, init=False)

    def start(self) -> None:
        self.process = START[self.role](self.stack)
        self.is_ended_by_test, self.stop_requested_at = False, None

    def kill(self) -> None:
        self.is_ended_by_test = True
        self.send(signal.SIGKILL)

    def tell_to_stop(self) -> None:
        self.is_ended_by_test, self.stop_requested_at = True, time.monotonic()
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def horse(self) -> int | None:
        """The process in which it currently runs steps, if any."""
        return self.stack.horse_of(self.process)


class Fleet:
    """All members, each with its own proxy line. A thread restarts members that have exited."""

    def __init__(self, folder: Path, proxy: Proxy, counts: dict[str, int], **environment: str) -> None:
        self.folder, self.members = folder, list[Member]()
        self.exits, self.restarts = list[Exit](), 0
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        environment = {**environment, MARK_VARIABLE: str(folder)}
        for role, count in counts.items():
            for n in range(1, count + 1):
                name = f"{role}-{n}"
                logs = folder / name
                logs.mkdir(parents=True)
                line = proxy.line(name)
                # New processes: marked() finds them by the environment that they were started with.
                stack = Stack(line.url, "torture.functions", logs, environment, is_warm=False)
                self.members.append(Member(name, role, line, stack))

    def start(self) -> None:
        for member in self.members:
            member.start()
        self._thread.start()

    def of(self, *roles: str) -> list[Member]:
        return [member for member in self.members if member.role in roles]

    def kill(self, member: Member, with_horse: bool = False) -> None:
        with self._lock:
            horse = member.horse() if with_horse else None
            member.kill()
            if horse is not None:
                with suppress(ProcessLookupError):
                    os.kill(horse, signal.SIGKILL)

    def tell_to_stop(self, member: Member) -> None:
        with self._lock:
            member.tell_to_stop()

    def end(self) -> None:
        """Stop all members, wait, and record the members that do not exit as they should."""
        self._is_over.set()
        self._thread.join()
        for member in self.members:
            member.send(signal.SIGCONT)
            member.send(signal.SIGTERM)
        for member in self.members:
            try:
                code = member.process.wait(MAX_STOP_S)
            except subprocess.TimeoutExpired:
                self._note(member, f"did not exit within {MAX_STOP_S:g} s after the faults had ended")
                member.kill()
                member.process.wait()
            else:
                if code != 0:
                    self._note(member, f"exited with code {code} when it was stopped")

    def strays(self) -> list[int]:
        """Return orphaned processes: work-horses without a worker, and their children."""
        known = {member.process.pid for member in self.members}
        return [pid for pid in marked(self.folder) if not known & {pid, *_parents(pid)}]

    def _note(self, member: Member, how: str) -> None:
        self.exits.append(Exit(member.name, member.role, how))

    def _watch(self) -> None:
        while not self._is_over.wait(0.05):
            with self._lock:
                for member in self.members:
                    self._check_member(member)

    def _check_member(self, member: Member) -> None:
        code = member.process.poll()
        if code is None:
            if (
                member.stop_requested_at is not None
                and time.monotonic() - member.stop_requested_at > MAX_STOP_S
            ):
                self._note(member, f"did not exit within {MAX_STOP_S:g} s when it was stopped")
                member.kill()
            return
        if not member.is_ended_by_test:
            self._note(member, f"exited by itself with code {code}")
        member.start()
        self.restarts += 1


def marked(folder: Path) -> list[int]:
    """Return all processes that belong to the torture run of this folder."""
    mark = f"{MARK_VARIABLE}={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if mark in entry.joinpath("environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _parents(pid: int) -> list[int]:
    found: list[int] = []
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            break
        pid = int(stat.rpartition(")")[2].split()[1])
        found.append(pid)
    return found
