"""Producers: they start executions, say what those wait for, register schedules, and try again until they
have an answer.

A start that was not answered is sent once more under the same id, as any producer can do that names its
executions. It counts as accepted when Redis has returned the id of its entry. What Redis had answered less
than two seconds before it was killed may be gone if it writes its file to disk every second; `is_sure` tells.
"""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import RedisError

from orchestrator.application.errors import StoreError
from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import Keys
from torture.kinds import KINDS, SCHEDULED, SCHEDULED_INPUTS, Kind
from torture.timetable import Timetable, timetable

Json = dict[str, Any]
LOSS_WINDOW_S = 2.5
"""Redis promises one second, and two when its disk is busy; the rest is for our own clock."""
SAY_AGAIN_S = 3.0
SCHEDULES = 0.08
"""So many schedules for every start."""
KEYS = Keys()


@dataclass(slots=True)
class Sent:
    """One start as its producer knows it; times are of the monotonic clock."""

    execution_id: str
    kind: Kind
    inputs: Json
    tries: int = 0
    answered_at: float | None = None
    said_at: float = 0.0

    def fields(self) -> dict[Any, Any]:
        return {
            "spec": json.dumps(self.kind.document),
            "inputs": json.dumps(self.inputs),
            "execution_id": self.execution_id,
            "conflict_policy": "use_existing",
            "group": self.kind.group,
        }


@dataclass
class Outages:
    """When Redis was killed, and whether it may have forgotten what it had answered by then."""

    forgets: bool
    at: list[float] = field(default_factory=list)

    def is_sure(self, answered_at: float | None) -> bool:
        """Whether what was answered then must still be there."""
        if answered_at is None:
            return False
        return not self.forgets or not any(0 <= at - answered_at < LOSS_WINDOW_S for at in self.at)


class Producers:
    """A thread that starts executions until told to stop, and one that prompts those that wait."""

    def __init__(self, seed: int, urls: list[str], most_open: int) -> None:
        self.sent: list[Sent] = []
        self.timetables: list[Timetable] = []
        self.said = 0
        self._rng, self._most_open = random.Random(f"producers {seed}"), most_open
        self._clients = [connect(url) for url in urls]
        self._is_over, self._is_silent = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._produce, args=[self._clients[0]], name="producer", daemon=True),
            threading.Thread(target=self._prompt, args=[self._clients[1]], name="prompter", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop_producing(self) -> None:
        self._is_over.set()
        self._threads[0].join()

    def stop_prompting(self) -> None:
        self._is_silent.set()
        self._threads[1].join()

    def draw(self) -> Sent:
        rng, kind = self._rng, self._rng.choice(list(KINDS.values()))
        ms = rng.choice([0, 0, 10, 50, 200, 200, 1500])
        inputs: Json = {"n": rng.randint(1, 1_000), "ms": ms}
        if kind.name == "map":
            inputs["list"] = [rng.randint(0, 9) for _ in range(rng.randint(0, 6))]
        return Sent(f"{kind.name}-{len(self.sent)}", kind, inputs)

    def _produce(self, client: Client) -> None:
        while not self._is_over.is_set():
            if self._rng.random() < SCHEDULES:
                self._schedule(client)
            sent = self.draw()
            twice = self._rng.random() < 0.2
            self.sent.append(sent)
            while sent.answered_at is None:
                self._send(client, sent)
            if twice:  # as a producer whose own process died between the answer and its note of it
                self._send(client, sent)
            while not self._is_over.is_set() and self._open(client) >= self._most_open:
                self._is_over.wait(0.1)

    def _schedule(self, client: Client) -> None:
        """Each of its slots counts as sent when the registration was answered."""
        kind, count = self._rng.choice(SCHEDULED), self._rng.randint(1, 4)
        name = f"{kind.name}-{len(self.timetables)}"
        table = timetable(name, kind, count, round(time.time() * 1000))
        slots = [Sent(execution_id, kind, SCHEDULED_INPUTS) for execution_id in table.execution_ids]
        self.timetables.append(table)
        self.sent += slots
        while slots[0].answered_at is None:
            try:
                table.register(client)
            except StoreError:
                time.sleep(0.1)
            else:
                for one in slots:
                    one.answered_at = time.monotonic()

    def _send(self, client: Client, sent: Sent) -> None:
        sent.tries += 1
        try:
            client.xadd(KEYS.starts, sent.fields())
            sent.answered_at = time.monotonic()
        except RedisError:
            time.sleep(0.1)

    def _open(self, client: Client) -> int:
        try:
            statuses = ("pending", "in_progress", "compensating")
            found = sum(int(client.zcard(KEYS.index(status))) for status in statuses)
            groups: Any = client.xinfo_groups(KEYS.starts)
            return found + sum(int(group["lag"] or 0) for group in groups)
        except RedisError:
            return self._most_open

    def _prompt(self, client: Client) -> None:
        while not self._is_silent.wait(0.2):
            now = time.monotonic()
            waiting = [one for one in list(self.sent) if one.kind.prompt and now - one.said_at > SAY_AGAIN_S]
            for sent in waiting[-200:]:
                try:
                    self._say(client, sent)
                except RedisError:
                    break

    def _say(self, client: Client, sent: Sent) -> None:
        """To those that have not ended; an answer is asked for, so that what comes too late is no letter."""
        weid: Any = client.get(KEYS.execution(sent.execution_id))
        if weid and client.hget(KEYS.workflow(weid), "ended_at"):
            sent.said_at = float("inf")
            return
        sent.said_at = time.monotonic()
        fields: dict[Any, Any] = {"execution": sent.execution_id, "reply": f"said-{self.said}"}
        self.said += 1
        if sent.kind.prompt == "cancel":
            if not weid:
                return
            fields |= {"type": "control", "action": "cancel"}
        else:
            fields |= {"type": "signal", "name": sent.kind.prompt, "payload": '{"bonus": 7}'}
        client.xadd(KEYS.events_of(weid or sent.execution_id), fields)
