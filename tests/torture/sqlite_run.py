"""One torture run on a SQLite file: processes that are killed for some minutes, and the checks."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from orchestrator.backend import SqliteStore
from torture.checker import Evidence, broken
from torture.facts import read_losses
from torture.fleet import Exit
from torture.producers import Outages, Sent, draw_start
from torture.sqlite_facts import check_calls, read_calls, read_facts, read_left
from torture.sqlite_processes import LEASE_S, Planned, Site, be_member, read_open

ROLES = {"client": 1, "driver": 2, "worker": 2}
MAX_OPEN = 8
PAUSE_S = 0.05
DRAIN_S = 300.0


@dataclass
class SqliteReport:
    """The result of a torture run on a SQLite file."""

    seed: int
    minutes: float
    folder: Path
    faults: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    started: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    again: int = 0
    losses: Counter[str] = field(default_factory=Counter)
    drain_s: float = 0.0

    def lines(self) -> Iterator[str]:
        roles = ", ".join(f"{count} {role}" for role, count in ROLES.items())
        yield f"seed {self.seed}: {self.minutes:g} min on SQLite, {roles}"
        kinds = ", ".join(f"{name} {count}" for name, count in self.faults.most_common())
        yield f"  faults        {self.faults.total()}: {kinds}"
        ends = ", ".join(f"{count} {status}" for status, count in sorted(self.ended.items()))
        yield f"  workflows     {self.started} started; with children, {ends}"
        yield f"  calls         {self.calls} of steps, of which {self.again} were repetitions"
        reasons = ", ".join(f"{reason} {count}" for reason, count in self.losses.most_common())
        yield f"  lost          {reasons or 'nothing'}"
        yield f"  idle          after {self.drain_s:.1f} s"
        if self.broken:
            yield f"  BROKEN        {len(self.broken)}; the file and the logs are in {self.folder}"
            yield from (f"    {one}" for one in self.broken)
        else:
            yield "  every invariant holds"

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "folder": str(self.folder)}


@dataclass(eq=False)
class Member:
    """A process of a role; another one takes its place when it is killed."""

    role: str
    index: int
    process: BaseProcess
    is_killed: bool = False
    resumes_at: float | None = None

    def send(self, number: signal.Signals) -> None:
        if self.process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)


def torture_sqlite(minutes: float, seed: int) -> SqliteReport:
    """Kill and stop processes on one file, and check what is left. The folder is kept if it is broken."""
    folder = Path(tempfile.mkdtemp(prefix=f"torture-sqlite-{seed}-"))
    report = SqliteReport(seed, minutes, folder)
    run = _SqliteTorture(report)
    try:
        run.run()
    finally:
        run.end()
    if not report.broken:
        shutil.rmtree(folder, ignore_errors=True)
    return report


class _SqliteTorture:
    def __init__(self, report: SqliteReport) -> None:
        self.report, self.site = report, Site(report.folder)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["torture.sqlite_processes"])
        self._plans = random.Random(f"plan {report.seed}")
        self._faults = random.Random(f"faults {report.seed}")
        self.sent: list[Sent] = []
        self.exits: list[Exit] = []
        self.members: list[Member] = []

    def run(self) -> None:
        SqliteStore(self.site.database).close()  # creates the file
        self.members = [self._start(role, n) for role, count in ROLES.items() for n in range(count)]
        until = time.monotonic() + self.report.minutes * 60
        next_fault_at = time.monotonic() + 1
        while time.monotonic() < until:
            if time.monotonic() >= next_fault_at:
                self._inject_fault()
                next_fault_at = time.monotonic() + self._faults.uniform(0.2, 3.0)
            self._keep_going()
            if sum(self._open().values()) < MAX_OPEN:
                self._plan()
        is_idle = self._drain()
        self.end()
        self._check(is_idle)

    def end(self) -> None:
        for member in self.members:
            member.is_killed = True
            member.send(signal.SIGKILL)
            member.process.join()

    def _start(self, role: str, index: int) -> Member:
        log = self.site.folder / f"{role}-{index}.log"
        process = self._context.Process(
            target=be_member, args=(role, index, ROLES[role], self.site, log), daemon=True
        )
        process.start()
        return Member(role, index, process)

    def _inject_fault(self) -> None:
        """Kill some members at once, or stop one for longer or shorter than a lease."""
        if self._faults.random() < 0.2:
            member = self._faults.choice(self.members)
            seconds = self._faults.uniform(0.1, 2 * LEASE_S)
            if member.resumes_at is None:
                member.resumes_at = time.monotonic() + seconds
                member.send(signal.SIGSTOP)
                self.report.faults[f"{member.role} stopped"] += 1
            return
        for member in self._faults.sample(self.members, self._faults.choice([1, 1, 1, 2, 2, 5])):
            member.is_killed = True
            member.send(signal.SIGKILL)
            self.report.faults[f"{member.role} killed"] += 1

    def _keep_going(self) -> None:
        """Continue stopped members, replace dead ones, and note those that ended by themselves."""
        for n, member in enumerate(self.members):
            if member.resumes_at is not None and time.monotonic() >= member.resumes_at:
                member.resumes_at = None
                member.send(signal.SIGCONT)
            if member.process.is_alive():
                continue
            if not member.is_killed:
                how = f"ended by itself with code {member.process.exitcode}"
                self.exits.append(Exit(f"{member.role}-{member.index}", member.role, how))
            self.members[n] = self._start(member.role, member.index)
        time.sleep(PAUSE_S)

    def _open(self) -> dict[str, bool]:
        found = read_open(self.site)
        return {one.execution_id: found.get(one.execution_id, True) for one in self.sent}

    def _plan(self) -> None:
        sent = draw_start(self._plans, len(self.sent))
        planned = Planned(sent.execution_id, sent.kind, sent.inputs)
        with self.site.plan.open("a") as plan:
            plan.write(planned.as_line())
        sent.answered_at = time.monotonic()
        self.sent.append(sent)

    def _drain(self) -> bool:
        """Wait until nothing is open and nothing is left over; False if that takes too long."""
        began = time.monotonic()
        for member in self.members:
            member.resumes_at = began if member.resumes_at is not None else None
        while time.monotonic() - began < DRAIN_S:
            self._keep_going()
            if not any(self._open().values()) and not read_left(self.site.database):
                self.report.drain_s = time.monotonic() - began
                return True
        return False

    def _check(self, is_idle: bool) -> None:
        report, facts = self.report, read_facts(self.site.database)
        calls = read_calls(self.site.ledger)
        evidence = Evidence(self.sent, Outages(forgets=False), facts, exits=self.exits, drained=is_idle)
        report.broken = [*broken(evidence), *check_calls(facts, calls)]
        report.started = len(self.sent)
        report.ended = Counter(one.status for one in facts.executions.values())
        report.calls = calls.total()
        dispatches = {(call.execution_id, call.step_id, call.parts) for call in calls}
        report.again = calls.total() - len(dispatches)
        report.losses = read_losses(facts.executions.values())
