"""Scheduler: actors take turns, on a simulated clock.

    scheduler = Scheduler(Random(7))
    scheduler.spawn("one", act)            # act runs in a thread of its own, when its turn comes
    scheduler.run(until=lambda: ...)

Only one actor runs at any time. It runs until it reaches a *point* (`point`, `wait`, `sleep`), where the seed
decides which actor runs next; so the same seed gives the same order. Time passes when no actor can run. An
actor that is killed gets `Killed` raised at its point, and again at everything that it still tries to do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

SWITCH = 0.35
"""How often another actor goes on at a point where no actor has to wait."""
HESITATES = (0.0, 0.01, 0.05)
"""How often an actor falls behind at a point: never in one simulation, often in another."""
BEHIND = (5, 30, 150)
"""How many points other actors reach before it goes on."""
TICKS_MS = ((0, 0, 1), (0, 1, 5), (1, 20, 100))
"""How much time passes then: events are close together in one simulation, and far apart in another."""
EPOCH_MS = 1_700_000_000_000


class Killed(BaseException):
    """The actor was killed."""


class NoEnd(BaseException):
    """Nothing can happen any more, or too much has happened. Simulated code must not catch this."""


@dataclass(slots=True, eq=False)
class Actor:
    """Actors of one `process` die together. An actor waits until `until_ms`, or until `awaits` is true. One
    that `is_idle` would only poll for work. One that is `behind` lets others run first, until they have
    reached so many points."""

    name: str
    process: str
    run: Callable[[], None]
    until_ms: float = 0
    awaits: Callable[[], bool] | None = None
    is_idle: bool = False
    is_dead: bool = False
    behind: int = 0
    turn: threading.Lock = field(default_factory=threading.Lock)


class Scheduler:
    def __init__(self, draw: Random, most_points: int) -> None:
        self.draw, self.now_ms, self.points = draw, EPOCH_MS, 0
        self._ticks, self._hesitates = draw.choice(TICKS_MS), draw.choice(HESITATES)
        self._most_points = most_points
        self._actors: list[Actor] = []
        self._current: Actor | None = None
        self._main = threading.Lock()
        self._error: BaseException | None = None
        self._is_over = False
        self.next_due_ms: Callable[[], float | None] = lambda: None
        """When idle actors will have work; None: they must poll all the time."""

    # ---- actors

    @property
    def current(self) -> Actor:
        assert self._current is not None, "no actor runs"
        return self._current

    def spawn(
        self, name: str, run: Callable[[], None], process: str | None = None, in_ms: float = 0
    ) -> Actor:
        actor = Actor(name, process or name, run, self.now_ms + in_ms)
        actor.turn.acquire()
        self._actors.append(actor)
        return actor

    def kill(self, process: str) -> None:
        """Kill all actors of a process."""
        for actor in self._actors:
            if actor.process == process:
                actor.is_dead = True
        if self._current is not None and self._current.is_dead:
            raise Killed

    def pause(self, process: str, ms: float) -> None:
        """Pause all actors of a process, as by SIGSTOP; time goes on for the others."""
        for actor in self._actors:
            if actor.process == process:
                actor.until_ms = max(actor.until_ms, self.now_ms + ms)
                actor.awaits = None
        if self._current is not None and self._current.process == process:
            self._hand_on()

    # ---- what actors do

    def point(self) -> None:
        """Another actor may go on from here."""
        self._count()
        chance = self.draw.random()
        if chance < self._hesitates:
            self.fall_behind(self.draw.choice(BEHIND))
        if chance < SWITCH:
            self.now_ms += self.draw.choice(self._ticks)
            self._hand_on()

    def fall_behind(self, points: int) -> None:
        """Let others run first for some time, so that they send many commands between two of ours."""
        self.current.behind = self.points + points

    def sleep(self, ms: float) -> None:
        self.wait(lambda: False, ms)

    def wait(self, fact: Callable[[], bool], ms: float, is_idle: bool = False) -> None:
        """Wait until a condition is true, or for some time."""
        actor = self.current
        self._count()
        actor.until_ms, actor.awaits, actor.is_idle = self.now_ms + ms, fact, is_idle
        self._hand_on()
        actor.until_ms, actor.awaits, actor.is_idle = 0, None, False

    def _count(self) -> None:
        self.points += 1
        if self.current.is_dead:
            raise Killed
        if self.points > self._most_points:
            raise NoEnd(f"no end after {self._most_points} points")

    # ---- turns

    def run(self) -> None:
        """Let actors take turns until one of them calls `finish`, or none is left."""
        self._main.acquire()
        self._start(self._next())
        self._main.acquire()
        self._main.release()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def finish(self) -> None:
        """Kill all actors."""
        self._is_over = True
        for actor in self._actors:
            actor.is_dead = actor is not self._current
        raise Killed

    def _hand_on(self) -> None:
        """Let the next actor run; returns when it is our turn again."""
        actor, other = self.current, self._next()
        if other is not actor:
            self._start(other)
            actor.turn.acquire()
        if actor.is_dead:
            raise Killed

    def _start(self, actor: Actor) -> None:
        self._current = actor
        if actor.run is not _begun:
            run, actor.run = actor.run, _begun
            POOL.run(lambda: self._live(actor, run))
        else:
            actor.turn.release()

    def _live(self, actor: Actor, run: Callable[[], None]) -> None:
        try:
            if not actor.is_dead:
                run()
        except Killed:
            pass
        except BaseException as error:
            self._error = self._error or error
            self._is_over = True
        self._actors.remove(actor)
        if self._is_over:
            for other in self._actors:
                other.is_dead = True
        if self._actors:
            try:
                other = self._next()
            except NoEnd as error:
                self._error = self._error or error
                self._is_over = True
                for other in self._actors:
                    other.is_dead = True
                other = self._next()
            self._start(other)
        else:
            self._current = None
            self._main.release()

    def _next(self) -> Actor:
        """An actor that can run; if none can, time passes until one can."""
        while True:
            now_ms = self.now_ms
            able = [
                actor
                for actor in self._actors
                if actor.until_ms <= now_ms or actor.is_dead or (actor.awaits is not None and actor.awaits())
            ]
            if len(able) > 1:
                able = [actor for actor in able if actor.behind <= self.points] or able
            if able:
                return able[0] if len(able) == 1 else self.draw.choice(able)
            self._pass_time()

    def _pass_time(self) -> None:
        busy = [actor.until_ms for actor in self._actors if not actor.is_idle]
        idle = [actor for actor in self._actors if actor.is_idle]
        due_ms = self.next_due_ms()
        if due_ms is not None and due_ms <= self.now_ms:
            due_ms = None  # an idle actor must poll now
        wanted = [one for one in (*busy, *((due_ms,) if due_ms is not None else ())) if one < float("inf")]
        looking = min((actor.until_ms for actor in idle), default=float("inf"))
        if due_ms is None:
            wanted.append(looking)
        target = min(wanted, default=float("inf"))
        if target == float("inf"):
            raise NoEnd("no actor will ever run again")
        if due_ms is not None and target > looking:  # a poll before that would find nothing
            for actor in idle:
                actor.until_ms = max(actor.until_ms, target + self.draw.randint(0, 500))
            looking = min(actor.until_ms for actor in idle)
            target = min([*busy, looking])
        self.now_ms = max(self.now_ms, int(min(target, looking)) + 1)


def _begun() -> None:
    raise AssertionError("an actor begins once")


class Pool:
    """Threads that wait for the next actor: to make one costs more than most actors do."""

    def __init__(self) -> None:
        self._free: list[_Worker] = []
        self._lock = threading.Lock()

    def run(self, act: Callable[[], None]) -> None:
        with self._lock:
            worker = self._free.pop() if self._free else _Worker(self)
        worker.begin(act)

    def take_back(self, worker: _Worker) -> None:
        with self._lock:
            self._free.append(worker)


class _Worker:
    def __init__(self, pool: Pool) -> None:
        self._pool, self._go = pool, threading.Lock()
        self._go.acquire()
        self._act: Callable[[], None] = _begun
        threading.Thread(target=self._serve, name="actor", daemon=True).start()

    def begin(self, act: Callable[[], None]) -> None:
        self._act = act
        self._go.release()

    def _serve(self) -> None:
        while True:
            self._go.acquire()
            act, self._act = self._act, _begun
            act()
            self._pool.take_back(self)


POOL = Pool()
