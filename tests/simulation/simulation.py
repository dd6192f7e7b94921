"""One simulation: from a seed to a verdict.

    report = simulate(7)            # raises Failure, which says how to see it again

Half of the cases are quiet: they end alike whatever happens, so their results are compared with those of a
run without faults. The others race, are paused, held and cancelled, and must end legally.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from language.cases import Case, features
from language.random_specs import quiet_case, racing_case
from orchestrator.application.records.events import ControlEvent
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES
from orchestrator.coordinator.starts import Starts
from orchestrator.redis_rq.event_codec import event_fields
from simulation.fake_redis import FakeRedisServer
from simulation.faults import Faults
from simulation.ledger import Broken
from simulation.nemesis import Nemesis
from simulation.scheduler import EPOCH_MS, NoEnd, Scheduler
from simulation.small_redis import SmallRedis
from simulation.staff import Staff
from simulation.surroundings import checked_once, surroundings
from simulation.verdict import judge, left_over
from simulation.world import Server, World

MOST_POINTS = 40_000
LONGEST_MS = 3_600_000
"""The timeouts that are not to be reached are longer."""
CLEAN_WITHIN_MS = 90_000

LOOKED_FOR = (None, "workflow", "workflow", "signal early", "concurrency", "concurrency of a step")
SHARED = {"concurrency", "concurrency of a step"}
CANDIDATES = 5
FAR = 1_000_000_000
"""From the seed of one case to that of the next that might be played in its place."""

NOT_ON_FAKEREDIS = {"last id": False, "script error": False}
"""It keeps the last id of a stream that is repaired, and runs scripts out of reach."""

MakeServer = Callable[[Callable[[], int]], Server]


@dataclass(slots=True)
class Report:
    """What happened in a simulation, or in many."""

    seeds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    counters: Counter[str] = field(default_factory=Counter)
    executions: int = 0
    jobs: int = 0
    points: int = 0
    seconds: float = 0.0

    def add(self, other: Report) -> None:
        for name in ("faults", "ended", "counters"):
            getattr(self, name).update(getattr(other, name))
        for name in ("seeds", "executions", "jobs", "points", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Failure(AssertionError):
    """A simulation that went wrong. `what` is wrong; the rest says how it came to be."""

    def __init__(self, seed: int, level: str, what: str, case: Case, trace: list[str]) -> None:
        self.seed, self.what, self.trace = seed, what, trace
        again = f"scripts/simulate --from {seed} --seeds 1 --level {level}"
        document = json.dumps(case.document)
        super().__init__("\n".join([f"seed {seed}: {what}", document, *trace, f"again: {again}"]))


def simulate(seed: int, level: str = "memory", kinds: dict[str, bool] | None = None) -> Report:
    """Play a seed to its end and judge it."""
    stage = Stage(seed, SERVERS[level], kinds)
    try:
        return stage.play()
    except (Broken, NoEnd, Exception) as error:
        what = f"{type(error).__name__}: {error}"
        raise Failure(seed, level, what, stage.case, stage.world.traced) from error


class Stage:
    def __init__(self, seed: int, make_server: MakeServer, kinds: dict[str, bool] | None = None) -> None:
        draw = Random(f"simulation {seed}")
        self.case = drawn_case(seed, draw)
        self.scheduler = Scheduler(draw, MOST_POINTS)
        missing = {} if make_server is SmallRedis else NOT_ON_FAKEREDIS
        self.faults = Faults(self.scheduler, draw, {**missing, **(kinds or {})})
        self.world = World(self.case, self.scheduler, self.faults, make_server)
        workflow_id = checked_once(self.case.document).workflow_id
        self._wanted = [f"{workflow_id}#{start.execution_id}" for start in self.case.starts]

    def play(self) -> Report:
        world, scheduler, draw = self.world, self.scheduler, self.scheduler.draw
        staff = Staff(world)
        with quiet_logs(), surroundings(scheduler, world.skew_ms, world.redis_ms), killers(world):
            for _ in range(draw.randint(2, 3)):
                world.hire("c", staff.coordinate)
            for _ in range(draw.randint(2, 4)):
                world.hire("w", staff.work)
            scheduler.spawn("customer", world.customers.order)
            scheduler.spawn("nemesis", Nemesis(world).plague)
            scheduler.spawn("director", self._direct)
            scheduler.run()
            judge(world)
        return self._report()

    def _direct(self) -> None:
        """Let the faults end, and then everything else."""
        world, scheduler = self.world, self.scheduler
        scheduler.sleep(scheduler.draw.choice([3_000, 20_000, 90_000]))
        self.faults.stop()
        self._await_end()
        world.customers.speak_late()
        until_ms = int(scheduler.now_ms) + CLEAN_WITHIN_MS
        while left := list(left_over(world)):
            if not self._has_ended():  # a customer had started more before the end
                self._await_end()
                until_ms = int(scheduler.now_ms) + CLEAN_WITHIN_MS
            elif scheduler.now_ms > until_ms:
                raise Broken("; ".join(left))
            else:
                scheduler.sleep(5_000)
        scheduler.finish()

    def _await_end(self) -> None:
        while not self._has_ended():
            if self.scheduler.now_ms > EPOCH_MS + LONGEST_MS:
                raise Broken(f"I1: still open: {self._still_open()}")
            self.scheduler.wait(self._has_ended, 30_000)
            self._let_go()

    def _has_ended(self) -> bool:
        status = self.world.ledger.status
        return (
            all(status.get(weid) in FINAL_WORKFLOW_STATUSES for weid in self._wanted)
            and not self.world.ledger.open
        )

    def _still_open(self) -> str:
        missing = [weid for weid in self._wanted if weid not in self.world.ledger.status]
        records = [record for record in self.world.loaded() if not record.is_final]
        shown = {
            record.execution_id: {unit: one.as_dict() for unit, one in record.units() if not one.is_final}
            for record in records
        }
        return f"{missing or ''} {shown}"

    def _let_go(self) -> None:
        """What operators have stopped goes on."""
        if self.case.is_quiet:
            return
        for record in self.world.loaded():
            weid = record.workflow_execution_id
            if record.status == "paused":
                self.world.say(weid, event_fields(ControlEvent(weid, "unpause", "")))
            for step_id, step in record.steps.items():
                if step.status == "on_hold":
                    self.world.say(weid, event_fields(ControlEvent(weid, "release", step_id)))

    def _report(self) -> Report:
        world = self.world
        found = world.server.execute("HGETALL", world.keys.counters)
        return Report(
            seeds=1,
            faults=Counter(self.faults.counts),
            ended=Counter(world.ledger.status.values()),
            counters=Counter(dict(zip(found[::2], map(int, found[1::2]), strict=True))),
            executions=len(world.ledger.status),
            jobs=sum(world.executed.values()),
            points=self.scheduler.points,
            seconds=(self.scheduler.now_ms - EPOCH_MS) / 1000,
        )


def drawn_case(seed: int, draw: Random) -> Case:
    """A case of this seed. What is rare in the language, and where processes meet, is looked for: of a few
    cases, the first that has it."""
    make = quiet_case if draw.random() < 0.6 else racing_case
    wanted = draw.choice(LOOKED_FOR)
    found = [make(seed + n * FAR) for n in range(1 if wanted is None else CANDIDATES)]
    case = next((case for case in found if wanted in features(case)), found[0])
    if not case.is_quiet:  # its end is not determined, so several of them may run and interact
        first, known = case.starts[0], len(case.starts)
        for n in range(draw.choice([1, 2, 3] if features(case) & SHARED else [0, 1])):
            case.starts.append(replace(first, execution_id=f"x{case.seed}-{known + n}"))
    return case


@contextmanager
def killers(world: World) -> Iterator[None]:
    """Within this context, a coordinator that handles a killer event dies."""
    build_creation = Starts.build_creation

    def deadly(starts: Starts, delivery: Any, *rest: Any) -> Any:
        if str(getattr(delivery.event, "execution_id", "")).startswith("killer-"):
            world.kill_current()
        return build_creation(starts, delivery, *rest)

    Starts.build_creation = deadly  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        Starts.build_creation = build_creation  # type: ignore[method-assign]


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Processes that die have much to say; the trace says it better."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


SERVERS: dict[str, MakeServer] = {"memory": SmallRedis, "redis": FakeRedisServer}
