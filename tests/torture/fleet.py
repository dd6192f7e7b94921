"""The processes under torture, and the supervisor that starts each of them again, whatever it died of."""

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

ROLES = ("coordinator", "stock", "ours", "crew")
WORKERS = ROLES[1:]
MARK_VARIABLE = "TORTURE_FOLDER"
LEAVES_WITHIN_S = 60.0
"""So long may somebody take who was told to stop, in a storm."""

Popen = subprocess.Popen[bytes]

START: dict[str, Callable[[Stack], Popen]] = {
    "coordinator": lambda stack: stack.coordinator(),
    "stock": lambda stack: stack.rq_worker("orchestrator.default", "--job-monitoring-interval", "5"),
    "ours": lambda stack: stack.worker("default", "--log-level", "WARNING"),
    "crew": lambda stack: stack.worker("default", "--concurrency", "4", "--log-level", "WARNING"),
}


@dataclass(frozen=True, slots=True)
class Exit:
    """Somebody left without having been told to, or did not when told."""

    name: str
    role: str
    how: str


@dataclass(eq=False)
class Member:
    """One place in the fleet, and the process that fills it now."""

    name: str
    role: str
    line: Line
    stack: Stack
    process: Popen = field(init=False)
    is_doomed: bool = field(default=False, init=False)
    """Whether its end is our doing."""
    told_at: float | None = field(default=None, init=False)

    def start(self) -> None:
        self.process = START[self.role](self.stack)
        self.is_doomed, self.told_at = False, None

    def kill(self) -> None:
        self.is_doomed = True
        self.send(signal.SIGKILL)

    def tell_to_stop(self) -> None:
        self.is_doomed, self.told_at = True, time.monotonic()
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def horse(self) -> int | None:
        """The process in which it runs steps now, if any."""
        return self.stack.horse_of(self.process)


class Fleet:
    """All members, each on a line of its own; a thread starts again who is gone."""

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
                stack = Stack(line.url, "torture.functions", logs, environment)
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
        """Tell everybody to stop, wait, and note who does not leave as it should."""
        self._is_over.set()
        self._thread.join()
        for member in self.members:
            member.send(signal.SIGCONT)
            member.send(signal.SIGTERM)
        for member in self.members:
            try:
                code = member.process.wait(20)
            except subprocess.TimeoutExpired:
                self._note(member, "did not leave within 20 s when all was quiet")
                member.kill()
                member.process.wait()
            else:
                if code != 0:
                    self._note(member, f"left with exit code {code} when told to stop")

    def strays(self) -> list[int]:
        """Processes that members have left behind: work-horses without a worker, and what they began."""
        known = {member.process.pid for member in self.members}
        return [pid for pid in marked(self.folder) if not known & {pid, *_parents(pid)}]

    def _note(self, member: Member, how: str) -> None:
        self.exits.append(Exit(member.name, member.role, how))

    def _watch(self) -> None:
        while not self._is_over.wait(0.05):
            with self._lock:
                for member in self.members:
                    self._look_after(member)

    def _look_after(self, member: Member) -> None:
        code = member.process.poll()
        if code is None:
            if member.told_at is not None and time.monotonic() - member.told_at > LEAVES_WITHIN_S:
                self._note(member, f"did not leave within {LEAVES_WITHIN_S:g} s when told to stop")
                member.kill()
            return
        if not member.is_doomed:
            self._note(member, f"left by itself with exit code {code}")
        member.start()
        self.restarts += 1


def marked(folder: Path) -> list[int]:
    """Processes that were begun, by whomever, for the torture of this folder."""
    mark = f"{MARK_VARIABLE}={folder}".encode()
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            with suppress(OSError):
                if mark in place.joinpath("environ").read_bytes().split(b"\0"):
                    found.append(int(place.name))
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
