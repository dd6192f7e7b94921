"""Faults: drawn from the seed, at every point where one can happen.

Each simulation has only some kinds of faults: which ones, and how often, is drawn first. A frequent fault
would hide rare ones, and bugs often need two faults together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import redis

from simulation.line import Words
from simulation.scheduler import Scheduler

ON_THE_LINE = {
    "kill": 0.006,
    "lost request": 0.004,
    "lost answer": 0.012,
    "pause": 0.004,
    "snapshot": 0.03,
}
"""How often, at each command, when it goes wrong at all."""
NOW_AND_THEN = {
    "kill": 2,
    "outage": 1,
    "roll back": 6,
    "clock": 1,
    "scripts": 1,
    "double": 6,
    "early timer": 3,
    "available": 3,
    "forgery": 3,
    "dead horse": 4,
    "poison": 1,
    "killer": 1,
    "last id": 2,
}
"""How often of so many, when something goes wrong elsewhere."""
IN_SCRIPTS = 0.25
"""How often a command of a script that writes for a coordinator has an error."""
SELDOM = ("killer", "outage", "last id")
AT_WORK = {"kill": 0.03, "pause": 0.03}
"""How often, amid the work of an executor."""
DECLINED = 0.25
"""How often a worker does not have the executor of a step."""
CRITICAL = {"LPOP": 10, "XREADGROUP": 4}
"""How much more often a fault follows one of these commands: only one process has what it returned."""
PUT_BACK = 0.02
"""How often Redis is rolled back right after a process has read what is then lost."""
HOLDS_A_SIGNAL = 0.25
"""How often the coordinator that has read a signal pauses, so that another one reclaims it and both have
it."""
MOST_KILLS = 8
MOST_SCRIPT_ERRORS = 6
"""With more, all of them may hit the same event, and it would be delivered too often."""
MOST_FAULTS = 40


class Faults:
    """Those on the lines; a nemesis makes the others happen. `kinds` are those of this simulation."""

    def __init__(self, scheduler: Scheduler, draw: Random, kinds: Mapping[str, bool] | None = None) -> None:
        self._scheduler, self._draw = scheduler, draw
        everything = sorted({*ON_THE_LINE, *NOW_AND_THEN, "declined", "script error"})
        drawn = {kind: draw.random() < (0.35 if kind in SELDOM else 0.6) for kind in everything}
        # A rollback may undo a repair just before it is noted as done: docs/decisions.md.
        drawn["script error"] &= not drawn["roll back"]
        self.kinds = drawn | {"snapshot": drawn["roll back"]} | dict(kinds or {})
        intensity = draw.choice([0.3, 1, 2, 4])
        self._rates = [(kind, rate * intensity) for kind, rate in ON_THE_LINE.items() if self.kinds.get(kind)]
        self._any = sum(rate for _, rate in self._rates)
        self._put_back_rate = PUT_BACK * intensity
        self._at_work = {kind: rate * intensity for kind, rate in AT_WORK.items()}
        self._declined_rate = DECLINED * intensity
        self._in_scripts_rate = IN_SCRIPTS * intensity
        self.counts: Counter[str] = Counter()
        self.is_over = False
        self.away_until_ms = 0.0
        self.world: Any = None

    def stop(self) -> None:
        self.is_over = True

    def allows(self, kind: str) -> bool:
        return self.kinds.get(kind, False) and not self.is_over and sum(self.counts.values()) < MOST_FAULTS

    def count(self, kind: str) -> None:
        self.counts[kind] += 1
        self.world.trace(f"fault: {kind}")

    # ---- on the line

    def check_line(self) -> None:
        if self._scheduler.now_ms < self.away_until_ms:
            raise redis.exceptions.ConnectionError("Redis is away")

    def before(self, words: Words) -> None:
        self.check_line()
        kind = self._drawn()
        if kind == "lost request":
            self.count(kind)
            raise redis.exceptions.ConnectionError("the line broke before the command")
        if kind == "snapshot":
            self.world.remember()
        elif kind is not None and kind != "lost answer":
            self._strike(kind)

    def after(self, words: Words, answer: Any) -> None:
        has_brought = answer is not None and not isinstance(answer, Exception)
        if has_brought and words[0] == "XREADGROUP":
            self._put_back()
            self._hold(answer)
        kind = self._drawn(CRITICAL.get(words[0], 1) if has_brought else 1)
        if kind == "lost answer":
            self.count(kind)
            raise redis.exceptions.ConnectionError("the line broke before the answer")
        if kind in ("kill", "pause"):
            self._strike(kind)

    def at_work(self) -> None:
        """A worker dies or pauses while an executor runs, for longer than a lease."""
        for kind, rate in self._at_work.items():
            if self._draw.random() < rate and self.allows(kind):
                self._strike(kind)

    def has_no_executor(self) -> bool:
        """Whether the worker that has taken a step lacks its executor."""
        is_missing = self._draw.random() < self._declined_rate and self.allows("declined")
        if is_missing:
            self.count("declined")
        return is_missing

    def error_in_script(self) -> int | None:
        """Which of the writes of a script has an error; None for none."""
        is_due = self._draw.random() < self._in_scripts_rate and self.allows("script error")
        is_due = is_due and self.counts["script error"] < MOST_SCRIPT_ERRORS
        return self._draw.choice([0, 0, 1, 2, 3, 5, 8]) if is_due else None

    def _drawn(self, weight: int = 1) -> str | None:
        if self.is_over or self._draw.random() >= self._any * weight:
            return None
        [kind] = self._draw.choices([kind for kind, _ in self._rates], [rate for _, rate in self._rates])
        return kind if self.allows(kind) and self.world.is_mortal() else None

    def _put_back(self) -> None:
        is_due = self._draw.random() < self._put_back_rate and self.allows("roll back")
        if is_due and self.world.roll_back():
            self.count("roll back")

    def _hold(self, answer: Any) -> None:
        has_signal = any(fields[:2] == ["type", "signal"] for _, entries in answer for _, fields in entries)
        if has_signal and self._draw.random() < HOLDS_A_SIGNAL and self.allows("pause"):
            self._strike("pause")

    def _strike(self, kind: str) -> None:
        if kind == "pause":
            self.count(kind)
            self._scheduler.pause(self._scheduler.current.process, self._draw.choice([2_000, 8_000, 45_000]))
        elif self.counts["kill"] < MOST_KILLS:
            self.count(kind)
            self.world.kill(self._scheduler.current.process)
