"""One torture run: a system, producers and a nemesis for some minutes, and then the checks."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import Keys
from processes import ROOT, wait_until
from servers.redis_server import RedisServer
from torture import facts as fact_reader
from torture.checker import Evidence, broken, not_accepted
from torture.fleet import Fleet, marked
from torture.functions import LEDGER_VARIABLE
from torture.nemesis import PROCESSES as PROCESS_FAULTS
from torture.nemesis import Nemesis
from torture.producers import Outages, Producers
from torture.proxy import Proxy

KEYS = Keys()
PROCESSES: dict[str, dict[str, int]] = {
    "stock": {"coordinator": 2, "stock": 3},
    "ours": {"coordinator": 2, "ours": 3},
    "concurrent": {"coordinator": 2, "concurrent": 2},
    "mixed": {"coordinator": 3, "stock": 2, "ours": 1, "concurrent": 1},
}
LEASE_S, GRACE_MS, MAX_OPEN = 4, 4_000, 60
DRAIN_S = 300.0


@dataclass
class Report:
    """The result of a torture run."""

    seed: int
    appendfsync: str
    minutes: float
    processes: Mapping[str, int]
    folder: Path
    faults: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    not_accepted: int = 0
    started: int = 0
    slots: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    executions: int = 0
    again: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    losses: Counter[str] = field(default_factory=Counter)
    stock_exits: int = 0
    restarts: int = 0
    drain_s: float = 0.0
    waits: list[dict[str, int]] = field(default_factory=list)
    """What was still open, every ten seconds after the last fault."""
    memory: tuple[int, int] = (0, 0)

    @property
    def killed_or_stopped(self) -> int:
        return sum(count for name, count in self.faults.items() if name.startswith(PROCESS_FAULTS))

    def lines(self) -> Iterator[str]:
        roles = ", ".join(f"{count} {role}" for role, count in self.processes.items())
        yield f"seed {self.seed}: {self.minutes:g} min, appendfsync {self.appendfsync}, {roles}"
        kinds = ", ".join(f"{name} {count}" for name, count in self.faults.most_common())
        total = self.faults.total()
        yield f"  faults        {total}, of which {self.killed_or_stopped} to processes: {kinds}"
        ends = ", ".join(f"{count} {status}" for status, count in sorted(self.ended.items()))
        yield f"  workflows     {self.started} started, {self.slots} by schedules; with children, {ends}"
        yield f"  executions    {self.executions} of steps, of which {self.again} were repetitions"
        counters = ", ".join(f"{name} {count}" for name, count in sorted(self.counters.items()))
        yield f"  rejected      {counters or 'nothing'}"
        reasons = ", ".join(f"{reason} {count}" for reason, count in self.losses.most_common())
        yield f"  lost          {reasons or 'nothing'}"
        yield f"  processes     {self.restarts} restarted; stock workers exited {self.stock_exits} times"
        yield f"  loss window   {self.not_accepted} starts acknowledged and lost"
        before, after = (f"{one / 1e6:.1f}" for one in self.memory)
        yield f"  idle          after {self.drain_s:.1f} s; Redis used {before} MB before, {after} MB after"
        for n, left in enumerate(self.waits, 1):
            what = ", ".join(f"{name} {count}" for name, count in left.items() if count)
            yield f"    after {10 * n} s   {what}"
        if self.broken:
            yield f"  BROKEN        {len(self.broken)}; the logs are in {self.folder}"
            yield from (f"    {one}" for one in self.broken)
        else:
            yield "  every invariant holds"

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "folder": str(self.folder), "killed_or_stopped": self.killed_or_stopped}


def torture(
    minutes: float,
    seed: int,
    processes: Mapping[str, int],
    appendfsync: str | None = None,
    only: Collection[str] = (),
) -> Report:
    """Run a system under faults and check it. The folder with the logs is kept if an invariant is broken."""
    policy = appendfsync or random.Random(f"appendfsync {seed}").choice(["everysec", "always"])
    folder = Path(tempfile.mkdtemp(prefix=f"torture-{seed}-"))
    report = Report(seed, policy, minutes, dict(processes), folder)
    try:
        with ExitStack() as stack:
            _Torture(report, stack, only).run()
    finally:
        for pid in marked(folder):  # kill all remaining processes in any case
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    if not report.broken:
        shutil.rmtree(folder, ignore_errors=True)
    return report


class _Torture:
    def __init__(self, report: Report, stack: ExitStack, only: Collection[str]) -> None:
        self.report, folder = report, report.folder
        self.ledger = folder / "ledger"
        self.outages = Outages(forgets=report.appendfsync != "always")
        self.server = stack.enter_context(_durable_redis(folder, report.appendfsync))
        self.client: Client = stack.enter_context(connect(self.server.url))
        self.proxy = stack.enter_context(Proxy(self.server.socket, random.Random(f"lines {report.seed}")))
        self.fleet = Fleet(
            folder,
            self.proxy,
            dict(report.processes),
            ORCHESTRATOR_LEASE_S=str(LEASE_S),
            ORCHESTRATOR_GRACE_MS=str(GRACE_MS),
            **{LEDGER_VARIABLE: str(self.ledger)},
        )
        urls = [self.proxy.line(name).url for name in ("producer", "prompter")]
        self.producers = Producers(report.seed, urls, MAX_OPEN)
        self.nemesis = Nemesis(
            report.seed, self.server, self.proxy, self.fleet, self.producers, self.outages, only
        )

    def run(self) -> None:
        report = self.report
        self.fleet.start()
        try:
            self._wait_for_processes()
            before = self._used_memory()
            self.producers.start()
            self.nemesis.start()
            time.sleep(report.minutes * 60)
            self.nemesis.calm()
            self.producers.stop_producing()
            evidence = self._collect_evidence()
            evidence.memory = report.memory = (before, self._delete_everything())
        finally:
            self.fleet.end()
        self._check(evidence)

    def _wait_for_processes(self) -> None:
        coordinators = len(self.fleet.of("coordinator"))
        workers = len(self.fleet.members) - coordinators
        wait_until(lambda: self.client.zcard(KEYS.coordinators) == coordinators, what="coordinators")
        wait_until(lambda: self.client.scard("rq:workers") == workers, what="workers")

    def _collect_evidence(self) -> Evidence:
        """Collect the evidence once the system is idle, or should be."""
        began = time.monotonic()
        is_idle = self._wait_until_idle()
        self.producers.stop_prompting()
        self.report.drain_s = time.monotonic() - began
        with self.server.client() as client:
            fact_reader.age_rq_registries(client)
        with suppress(AssertionError):
            wait_until(lambda: not fact_reader.left_over(self.client), 60)
        return Evidence(
            self.producers.sent,
            self.outages,
            fact_reader.facts(self.client, self._verify()),
            self.nemesis.poison,
            self.producers.timetables,
            strays=self.fleet.strays(),
            drained=is_idle,
        )

    def _wait_until_idle(self) -> bool:
        """Wait until all executions have ended and nothing is left except RQ's data of killed workers."""
        began = time.monotonic()
        while (waited := time.monotonic() - began) < DRAIN_S:
            left = {name: len(members) for name, members in fact_reader.left_over(self.client).items()}
            left |= {"open": fact_reader.open_executions(self.client), "strays": len(self.fleet.strays())}
            if not any(count for name, count in left.items() if name not in fact_reader.OF_RQ):
                return True
            if waited > 10 * (len(self.report.waits) + 1):
                self.report.waits.append(left)
            time.sleep(0.2)
        return False

    def _verify(self) -> list[str]:
        verify = [sys.executable, "-m", "orchestrator", "verify", "--json", "--redis-url", self.server.url]
        done = subprocess.run(verify, cwd=ROOT, capture_output=True, text=True, check=False)
        try:
            return [json.dumps(one) for one in json.loads(done.stdout)["findings"]]
        except (ValueError, KeyError):
            return [f"verify itself failed: {done.stdout}{done.stderr}"]

    def _delete_everything(self) -> int:
        """Delete all executions, as an operator would. Return the memory that Redis uses then."""
        names = list(fact_reader.read_executions(self.client))
        for name in names:
            fields: dict[Any, Any] = {"type": "control", "action": "delete", "execution": name}
            self.client.xadd(KEYS.events_of(name), fields | {"reply": f"delete-{name}"})
        with suppress(AssertionError):
            wait_until(lambda: not any(True for _ in self.client.scan_iter(KEYS.workflow("*"), 1_000)), 60)
        replies = list(self.client.scan_iter(KEYS.reply("*"), 1_000))
        if replies:
            self.client.delete(KEYS.dead_letters, *replies)  # they would expire later
        for stream in (KEYS.starts, *map(KEYS.events, range(KEYS.partitions))):
            self.client.xtrim(stream, maxlen=0)  # up to a hundred acknowledged entries may stay for a while
        return self._used_memory()

    def _used_memory(self) -> int:
        info: Any = self.client.info("memory")
        return int(info["used_memory"])

    def _check(self, evidence: Evidence) -> None:
        report, found = self.report, evidence.facts
        evidence.exits = self.fleet.exits
        ledger = fact_reader.read_ledger(self.ledger)
        report.broken = broken(evidence) + [f"the nemesis failed: {error!r}" for error in self.nemesis.raised]
        report.faults = self.nemesis.total
        report.not_accepted = len(not_accepted(evidence))
        report.started = len(evidence.sent)
        report.slots = sum(table.count for table in evidence.timetables)
        report.ended = Counter(
            one.status for one in found.executions.values() if one.status in fact_reader.FINAL
        )
        report.executions, report.again = ledger.total(), ledger.total() - len(ledger)
        report.counters = found.counters
        report.losses = fact_reader.read_losses(found.executions.values())
        report.stock_exits = sum(1 for one in evidence.exits if one.role == "stock")
        report.restarts = self.fleet.restarts


@contextmanager
def _durable_redis(folder: Path, appendfsync: str) -> Iterator[RedisServer]:
    arguments = ("--appendonly", "yes", "--appendfsync", appendfsync, "--enable-debug-command", "local")
    server = RedisServer(folder, arguments)
    server.start()
    try:
        yield server
    finally:
        server.stop()
