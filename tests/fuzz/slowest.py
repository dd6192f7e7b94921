"""A search for the slowest turn of a coordinator: hostile documents, inputs and events, and the processor
time of each turn that they lead to.

A case is a family and a seed. It is played on a real redis-server, so that only the coordinator's own work
counts. The first turn after a read includes that read. The tests of turns assert units of work; this search
shows how many milliseconds they are.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from orchestrator.application.engine.turn import Turn
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent
from orchestrator.backend.ports import Delivery
from orchestrator.cli.commands.coordinator import collect_seldom
from orchestrator.coordinator.commits import Commits
from orchestrator.coordinator.loop import Coordinator
from orchestrator.coordinator.pending_commit import PendingCommit, Retries
from worlds.documents import Json, document, step, when
from worlds.redis_world import RedisWorld

MAX_TURN_MS = 250
"""The target."""
MAX_ROUNDS = 60
MAX_CASE_S = 20.0


@dataclass(slots=True)
class Scenario:
    """What is sent: starts, then results of the jobs, `at_once` of them together, then controls."""

    documents: list[Json]
    inputs: Json = field(default_factory=dict)
    output: Callable[[], Any] = dict
    at_once: int = 400
    is_cold: bool = False
    controls: Sequence[str] = ()
    signals: int = 0


@dataclass(frozen=True, slots=True)
class SlowTurn:
    ms: float
    work: int
    events: int
    family: str
    seed: int

    def __str__(self) -> str:
        again = f"scripts/fuzz --slowest --cases 1 --seed {self.seed} {self.family}"
        return f"{self.ms:8.0f} ms {self.work:>9,} units {self.events:>6,} events   {again}"


class MeasuredCoordinator(Coordinator):
    """Measures its turns, and collects the jobs that it dispatches."""

    def __init__(self, *args: Any, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self.measured: list[tuple[float, int, int]] = []
        self.dispatched: list[DispatchJob] = []
        self.executions: dict[str, None] = {}
        self._turns: list[Turn] = []
        self._began: float | None = None
        self._commits = MeasuredCommits(self._commits, self)

    def run_once(self) -> int:
        self._began = time.process_time()
        return super().run_once()

    def forget_records(self) -> None:
        self._backend.drop_cached_records()

    def _new_turn(self) -> Turn:
        self._turns.append(super()._new_turn())
        return self._turns[-1]

    def _take_turn(self, deliveries: Sequence[Delivery]) -> tuple[Sequence[Delivery], list[Delivery]]:
        began, self._began = self._began or time.process_time(), None
        try:
            return super()._take_turn(deliveries)
        finally:
            ms = (time.process_time() - began) * 1000
            self.measured.append((ms, sum(turn.spent for turn in self._turns), len(deliveries)))
            self._turns.clear()


class MeasuredCommits(Commits):
    """Tells the coordinator which executions were committed, and with which jobs."""

    def __init__(self, known: Commits, coordinator: MeasuredCoordinator) -> None:
        vars(self).update(vars(known))
        self._coordinator = coordinator

    def _commit_all(self, pending: Sequence[PendingCommit]) -> Retries:
        retries = super()._commit_all(pending)
        for one in pending:
            self._coordinator.executions[one.execution] = None
            self._coordinator.dispatched += one.commit.changes.jobs
        return retries


def play(world: RedisWorld, family: str, seed: int) -> Iterator[SlowTurn]:
    """Play a case; yields every turn."""
    scenario = FAMILIES[family](Random(seed))
    one = cast("MeasuredCoordinator", world.coordinator(make=MeasuredCoordinator))
    before = gc.get_threshold()
    collect_seldom()
    try:
        _play(world, one, scenario)
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
    for ms, work, events in one.measured:
        yield SlowTurn(ms, work, events, family, seed)


def _play(world: RedisWorld, one: MeasuredCoordinator, scenario: Scenario) -> None:
    until = time.monotonic() + MAX_CASE_S
    for spec in scenario.documents:
        world.start(spec, scenario.inputs)
    _run(one, until)
    for _ in range(MAX_ROUNDS):
        jobs, one.dispatched = one.dispatched[: scenario.at_once], one.dispatched[scenario.at_once :]
        if not jobs or time.monotonic() > until:
            break
        for job in jobs:
            _send_result(world, job, scenario.output())
        if scenario.is_cold:
            one.forget_records()
        _run(one, until)
    _send_others(world, scenario, list(one.executions))
    _run(one, until)


def _run(one: Coordinator, until: float) -> None:
    while one.run_once() and time.monotonic() < until:
        pass


def _send_result(world: RedisWorld, job: DispatchJob, output: Any) -> None:
    error = {"kind": "exception", "message": "it failed"} if output is None else None
    event = ResultEvent(
        job.workflow_execution_id,
        job.step_id,
        output,
        error,
        run_id=job.run_id,
        attempt=job.attempt,
        token=job.token,
    )
    world.send_event(event)


def _send_others(world: RedisWorld, scenario: Scenario, executions: Sequence[str]) -> None:
    for execution in executions:
        stream = world.keys.events_of(execution)
        for _ in range(scenario.signals):
            payload = json.dumps(scenario.output())
            world.send(stream, {"type": "signal", "execution": execution, "name": "go", "payload": payload})
        for action in scenario.controls:
            world.send(stream, {"type": "control", "action": action, "execution": execution, "reply": "r"})


# ---- what is generated


def _size(draw: Random, most: int, least: int = 1) -> int:
    """A number whose order of magnitude is drawn first, and the most itself now and then."""
    return most if draw.random() < 0.2 else min(most, int(least * (most / least) ** draw.random()) + 1)


def _heavy(draw: Random) -> Any:
    """An expression that takes much work with the inputs of `_inputs`."""
    each = draw.choice(
        [
            {"==": [{"var": ""}, -1]},
            {"some": [{"$literal": [1] * _size(draw, 1_500)}, 0]},
            {"in": [{"cat": ["x", {"var": ""}]}, "y" * _size(draw, 2_000)]},
            {"str.matches": [{"cat": [{"var": ""}, "a" * _size(draw, 500)]}, "(a|aa)+b"]},
            {">": [{"reduce": [[1, 2, 3], {"+": [{"var": "current"}, {"var": "accumulator"}]}, 0]}, 99]},
        ]
    )
    return draw.choice(
        [
            {"some": [{"var": "input.list"}, each]},
            {"!": [{"all": [{"var": "input.list"}, {"!": [each]}]}]},
            {"<": [{"count": [{"filter": [{"var": "input.list"}, each]}]}, 0]},
            {"==": [{"json.dumps": [{"var": "input.list"}]}, {"json.dumps": [{"var": "input.big"}]}]},
            {"in": ["zz", {"cat": [{"map": [{"var": "input.list"}, {"cat": [{"var": ""}, "-"]}]}]}]},
            {"==": [{"list.unique": [{"var": "input.list"}]}, {"list.sort": [{"var": "input.list"}]}]},
            {"var": "input.big"},
        ]
    )


def _nested(draw: Random, most: int = 150) -> Any:
    value: Any = 1
    for _ in range(_size(draw, most)):
        value = draw.choice([[value], {"k": value}])
    return value


def _big(draw: Random, most: int) -> Any:
    """Data of about so many bytes as JSON."""
    size = _size(draw, most, 100)
    kinds: list[Callable[[], Any]] = [
        lambda: "x" * size,
        lambda: "\u017e\n" * (size // 8),
        lambda: list(range(size // 7 + 1)),
        lambda: {f"key{n}": n for n in range(size // 14 + 1)},
        lambda: [[]] * (size // 4 + 1),
        lambda: [{"a": {"b": [1.5, None, True]}}] * (size // 40 + 1),
        lambda: _nested(draw),
    ]
    return draw.choice(kinds)()


def _inputs(draw: Random) -> Json:
    return {"list": list(range(_size(draw, 100_000, 10))), "big": _big(draw, 200_000), "few": [0, 1, 2]}


def _output(draw: Random, most: int) -> Callable[[], Any]:
    """Outputs that are all alike: the same data, or different ones of the same size."""
    data = _big(draw, most)
    return lambda: {"data": data, "ok": True}


def _conditions(draw: Random) -> Scenario:
    def one(n: int) -> Json:
        where = draw.choice(["when", "input", "switch", "key", "filters"])
        rule = _heavy(draw)
        if where == "switch":
            return {"id": f"s{n}", "switch": {"on": {"cat": [{"!": [rule]}]}, "cases": {}, "default": []}}
        keys: Json = {"when": {"when": rule}, "input": {"input": {"x": rule}}}.get(where, {})
        if where == "key":
            keys = {"concurrency": {"key": {"cat": ["k", {"!": [rule]}]}, "limit": 1}}
        if where == "filters":
            keys = {"filters": {"expression": {"!": [rule]}}}
        return step(f"s{n}", on_error="continue", **keys)

    steps = [one(n) for n in range(_size(draw, 60))]
    return Scenario([document(*steps, outputs={"x": _heavy(draw)})] * _size(draw, 20), _inputs(draw))


def _joins(draw: Random) -> Scenario:
    parents = [f"p{n}" for n in range(_size(draw, 1_000, 2))]
    rule = _heavy(draw)
    joins = (
        step(f"j{n}", after=" ".join(parents), join=draw.choice(["done", "any", 2, rule]))
        for n in range(_size(draw, 60))
    )
    steps = [step(one, on_error="continue") for one in parents]
    return Scenario([document(*steps, *joins)], _inputs(draw), at_once=_size(draw, 400))


def _maps(draw: Random) -> Scenario:
    items = list(range(_size(draw, 10_000, 10)))
    keys: Json = draw.choice([{}, {"input": {"x": _heavy(draw)}}, {"output": {"x": _heavy(draw)}}])
    limit: Json = draw.choice([{}, {"max_parallel": _size(draw, 100)}])
    maps = (
        step(f"m{n}", map={"over": {"var": "input.items"}, **limit}, on_error="continue", **keys)
        for n in range(_size(draw, 4))
    )
    inputs = {**_inputs(draw), "items": items}
    controls = draw.choice([(), ("cancel",)])
    return Scenario([document(*maps)], inputs, _output(draw, 2_000), at_once=3_000, controls=controls)


def _fan(draw: Random) -> Scenario:
    count = _size(draw, 10_000, 10)
    keys: Json = draw.choice([{}, {"input": {"x": {"var": "steps.first.output"}}}, {"when": True}])
    middle = [step(f"s{n}", after="first", **keys) for n in range(count)]
    last = step("last", after=" ".join(f"s{n}" for n in range(min(count, 2_000))))
    controls = draw.choice([("cancel",), ("pause", "resume"), ()])
    steps = [step("first"), *middle, last]
    return Scenario([document(*steps)], {}, _output(draw, 50_000), at_once=2_000, controls=controls)


def _results(draw: Random) -> Scenario:
    spec = document(
        *(step(f"s{n}") for n in range(10)), step("z", after="s0 s1", input={"x": {"var": "state"}})
    )
    documents, output, is_cold = [spec] * _size(draw, 40), _output(draw, 1_000_000), draw.random() < 0.3
    return Scenario(documents, {}, output, at_once=_size(draw, 200), is_cold=is_cold)


def _documents(draw: Random) -> Scenario:
    def one(n: int) -> Json:
        steps = [step(f"s{m}", input={"x": _nested(draw, 40)}) for m in range(_size(draw, 500))]
        broken: Json = draw.choice([{}, {}, {"depends_on": "x"}, {f"k{m}": m for m in range(1_000)}])
        return {**document(*steps), "name": f"w{n}", **broken}

    return Scenario([one(n) for n in range(_size(draw, 60))])


def _cold(draw: Random) -> Scenario:
    steps = [step("first"), *(step(f"s{n}", after="first") for n in range(_size(draw, 2_000)))]
    return Scenario([document(*steps)] * _size(draw, 60), {}, is_cold=True, at_once=100)


def _compensations(draw: Random) -> Scenario:
    undo = {"fn": "undo", "input": {"x": {"/": [1, {"if": [_heavy(draw), 0, 0]}]}}}
    steps = [step(f"s{n}", compensate=undo) for n in range(_size(draw, 60))]
    bad = step("bad", after=f"s{len(steps) - 1}", branch=[when(True, "fail")], on_error="fail")
    return Scenario([document(*steps, bad)], _inputs(draw), at_once=30)


def _loops(draw: Random) -> Scenario:
    count = _size(draw, 2_000)
    rest = [step(f"s{n}", after="first") for n in range(count)]
    branch = [when({"var": "ok"}, {"set": "first", "value": "ready"}), when(True, "complete")]
    last = step("last", after="s0", branch=branch)
    spec = document(step("first"), *rest, last, limits={"max_runs": 3})
    return Scenario([spec], {}, _output(draw, 1_000), at_once=_size(draw, 1_000))


def _signals(draw: Random) -> Scenario:
    waits = ({"id": f"w{n}", "wait": {"signal": "go"}, "output": {"x": _heavy(draw)}} for n in range(20))
    return Scenario(
        [document(*waits)] * _size(draw, 20), _inputs(draw), _output(draw, 900_000), signals=_size(draw, 20)
    )


FAMILIES: dict[str, Callable[[Random], Scenario]] = {
    "conditions": _conditions,
    "joins": _joins,
    "maps": _maps,
    "fan": _fan,
    "results": _results,
    "documents": _documents,
    "cold": _cold,
    "compensations": _compensations,
    "loops": _loops,
    "signals": _signals,
}
