"""Customers: they start executions, and send signals to the steps that wait for them.

They start again what Redis has lost. A signal is sent once, because two signals count twice.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import redis

from language.cases import Start
from orchestrator.application.records.events import ControlEvent, SignalEvent
from orchestrator.redis_rq.commit_args import flatten_fields
from orchestrator.redis_rq.event_codec import event_fields
from orchestrator.redis_rq.json_codec import dumps
from simulation.ledger import UNHEARD, Broken
from worlds.documents import Json

if TYPE_CHECKING:
    from simulation.world import World

LONG_BEHIND = 150
"""For how many points the coordinator that creates an execution falls behind, so that others act first."""

Heard = tuple[str, list[str]]
"""An event that a coordinator has read: its stream and its fields."""


@dataclass(slots=True)
class Memory:
    """What customers have done so far; it is rolled back together with Redis, so that they repeat what is
    lost. `taken` are the steps that a signal has completed; `poison` are the kinds of bad events, by entry;
    `unheard` are signals that are not acknowledged, by execution; `heard` are events that may be delivered
    again."""

    early_sent: set[tuple[str, str]] = field(default_factory=set)
    taken: set[tuple[str, str]] = field(default_factory=set)
    waits: deque[tuple[str, str, int]] = field(default_factory=deque)
    answered: set[tuple[str, str, int]] = field(default_factory=set)
    poison: dict[str, str] = field(default_factory=dict)
    unheard: dict[str, tuple[str, str]] = field(default_factory=dict)
    heard: list[Heard] = field(default_factory=list)

    def copy(self) -> Memory:
        return Memory(
            set(self.early_sent),
            set(self.taken),
            deque(self.waits),
            set(self.answered),
            dict(self.poison),
            dict(self.unheard),
            list(self.heard),
        )


@dataclass(slots=True)
class Ordered:
    """A start that was sent, and how often Redis had been rolled back by then."""

    start: Start
    fields: dict[Any, Any]
    roll_backs: int = 0


class Customers:
    """`asks_again` is set when Redis was rolled back."""

    def __init__(self, world: World) -> None:
        self._world, self.asks_again = world, False

    def order(self) -> None:
        """Start everything, and start again what Redis has lost."""
        begun: list[Ordered] = []
        for start in self._world.case.starts:
            self._send_early(start, 0.5)
            self._world.scheduler.sleep(self._world.draw.choice([0, 1, 50, 300]))
            begun.append(Ordered(start, self._fields_of(start)))
            for _ in range(self._world.draw.choice([1, 1, 2, 3])):
                self._send_start(begun[-1])
        while True:
            for one in begun:
                self._send_early(one.start, 1.0)
                if not self._is_known(one.start):
                    self._ask_again(one)
            self.asks_again = False
            is_sure = all(self._has_begun(one.start.execution_id) for one in begun)
            self._world.scheduler.wait(
                lambda: bool(self._world.memory.waits) or self.asks_again, 10_000, is_idle=is_sure
            )
            self._answer_waits()

    def _ask_again(self, one: Ordered) -> None:
        if one.roll_backs == self._world.roll_backs:
            raise Broken(f"I1: the start of {one.start.execution_id} was lost")
        self._send_start(one)

    def _fields_of(self, start: Start) -> Json:
        fields: Json = {
            "spec": dumps(self._world.case.document),
            "inputs": dumps(start.inputs),
            "execution_id": start.execution_id,
            "group": start.group,
            **({} if start.priority is None else {"priority": start.priority}),
        }
        way = self._world.draw.choice(["fail", "use_existing", "root"])
        if way == "root":
            return fields | {"idempotency_root": f"root-{start.execution_id}"}
        return fields | {"conflict_policy": way}

    def _send_start(self, one: Ordered) -> None:
        client = self._world.line()
        while True:
            try:
                one.roll_backs = self._world.roll_backs
                client.xadd(self._world.keys.starts, one.fields)
                return
            except (redis.exceptions.ConnectionError, redis.exceptions.ResponseError):
                self._world.scheduler.sleep(300)  # Redis is away, or the stream takes no more entries

    def _has_begun(self, execution_id: str) -> bool:
        return bool(self._world.server.execute("EXISTS", self._world.keys.execution(execution_id)))

    def _is_known(self, start: Start) -> bool:
        starts = self._world.keys.starts
        if self._has_begun(start.execution_id):
            return True
        if self._world.held_starts:
            return True
        return self._world.unread(starts) or bool(self._world.pending(starts))

    def _send_early(self, start: Start, chance: float) -> None:
        for step_id, wait in self._world.case.waits.items():
            sent = (start.execution_id, step_id)
            if (
                wait.is_early
                and sent not in self._world.memory.early_sent
                and self._world.draw.random() < chance
            ):
                self._world.memory.early_sent.add(sent)
                self._signal(start.execution_id, str(wait.signal), step_id)

    def on_beginning(self, execution_id: str) -> None:
        """Some signals are sent while a coordinator creates the execution, and are handled before it goes
        on."""
        if self._has_begun(execution_id):
            return
        self._cancel_parent(execution_id)
        said = (execution_id, UNHEARD)
        if said not in self._world.memory.early_sent and self._world.draw.random() < 0.7:
            self._world.memory.early_sent.add(said)
            event = SignalEvent(execution_id, UNHEARD, {})
            self._world.memory.unheard[execution_id] = self._world.say(execution_id, event_fields(event))
            self._world.scheduler.fall_behind(LONG_BEHIND)

    def check_unheard(self) -> None:
        """An acknowledged signal is not lost: it is kept for its execution, or in it, or the execution has
        ended."""
        world, memory = self._world, self._world.memory
        for execution_id, (stream, entry) in list(memory.unheard.items()):
            if world.is_answered(stream, entry):
                del memory.unheard[execution_id]
                if not world.ledger.is_over(execution_id) and UNHEARD not in world.signals_of(execution_id):
                    raise Broken(f"I2: what was said to {execution_id} was acknowledged and is nowhere")

    def on_wait(self, weid: str, step_id: str, run_id: int) -> None:
        if self._is_to_answer(weid, step_id):
            self._world.memory.waits.append((weid, step_id, run_id))

    def on_taken(self, weid: str, step_id: str) -> None:
        self._world.memory.taken.add((weid, step_id))

    def _cancel_parent(self, execution_id: str) -> None:
        """Some operators cancel the parent while a child is created, through every stream: another
        coordinator reads one of them."""
        world = self._world
        weid = world.server.execute("GET", world.keys.execution(execution_id.rsplit(":", 2)[0]))
        is_child = ":" in execution_id and weid is not None
        if is_child and not world.case.is_quiet and world.draw.random() < 0.5:
            for stream in world.streams()[1:]:
                if world.is_exhausted(stream):
                    continue
                world.execute(
                    "XADD", stream, "*", *flatten_fields(event_fields(ControlEvent(weid, "cancel", "")))
                )
            world.scheduler.fall_behind(LONG_BEHIND)

    def speak_late(self) -> None:
        """Send signals to executions that have ended; they must change nothing."""
        for weid in sorted(self._world.ledger.status):
            if self._world.draw.random() < 0.5:
                self._world.say(weid, event_fields(SignalEvent(weid, "late", {})))

    def _answer_waits(self) -> None:
        while self._world.memory.waits:
            if self._world.draw.random() < 0.5:
                self._world.scheduler.sleep(self._world.draw.choice([1, 100, 2_000]))
            if not self._world.memory.waits:  # Redis was rolled back meanwhile
                return
            wait = self._world.memory.waits.popleft()
            weid, step_id, _ = wait
            if wait not in self._world.memory.answered:
                self._world.memory.answered.add(wait)
                self._signal(weid, self._world.case.waits[step_id].signal or f"go_{step_id}", step_id)

    def _is_to_answer(self, weid: str, step_id: str) -> bool:
        """In a quiet case every signal is counted: an early signal completes the first wait, and a wait that
        is to time out gets none."""
        wait = self._world.case.waits[step_id]
        if not self._world.case.is_quiet:
            return True
        return wait.signal is not None and not (
            wait.is_early and (weid, step_id) not in self._world.memory.taken
        )

    def _signal(self, execution: str, name: str, step_id: str) -> None:
        payload = {"n": Random(f"{self._world.case.seed} {step_id}").randint(0, 9)}
        self._world.say(execution, event_fields(SignalEvent(execution, name, payload)))
