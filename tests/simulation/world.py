"""The world of one simulation: coordinators, workers, customers, and a nemesis that causes faults.

Coordinators are the real ones, over the real store and event log; so is the lease and the publishing of the
harness. What they talk to is a Redis in this process, and all of them take turns.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Protocol

from language.cases import Case
from orchestrator.application.audit.deltas import check_deltas
from orchestrator.application.records.delta import DeltaMark
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.replay import is_delta
from orchestrator.coordinator.loop import CoordinatorOptions
from orchestrator.redis_rq.commit_args import flatten_fields
from orchestrator.redis_rq.json_codec import dumps
from orchestrator.redis_rq.keys import FIRST_SEQUENCE, GROUP, Keys
from orchestrator.redis_rq.record_codec import read_record
from orchestrator.redis_rq.store import RedisStore
from simulation.customers import Customers, Memory
from simulation.faults import Faults
from simulation.ledger import Broken, Ledger
from simulation.line import Line, LineClient, Words
from simulation.scheduler import EPOCH_MS, Scheduler
from simulation.script_errors import ScriptError
from simulation.surroundings import checked_once

WRITTEN = 1
"""What commit.lua returns for a commit that it has written."""
REPEATABLE = (
    *("result", "started", "lost", "declined", "available"),
    *("deadline", "retry", "wake", "timeout", "slot", "continue"),
)
"""Events that may be delivered twice. A repeated signal or control would count twice."""
QUEUES = ("default", "fast", "slow")
PARTITIONS = 2
LAST_ID = "18446744073709551615-18446744073709551615"
LAST_POISON = "nonsense with the last id"
"""The type of the event that has this id; a repair gives it another one."""
SHOWN = 400
"""How many of the last trace lines are shown of a simulation that failed."""


class Server(Protocol):
    """A Redis whose state can be rolled back."""

    def execute(self, *words: Any) -> Any: ...

    def copy(self) -> Any: ...

    def restore(self, kept: Any) -> None: ...

    def forget_scripts(self) -> None: ...

    def is_behind(self, stream: str, group: str) -> bool: ...

    def pending_ms(self, stream: str, group: str) -> list[int]: ...

    def is_answered(self, stream: str, group: str, entry: str) -> bool: ...

    script_error: ScriptError | None


class World:
    max_queued = 1
    """One job makes a queue full, so that starts are held."""

    def __init__(
        self,
        case: Case,
        scheduler: Scheduler,
        faults: Faults,
        make_server: Callable[[Callable[[], int]], Server],
    ) -> None:
        self.case, self.scheduler, self.faults = case, scheduler, faults
        self.draw: Random = scheduler.draw
        self.keys = Keys(partitions=PARTITIONS)
        self.queues = [queue for name in QUEUES for queue in self.keys.queues(name)]
        self._queued = [Keys.rq_queue(queue) for queue in self.queues]
        self._left = list(map(Keys.rq_failed, self.queues))
        self.jump_ms = 0
        self.server = make_server(self.redis_ms)
        self.memory = Memory()
        self.customers = customers = Customers(self)
        self._later: dict[str, dict[str, str]] = {}
        self.ledger = Ledger(self.redis_ms, customers.on_wait, customers.on_taken, self._fields_now)
        self.executed: Counter[str] = Counter()
        self.running: set[tuple[str, str]] = set()
        self._kept: tuple[Any, Memory] | None = None
        self._skews: dict[str, int] = {}
        self._processes: dict[str, tuple[str, Callable[[str], None]]] = {}
        self._traced: deque[str] = deque(maxlen=SHOWN)
        self._names, self._begun, self._changes = 0, 0, 0
        self.roll_backs = 0
        faults.world = self
        scheduler.next_due_ms = self._next_due_ms
        self.client = LineClient.on(QuietLine(self))  # type: ignore[arg-type]
        self.store = RedisStore(self.client, self.keys)
        for name, document in case.registered.items():
            self.store.register(name, checked_once(document))

    # ---- time and traces

    def redis_ms(self) -> int:
        return int(self.scheduler.now_ms) + self.jump_ms

    def skew_ms(self) -> int:
        """The clock error of the current process."""
        return self._skews.get(self.scheduler.current.process, 0)

    def trace(self, what: str) -> None:
        at_s = (self.scheduler.now_ms - EPOCH_MS) / 1000
        name = self.scheduler._current.name if self.scheduler._current is not None else "-"
        self._traced.append(f"{at_s:10.3f} {name:14} {what}")

    @property
    def traced(self) -> list[str]:
        return list(self._traced)

    # ---- Redis

    def execute(self, *words: Any) -> Any:
        """Execute a command of any process; the ledger sees the changes of records."""
        answer = self._executed(*words)
        if self.memory.unheard and words[0] in ("EVALSHA", "XACK"):
            self.customers.check_unheard()
        return answer

    def _executed(self, *words: Any) -> Any:
        self._changes += words[0] in ("EVALSHA", "XADD")
        if words[0] == "LRANGE" and words[1].startswith(self.keys.signals("")):
            self.customers.on_beginning(words[1].removeprefix(self.keys.signals("")))
        if str(words[0]).upper() != "EVALSHA" or words[6:7] != (self.keys.workflow(""),):
            is_sweep = words[3:5] == (self.keys.leases, self.keys.timers)
            answer = self._executed_with_errors(words, ()) if is_sweep else self.server.execute(*words)
            self._trace_command(words, answer)
            return answer
        records = [key.removeprefix(self.keys.workflow("")) for key in _records(words[3 + int(words[2]) :])]
        known = {weid: self._fields(self.keys.workflow(weid)) for weid in records}
        kept = {weid: [] if known[weid] else self._kept_signals(weid.partition("#")[2]) for weid in records}
        creates = [self.keys.workflow(weid) for weid in dict.fromkeys(records) if not known[weid]]
        answer = self._executed_with_errors(words, creates)
        self._later = dict(known)
        statuses = answer[0] if answer and isinstance(answer[0], list) else answer
        for weid, result in zip(records, statuses, strict=True):
            before = known[weid]
            if result == WRITTEN:
                self._later.pop(weid, None)
                known[weid] = self._fields(self.keys.workflow(weid))
            self._note(weid, before, known[weid], kept[weid], result)
        return answer

    def _executed_with_errors(self, words: Words, creates: Sequence[str]) -> Any:
        """Execute a script, one of whose writes may have an error."""
        position = self.faults.error_in_script()
        if position is None:
            return self.server.execute(*words)
        error = self.server.script_error = ScriptError(
            position, self.keys, creates, lambda *keys: int(self.server.execute("EXISTS", *keys))
        )
        try:
            return self.server.execute(*words)
        finally:
            self.server.script_error = None
            if error.has_struck:
                self.faults.count("script error")

    def _fields_now(self, weid: str) -> dict[str, str]:
        """A record as a decision found it: one of the same call that was judged later has changed since."""
        return self._later.get(weid) or self._fields(self.keys.workflow(weid))

    def _note(
        self, weid: str, before: dict[str, str], after: dict[str, str], kept: list[str], result: int
    ) -> None:
        self.trace(f"commit {weid.partition('#')[2]} -> {result}{_moves(before, after)}")
        if before != after:
            try:
                self.ledger.note(weid, before, after, kept)
                if after:
                    self._check_deltas(weid, after)
            except Exception as error:  # ours, and not the coordinator's to survive
                raise Broken(f"the ledger itself: {error!r}") from error

    def _check_deltas(self, weid: str, after: dict[str, str]) -> None:
        """After every commit that left a delta, the folded deltas are the record as people may see it."""
        mark = DeltaMark.parse(after.get("delta"))
        if mark.omitted or mark.version != after["version"]:
            if self.keeps_every_delta:
                raise Broken(f"I8: {weid} has no delta of version {after['version']}")
            return
        entries = self.server.execute("LRANGE", self.keys.history(weid), "0", "-1")
        record = read_record(after, self.store.spec(after["workflow_id"]))
        found = [
            one.where for one in check_deltas(record, list(filter(is_delta, map(json.loads, entries))), dumps)
        ]
        if found:
            raise Broken(f"I8: the deltas of {weid} lead to another record at {after['version']}: {found}")

    @property
    def keeps_every_delta(self) -> bool:
        return self.case.seed % 4 != 0

    def history_mode(self, name: str) -> str:
        """What a coordinator keeps. In some simulations others keep the moves alone, as during an upgrade."""
        return "full" if self.keeps_every_delta or int(name[1:]) % 2 else "moves"

    def when_changed(self, fact: Callable[[], bool]) -> Callable[[], bool]:
        """A fact that only what is written can change: not asked again before."""
        seen = -1

        def asked() -> bool:
            nonlocal seen
            if seen == self._changes:
                return False
            seen = self._changes
            return fact()

        return asked

    def _trace_command(self, words: Words, answer: Any) -> None:
        name = str(words[0]).upper()
        if name == "XADD":
            said = {
                str(k): str(v)[:60] for k, v in zip(words[3::2], words[4::2], strict=False) if k != "spec"
            }
            self.trace(f"XADD {words[1]} {answer} {said}")
            if said.get("type") == "available":
                self.ledger.woken.add((str(words[words.index("execution") + 1]), said["step"]))
        elif name in ("XREADGROUP", "XCLAIM") and answer:
            self.trace(f"{name} {json.dumps(answer)[:300]}")
        if name == "XREADGROUP":
            self._hear(answer or ())

    def _hear(self, answer: Iterable[tuple[str, Any]]) -> None:
        for stream, entries in answer:
            for entry, fields in entries:
                is_repeatable = fields[0] == "type" and fields[1] in REPEATABLE
                if is_repeatable and f"{stream} {entry}" not in self.memory.poison:
                    self.memory.heard.append((stream, fields))
                if "execution_id" in fields[::2]:
                    self.customers.on_beginning(fields[fields.index("execution_id") + 1])

    def _fields(self, key: str) -> dict[str, str]:
        found = self.server.execute("HGETALL", key)
        return dict(zip(found[::2], found[1::2], strict=True))

    def _kept_signals(self, execution_id: str) -> list[str]:
        """The names of those that wait for an execution to begin."""
        kept = self.server.execute("LRANGE", self.keys.signals(execution_id), "0", "-1")
        return [json.loads(text)["name"] for text in kept]

    def signals_of(self, execution_id: str) -> list[str]:
        """The names of those that wait for an execution to begin, and of those that it has."""
        ask = self.server.execute
        weid = ask("GET", self.keys.execution(execution_id))
        text = None if weid is None else ask("HGET", self.keys.workflow(weid), "signals")
        return self._kept_signals(execution_id) + [one["name"] for one in json.loads(text or "[]")]

    def records(self) -> dict[str, dict[str, str]]:
        prefix = self.keys.workflow("")
        found = self.server.execute("SCAN", "0", "MATCH", f"{prefix}*", "COUNT", "100000")[1]
        return {key.removeprefix(prefix): self._fields(key) for key in found}

    def loaded(self) -> list[WorkflowRecord]:
        found = self.store.load_many(sorted(self.ledger.status))
        return [record for record in found if isinstance(record, WorkflowRecord)]

    def streams(self) -> list[str]:
        return [self.keys.starts, *map(self.keys.events, range(PARTITIONS))]

    @property
    def held_starts(self) -> int:
        """How many starts wait for a full queue."""
        return int(self.server.execute("HLEN", self.keys.held_queues))

    def unread(self, stream: str) -> bool:
        """Whether it has unread entries."""
        return self.server.is_behind(stream, GROUP)

    def pending(self, stream: str) -> list[int]:
        """How long entries have been pending, in ms."""
        return self.server.pending_ms(stream, GROUP)

    def is_answered(self, stream: str, entry: str) -> bool:
        """Whether it was read and acknowledged."""
        return self.server.is_answered(stream, GROUP, entry)

    def has_jobs(self) -> bool:
        return bool(self.server.execute("EXISTS", *self._queued))

    def news(self, words: Words) -> Callable[[], bool]:
        """Whether a read with these args would return something."""
        given = [word.decode() if isinstance(word, bytes) else str(word) for word in words]
        at = given.index("STREAMS") + 1
        streams = given[at : at + (len(given) - at) // 2]
        return self.when_changed(lambda: any(self.unread(stream) for stream in streams))

    def _next_due_ms(self) -> float | None:
        """When idle actors will have work; None when there is some now."""
        ask = self.server.execute
        if any(self.unread(stream) for stream in self.streams()) or ask("EXISTS", self.keys.partial):
            return None
        if self.held_starts:
            return None
        if ask("EXISTS", *self._left) or ask("ZRANGEBYSCORE", self.keys.leases, str(FIRST_SEQUENCE), "+inf"):
            return None
        due = [ask("ZRANGE", key, "0", "0", "WITHSCORES") for key in (self.keys.timers, self.keys.leases)]
        found = [float(one[1]) - self.jump_ms for one in due if one]
        idle_ms = [one for stream in self.streams() for one in self.pending(stream)]
        found += (
            [self.scheduler.now_ms + CoordinatorOptions().reclaim_after_ms - max(idle_ms)] if idle_ms else []
        )
        return min(found, default=float("inf"))

    # ---- rollbacks

    def remember(self) -> None:
        self._kept = self.server.copy(), self.memory.copy()

    def roll_back(self) -> bool:
        """A failover to a replica that was behind, or a lost tail of the AOF; False if none is known."""
        if self._kept is None:
            return False
        self.roll_backs += 1
        self.server.restore(self._kept[0])
        self.memory = self._kept[1].copy()
        self.server.forget_scripts()
        self._changes += 1
        self.ledger.reload(self.records())
        self.customers.asks_again = True
        return True

    # ---- processes

    def is_mortal(self) -> bool:
        return self.scheduler.current.process in self._processes

    @property
    def mortals(self) -> list[str]:
        return sorted(self._processes)

    def hire(self, kind: str, act: Callable[[str], None]) -> None:
        """Spawn an actor under a unique name."""
        self._names += 1
        self._begin(f"{kind}{self._names}", act, self.draw.choice([0, 0, 200, 1_000]))

    def _begin(self, name: str, act: Callable[[str], None], in_ms: float) -> None:
        self._begun += 1
        process = f"{name}/{self._begun}"
        self._processes[process] = (name, act)
        self._skews[process] = self.draw.choice([0, 0, -120_000, 120_000])
        self.scheduler.spawn(process, lambda: act(name), process, in_ms)

    def kill(self, process: str) -> None:
        """Kill a process; it is started again, under the same name or another."""
        if process not in self._processes:
            return
        name, act = self._processes.pop(process)
        self.trace(f"killed: {process}")
        if self.draw.random() < 0.5:
            self._names += 1
            name = f"{name.rstrip('0123456789')}{self._names}"
        self._begin(name, act, self.draw.choice([0, 500, 3_000, 15_000]))
        self.scheduler.kill(process)

    def kill_current(self) -> None:
        self.kill(self.scheduler.current.process)

    # ---- for actors

    def nonce(self) -> str:
        return f"{self.draw.getrandbits(64):016x}"

    def line(self, decodes: bool = True) -> LineClient:
        return LineClient.on(Line(self.scheduler, self, self.faults), decodes)

    def say(self, execution: str, fields: Mapping[str, str]) -> tuple[str, str]:
        """Put an event on its stream, without a line that could break, or on another one if that takes no
        more entries; the stream and the id of the entry."""
        first = self.keys.events_of(execution)
        streams = [first, *(one for one in self.streams()[1:] if one != first)]
        stream = next((one for one in streams if not self.is_exhausted(one)), first)
        return stream, str(self.execute("XADD", stream, "*", *flatten_fields(fields)))

    def is_exhausted(self, stream: str) -> bool:
        """Whether a stream takes no more entries, because it has the last possible id."""
        if not self.server.execute("EXISTS", stream):
            return False
        info = self.server.execute("XINFO", "STREAM", stream)
        return bool(info[info.index("last-generated-id") + 1] == LAST_ID)


class QuietLine:
    """A line for observers: without faults, and without switching actors."""

    def __init__(self, world: World) -> None:
        self._world = world

    def send(self, commands: list[Words]) -> list[Any]:
        line = Line(_NoFaults(), self._world.server, _NoFaults())  # type: ignore[arg-type]
        return line.send(commands)


class _NoFaults:
    def point(self) -> None: ...

    def check_line(self) -> None: ...

    def before(self, words: Words) -> None: ...

    def after(self, words: Words, answer: Any) -> None: ...


def _records(args: Sequence[Any]) -> list[str]:
    """The records that a call of commit.lua writes to."""
    at = 3 + 2 * int(args[2])
    at += 1 + 3 * int(args[at])
    found = []
    while at < len(args):
        found.append(str(args[at + 2 + 2 * int(args[at + 1])]))
        at += 1 + int(args[at])
    return found


def _moves(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """What a commit has moved, for the trace."""
    found = [f"{before.get('status')}>{after.get('status')}"]
    for name, text in after.items():
        if name.startswith(("step:", "item:")) and before.get(name) != text:
            was, now = json.loads(before.get(name, "{}")), json.loads(text)
            token = "" if now.get("token") is None else f" {now['token'][:6]}"
            found.append(
                f"{name[5:]} {was.get('status')}>{now['status']} r{now['run_id']}a{now['attempt']}{token}"
            )
    return f" {'; '.join(found)}"
