"""What one event or one step costs on Redis, in one process: processor time, Python calls, Redis commands,
files. step_cost.py measures a step in memory.

    python -m scripts.benchmarks.cost    prints one JSON object; scripts/bench-pairs runs it in two checkouts

`files` and `hops` follow one event through the coordinator: the files of the package whose functions are
called, and the calls from one file to another.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from scripts.benchmarks import coordinating, growth, rig
from scripts.benchmarks.documents import DIAMOND
from scripts.benchmarks.measuring import Run, count_process
from scripts.benchmarks.processes import start_fleet

SIZE = 300
PACKAGE = f"{Path(__file__).parents[2] / 'orchestrator'}/"

MEASURED: dict[str, tuple[Callable[[], Run], str]] = {
    "alone": (lambda: coordinating.alone(SIZE), "coordinator"),
    "worker": (lambda: growth._measure_workflow("fan", SIZE), "worker"),
}


def measure() -> dict[str, dict[str, float]]:
    """Each is run twice: the profiler that counts calls would distort the time."""
    costs = {}
    for name, (run_once, process) in MEASURED.items():
        run = run_once()
        with profiled_processes():
            calls = run_once().facts[f"calls_{process}"]
        costs[name] = {
            "us": 1e6 * run.cpu_s[process] / run.steps,
            "calls": calls / run.steps,
            "commands": run.commands_each,
            "round_trips": run.round_trips_each,
        }
    return costs | _trace_events()


@contextmanager
def profiled_processes() -> Iterator[None]:
    """Count the Python calls of each measured process, as `calls_<process>` of its run."""

    @contextmanager
    def count(run: Run, process: str = "client") -> Iterator[None]:
        with count_process(run, process), _profile() as calls:
            yield
        name = f"calls_{process}"
        run.facts[name] = run.facts.get(name, 0) + len(calls)

    modules: tuple[Any, ...] = (coordinating, growth, rig)
    for module in modules:
        module.count_process = count
    try:
        yield
    finally:
        for module in modules:
            module.count_process = count_process


@contextmanager
def _profile(record: Callable[[FrameType], object] = lambda frame: True) -> Iterator[list[Any]]:
    """Whatever `record` returns for each Python call while the block runs, without None.

    It must read the callers at once: a frame loses them when it ends.
    """
    records: list[Any] = []

    def on_event(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and (entry := record(frame)) is not None:
            records.append(entry)

    threading.setprofile(on_event)
    sys.setprofile(on_event)
    try:
        yield records
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _trace_events() -> dict[str, dict[str, float]]:
    """One start event, and one result that makes two steps ready."""
    with start_fleet() as fleet:
        system = rig.Rig(fleet.server)
        system.producer.register("diamond", DIAMOND)
        system.start_many("diamond", 3, "warm")
        system.settle(Run.unmeasured())
        system.start_many("diamond", 1, "x")
        start = _trace_one(system)
        system.work()
        return {"start event": start, "result event": _trace_one(system)}


def _trace_one(system: rig.Rig) -> dict[str, float]:
    with _profile(_caller_and_file) as calls:
        while not system.coordinator.run_once():
            calls.clear()
    hops = [(caller, file) for caller, file in calls if caller is not None and caller != file]
    return {"files": len({file for _, file in calls}), "hops": len(hops)}


def _caller_and_file(frame: FrameType) -> tuple[str | None, str] | None:
    """The files of the nearest caller in the package and of the function; None for functions elsewhere."""
    file = frame.f_code.co_filename
    if not file.startswith(PACKAGE) or frame.f_code.co_name.startswith("<"):
        return None
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
        caller = caller.f_back
    return None if caller is None else caller.f_code.co_filename, file


if __name__ == "__main__":
    print(json.dumps(measure()))
