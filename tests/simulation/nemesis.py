"""Nemesis: the faults that are not on a line between a process and Redis."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from orchestrator.application.records.events import AvailableEvent, Control, ControlEvent
from orchestrator.application.values.dispatch_tokens import has_secret
from orchestrator.redis_rq.event_codec import event_fields
from orchestrator.redis_rq.keys import Keys
from simulation.customers import Heard
from simulation.faults import MOST_KILLS, NOW_AND_THEN
from simulation.ledger import OF_TOKEN
from simulation.world import LAST_ID, LAST_POISON, World

CONTROLS: tuple[Control, ...] = ("pause", "unpause", "hold", "hold", "release", "cancel")

MOST_REOPENED = 2
LONGEST_WAIT_MS = 3_000


class Nemesis:
    def __init__(self, world: World) -> None:
        self._world, self._draw = world, Random(world.draw.random())
        self._acts: dict[str, Callable[[], bool]] = {
            "kill": self._kill,
            "outage": self._outage,
            "roll back": self._roll_back,
            "clock": self._clock,
            "scripts": self._scripts,
            "double": self._double,
            "early timer": self._early_timer,
            "available": self._available,
            "forgery": self._forge,
            "dead horse": self._dead_horse,
            "poison": self._poison,
            "killer": self._killer,
            "last id": self._last_id,
        }

    def plague(self) -> None:
        """Until it is over, something every now and then."""
        world, draw = self._world, self._draw
        while True:
            world.scheduler.sleep(draw.choice([5, 50, 400, 1_000, 5_000]))
            if world.faults.is_over:
                return
            [kind] = draw.choices(list(NOW_AND_THEN), list(NOW_AND_THEN.values()))
            if world.faults.allows(kind) and self._acts[kind]():
                world.faults.count(kind)
            if not world.case.is_quiet and draw.random() < 0.3:
                self._control()

    # ---- processes and Redis

    def _kill(self) -> bool:
        if self._world.faults.counts["kill"] >= MOST_KILLS:
            return False
        self._world.kill(self._draw.choice(self._world.mortals))
        return True

    def _outage(self) -> bool:
        world = self._world
        world.faults.away_until_ms = world.scheduler.now_ms + self._draw.choice([50, 1_000, 10_000, 45_000])
        world.server.forget_scripts()
        return True

    def _roll_back(self) -> bool:
        world = self._world
        world.faults.away_until_ms = world.scheduler.now_ms + self._draw.choice([0, 0, 0, 50, 2_000])
        return world.roll_back()

    def _clock(self) -> bool:
        """The clock of Redis is set; not so far that what is to wait for hours would not."""
        jump_ms = self._world.jump_ms + self._draw.choice([-30_000, -2_000, 2_000, 30_000, 120_000])
        if not -60_000 <= jump_ms <= 300_000:
            return False
        self._world.ledger.look_at_clock()
        self._world.jump_ms = jump_ms
        return True

    def _scripts(self) -> bool:
        self._world.server.forget_scripts()
        return True

    # ---- messages

    def _double(self) -> bool:
        """Publish an earlier event again: preferably one that could be mistaken for a current event."""
        world, draw = self._world, self._draw
        found: dict[str, list[Heard]] = {}
        for one in world.memory.heard:
            kind = "superseded" if self._is_superseded(one) else one[1][1]
            found.setdefault(kind, []).append(one)
        if not found:
            return False
        kind = "superseded" if "superseded" in found else draw.choice(sorted(found))
        stream, fields = draw.choice(found[kind])
        if world.is_exhausted(stream):
            return False
        world.execute("XADD", stream, "*", *fields)
        return True

    def _is_superseded(self, heard: Heard) -> bool:
        """Whether it is a result of a dispatch in whose place another one is out."""
        said = _named(heard[1])
        if said["type"] != "result":
            return False
        token = self._token_out(said["execution"], said["step"])
        return token is not None and token != said.get("token")

    def _token_out(self, execution: str, step: str) -> str | None:
        """The token of the dispatch that is out for a step or item, if any."""
        name = f"item:{step.replace('#', ':')}" if "#" in step else f"step:{step}"
        text = self._world.server.execute("HGET", self._world.keys.workflow(execution), name)
        unit = json.loads(text or "{}")
        return unit.get("token") if unit.get("status") == "in_progress" else None

    def _early_timer(self) -> bool:
        """A timer is a hint, and may come at any time."""
        world = self._world
        timers = world.server.execute("ZRANGE", world.keys.timers, "0", "-1")
        if not timers:
            return False
        kind, execution, step, token = self._draw.choice(timers).split("|")
        world.say(execution, {"type": kind, "execution": execution, "step": step, "token": token})
        return True

    def _forge(self) -> bool:
        """A worker of another queue makes up an event for a step. It knows only what the lease says."""
        world, draw = self._world, self._draw
        leases = [one.split("|") for one in world.server.execute("ZRANGE", world.keys.leases, "0", "-1")]
        forgeable = [one for one in leases if has_secret(self._token_out(one[0], one[1]) or "")]
        if not forgeable:
            return False
        execution, step, run_id, attempt, dispatch = draw.choice(forgeable)
        kind = draw.choice(["result", "started", "declined"])
        fields = {"type": kind, "execution": execution, "step": step, "run_id": run_id, "attempt": attempt}
        fields |= {
            "token": dispatch,
            "worker": f"forger{OF_TOKEN}{dispatch}",
            "executor": "any",
            "output": "{}",
        }
        world.say(execution, fields)
        return True

    def _available(self) -> bool:
        """A worker has an executor for which nothing waits: the step waits for its next attempt, or for
        another executor. Such a wait is short, so this waits for one."""
        world = self._world
        world.scheduler.wait(lambda: bool(self._retries()), LONGEST_WAIT_MS)
        retries = self._retries()
        if not retries or not world.faults.allows("available"):
            return False
        _, execution, step, _ = self._draw.choice(retries).split("|")
        event = AvailableEvent(execution, step, "any")
        world.say(execution, event_fields(event))
        return True

    def _retries(self) -> list[str]:
        timers = self._world.server.execute("ZRANGE", self._world.keys.timers, "0", "-1")
        return [timer for timer in timers if timer.startswith("retry|")]

    def _dead_horse(self) -> bool:
        """A work-horse dies, and its worker marks the job as failed, as RQ does; or RQ only believes so,
        because the worker is dead, and the work-horse goes on. Most steps take no time, so this waits for
        one."""
        world = self._world
        world.scheduler.wait(lambda: bool(self._running()), LONGEST_WAIT_MS)
        running = self._running()
        if not running or not world.faults.allows("dead horse"):
            return False
        job_id, process = self._draw.choice(running)
        origin = world.server.execute("HGET", Keys.rq_job(job_id), "origin")
        if origin is not None:
            world.server.execute("ZADD", Keys.rq_failed(origin), "1", job_id)
        if self._draw.random() < 0.5:
            world.kill(process)
        return True

    def _running(self) -> list[tuple[str, str]]:
        return sorted(run for run in self._world.running if run[1] in self._world.mortals)

    def _poison(self) -> bool:
        keys = self._world.keys
        kind, stream, fields = self._draw.choice(
            [
                ("nonsense", keys.events(0), {"type": "nonsense"}),
                ("half a result", keys.events(1), {"type": "result", "execution": "x", "output": "{"}),
                ("no spec", keys.starts, {"execution_id": "absent", "spec": "steps: ["}),
                ("no such workflow", keys.starts, {"execution_id": "absent", "workflow": "unheard-of"}),
            ]
        )
        return self._send(kind, stream, fields)

    def _killer(self) -> bool:
        """A start that kills every coordinator that handles it."""
        if "killer" in self._world.memory.poison.values():
            return False
        fields = {"execution_id": f"killer-{self._world.case.seed}", "spec": "steps: [{id: a}]"}
        return self._send("killer", self._world.keys.starts, fields)

    def _last_id(self) -> bool:
        """An entry with the last possible id: its stream takes no more entries until it is repaired. One
        stream of events always takes some."""
        world = self._world
        stream = self._draw.choice(world.streams())
        is_repeated = f"{stream} {LAST_ID}" in world.memory.poison  # then two dead letters would look alike
        if is_repeated or any(map(world.is_exhausted, world.streams())):
            return False
        return self._send("last id", stream, {"type": LAST_POISON}, LAST_ID)

    def _send(self, kind: str, stream: str, fields: dict[str, str], entry_id: str = "*") -> bool:
        if self._world.is_exhausted(stream):
            return False
        words = [word for pair in fields.items() for word in pair]
        entry = self._world.execute("XADD", stream, entry_id, *words)
        self._world.memory.poison[f"{stream} {entry}"] = kind
        return True

    # ---- operators

    def _control(self) -> None:
        world, draw = self._world, self._draw
        if not world.ledger.open:
            self._reopen()
            return
        weid = draw.choice(sorted(world.ledger.open))
        action, step_id = draw.choice(CONTROLS), ""
        if action in ("hold", "release"):
            fields = world.server.execute("HKEYS", world.keys.workflow(weid))
            step_id = draw.choice([name[5:] for name in fields if name.startswith("step:")])
        world.say(weid, event_fields(ControlEvent(weid, action, step_id)))

    def _reopen(self) -> None:
        """What has ended is retried, or run again from one of its steps."""
        world, draw = self._world, self._draw
        ended = [
            one
            for one in world.loaded()
            if one.parent is None and one.compensated is None and one.status != "halted"
        ]
        if not ended or len(world.ledger.reopened) >= MOST_REOPENED:
            return
        record = draw.choice(sorted(ended, key=lambda one: one.execution_id))
        weid = record.workflow_execution_id
        action: Control = "rerun" if record.status == "complete" else draw.choice(["retry", "rerun"])
        step_id = draw.choice(record.graph.order) if action == "rerun" else ""
        world.ledger.reopened.add(weid)
        world.say(weid, event_fields(ControlEvent(weid, action, step_id)))


def _named(fields: list[Any]) -> dict[str, str]:
    return dict(zip(fields[::2], fields[1::2], strict=True))
