"""The performance targets of this project: each is a figure of the results and its bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scripts.benchmarks.measuring import Run
from scripts.benchmarks.processes import OURS, STOCK
from scripts.benchmarks.results import Figure, Results, ratio

Value = Callable[[Results], float | None]
OUR_PEER = "orchestrator-2w"


@dataclass(frozen=True)
class Target:
    what: str
    value: Value
    minimum: float | None = None
    maximum: float | None = None
    format: str = "{:,.2f} ×"

    @property
    def bound(self) -> str:
        return (
            f"≥ {self.format.format(self.minimum)}"
            if self.minimum is not None
            else f"≤ {self.format.format(self.maximum)}"
        )

    def is_met(self, value: float) -> bool:
        return (self.minimum is None or value >= self.minimum) and (
            self.maximum is None or value <= self.maximum
        )

    def cells(self, results: Results) -> tuple[str, str, str, str]:
        value = self.value(results)
        if value is None:
            return self.what, "not measured", self.bound, ""
        return self.what, self.format.format(value), self.bound, "yes" if self.is_met(value) else "**no**"


def per_s(run: Run) -> float:
    return run.per_s


def commands(run: Run) -> float:
    return run.commands_each


def round_trips(run: Run) -> float:
    return run.round_trips_each


def cpu_ms(run: Run) -> float:
    return run.cpu_ms_each()


def fact(name: str) -> Figure:
    return lambda run: run.facts[name]


def _beside_rq(workload: str, kind: str, system: str = OURS) -> Value:
    return lambda results: ratio(
        results.figure(workload, system, per_s), results.figure("jobs", f"rq {kind}", per_s)
    )


def _beside_peer(workload: str, peer: str) -> Value:
    return lambda results: ratio(results.peer(OUR_PEER, workload), results.peer(peer, workload))


def _hand_off_beside(peer: str) -> Value:
    return lambda results: ratio(results.peer(peer, "chain"), results.peer(OUR_PEER, "chain"))


def _grown(workload: str, system: str, of: Figure) -> Value:
    return lambda results: ratio(
        results.figure(workload, system, of), results.figure(workload, system, of, smallest=True)
    )


def _figure(workload: str, system: str, of: Figure) -> Value:
    return lambda results: results.figure(workload, system, of)


def _with_aof(workload: str) -> Value:
    return lambda results: ratio(
        results.figure(workload, OURS, per_s, aof=True), results.figure(workload, OURS, per_s)
    )


def _with_two(workload: str) -> Value:
    return lambda results: ratio(
        results.figure(workload, "2 coordinators", cpu_ms), results.figure(workload, "1 coordinator", cpu_ms)
    )


def _conflicts(run: Run) -> float:
    return 100 * run.facts["conflicts"] / run.facts["commits"]


def _targets() -> Iterator[Target]:
    yield Target("many, steps/s beside jobs/s of RQ's SimpleWorker", _beside_rq("many", "SimpleWorker"), 4.0)
    for peer, minimum in (
        ("dramatiq-2p8t", 1.5),
        ("streaq-2w", 2.0),
        ("taskiq-2w", 2.0),
        ("huey-process2", 1.0),
    ):
        yield Target(f"many, steps/s beside {peer}", _beside_peer("many", peer), minimum)
    yield Target("fan, steps/s beside jobs/s of RQ's SimpleWorker", _beside_rq("fan", "SimpleWorker"), 3.0)
    yield Target("fan, steps/s beside streaq-2w", _beside_peer("fan", "streaq-2w"), 1.5)
    for peer, maximum in (
        ("streaq-2w", 0.5),
        ("celery-prefork2", 0.5),
        ("dbos-pg", 0.5),
        ("huey-process2", 1.0),
    ):
        yield Target(f"chain, time of a hand-off beside {peer}", _hand_off_beside(peer), maximum=maximum)
    stock = _beside_rq("many", "Worker", STOCK)
    yield Target("many by stock `rq worker`s that fork, beside jobs/s of the same", stock, 0.85)
    alone = _figure("alone", "coordinator", fact("events_per_cpu_s"))
    yield Target("coordinator alone, events in a second of its processor", alone, 8_000, format="{:,.0f}")
    yield Target(
        "in memory, many, steps/s beside runfox",
        lambda results: ratio(
            results.figure("in memory: many", "Workflow.run()", per_s),
            results.figure("in memory: many", "runfox", per_s),
        ),
        10.0,
    )
    flat = _grown("in memory: chain", "Workflow.run()", cpu_ms)
    yield Target(
        "in memory, processor time of a step in a chain of 1,000, to that of 100", flat, maximum=1.25
    )
    for shape in ("chain", "fan"):
        for what, figure in (("commands", commands), ("processor time", cpu_ms)):
            grown = _grown(f"growth: {shape}", "in one process", figure)
            yield Target(f"growth, {what} of a step in a large {shape}, to those of 100", grown, maximum=1.25)
    for what, figure in (("commands", commands), ("processor time", cpu_ms)):
        grown = _grown("open", "coordinator", figure)
        yield Target(f"growth, {what} of a step beside many open executions, to 100", grown, maximum=1.1)
    for workload in ("many", "fan", "chain"):
        counted = _figure(workload, OURS, commands)
        yield Target(
            f"{workload}, Redis commands for a step, in all", counted, maximum=15.0, format="{:,.1f}"
        )
    for workload in ("many", "fan"):
        trips = _figure(workload, OURS, round_trips)
        yield Target(f"{workload}, round trips for a step", trips, maximum=4.0, format="{:,.1f}")
    for name, description, maximum in (
        ("settled_step", "a settled step of 1,000, without its history", 1_200.0),
        ("queued_job", "a job that waits", 900.0),
    ):
        bytes_each = _figure("memory", "redis", fact(name))
        yield Target(f"memory of Redis for {description}", bytes_each, maximum=maximum, format="{:,.0f} B")
    for workload in ("many", "fan", "chain"):
        yield Target(f"{workload} with an append-only file, to without", _with_aof(workload), 0.85)
    for workload in ("fan", "many"):
        found = _figure(f"two: {workload}", "2 coordinators", _conflicts)
        yield Target(
            f"{workload} by two coordinators, conflicts of 100 commits", found, maximum=2.0, format="{:,.2f}"
        )
        yield Target(
            f"{workload} by two, processor time of a step, to one", _with_two(f"two: {workload}"), maximum=1.1
        )


TARGETS = tuple(_targets())
