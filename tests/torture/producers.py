"""Producers start executions, send the signals that those wait for, and register schedules, with retries.

A start without a reply is sent again with the same id, as any producer can do that names its executions. It
is accepted when Redis has returned the id of its entry. An entry that Redis acknowledged less than two
seconds before it was killed may be lost if it syncs its file every second; `is_sure` decides.
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
"""Redis loses at most one second, or two if its disk is busy; the rest allows for our own clock."""
PROMPT_EVERY_S = 3.0
SCHEDULES_PER_START = 0.08
KEYS = Keys()


@dataclass(slots=True)
class Sent:
    """One start. Times are of the monotonic clock."""

    execution_id: str
    kind: Kind
    inputs: Json
    tries: int = 0
    answered_at: float | None = None
    prompted_at: float = 0.0

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
    """When Redis was killed, and whether it may have lost acknowledged writes."""

    forgets: bool
    at: list[float] = field(default_factory=list)

    def is_sure(self, answered_at: float | None) -> bool:
        """Whether a write that was acknowledged at this time must still exist."""
        if answered_at is None:
            return False
        return not self.forgets or not any(0 <= at - answered_at < LOSS_WINDOW_S for at in self.at)


def draw_start(rng: random.Random, number: int) -> Sent:
    """Draw a start that was not sent yet."""
    kind = rng.choice(list(KINDS.values()))
    ms = rng.choice([0, 0, 10, 50, 200, 200, 1500])
    inputs: Json = {"n": rng.randint(1, 1_000), "ms": ms}
    if kind.name == "map":
        inputs["list"] = [rng.randint(0, 9) for _ in range(rng.randint(0, 6))]
    return Sent(f"{kind.name}-{number}", kind, inputs)


class Producers:
    """One thread starts executions until it is stopped, and another one sends signals to those that wait."""

    def __init__(self, seed: int, urls: list[str], max_open: int) -> None:
        self.sent: list[Sent] = []
        self.timetables: list[Timetable] = []
        self.prompts = 0
        self._rng, self._max_open = random.Random(f"producers {seed}"), max_open
        self._clients = [connect(url) for url in urls]
        self._is_over, self._is_prompting_over = threading.Event(), threading.Event()
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
        self._is_prompting_over.set()
        self._threads[1].join()

    def _produce(self, client: Client) -> None:
        while not self._is_over.is_set():
            if self._rng.random() < SCHEDULES_PER_START:
                self._schedule(client)
            sent = draw_start(self._rng, len(self.sent))
            twice = self._rng.random() < 0.2
            self.sent.append(sent)
            while sent.answered_at is None:
                self._send(client, sent)
            if twice:  # like a producer that died after the reply, before it recorded it
                self._send(client, sent)
            while not self._is_over.is_set() and self._open(client) >= self._max_open:
                self._is_over.wait(0.1)

    def _schedule(self, client: Client) -> None:
        """Register a schedule. Each of its slots counts as sent once the registration was acknowledged."""
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
            return self._max_open

    def _prompt(self, client: Client) -> None:
        while not self._is_prompting_over.wait(0.2):
            now = time.monotonic()
            waiting = [
                one for one in list(self.sent) if one.kind.prompt and now - one.prompted_at > PROMPT_EVERY_S
            ]
            for sent in waiting[-200:]:
                try:
                    self._send_prompt(client, sent)
                except RedisError:
                    break

    def _send_prompt(self, client: Client, sent: Sent) -> None:
        """Send the prompt if the execution is open.

        It asks for a reply, so that a late one is not dead-lettered.
        """
        weid: Any = client.get(KEYS.execution(sent.execution_id))
        if weid and client.hget(KEYS.workflow(weid), "ended_at"):
            sent.prompted_at = float("inf")
            return
        sent.prompted_at = time.monotonic()
        fields: dict[Any, Any] = {"execution": sent.execution_id, "reply": f"prompt-{self.prompts}"}
        self.prompts += 1
        if sent.kind.prompt == "cancel":
            if not weid:
                return
            fields |= {"type": "control", "action": "cancel"}
        else:
            fields |= {"type": "signal", "name": sent.kind.prompt, "payload": '{"bonus": 7}'}
        client.xadd(KEYS.events_of(weid or sent.execution_id), fields)
