"""The command scripts/bench: its measurements, their default sizes, and their order.

A round runs every measurement once. Rounds are repeated, so that other load on the machine affects all
measurements alike. The results are saved after each measurement, so that an interrupted run is not lost.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

from scripts.benchmarks.coordinating import alone, starts
from scripts.benchmarks.growth import beside_open_executions, growth
from scripts.benchmarks.in_memory import in_memory
from scripts.benchmarks.measuring import Run
from scripts.benchmarks.memory import memory
from scripts.benchmarks.peers import peers
from scripts.benchmarks.processes import STOCK
from scripts.benchmarks.reports import WORKLOADS, report
from scripts.benchmarks.results import Results
from scripts.benchmarks.step_cost import step_cost
from scripts.benchmarks.workflows import JOBS, cold, measure_rq, through_processes, two

Measurement = Callable[[], list[Run]]
DEFAULT_SIZES = {
    "chain": 200,
    "fan": 500,
    "many": 500,
    "two": 500,
    "cold": 1,
    "alone": 2_000,
    "starts": 10_000,
    "memory": 1_000,
    "in_memory": 500,
    "step_cost": 12,
    "growth": 10_000,
    "open": 100_000,
}
OTHERS: dict[str, Callable[[int], list[Run]]] = {
    "two": two,
    "cold": lambda _: [cold()],
    "alone": lambda size: [alone(size)],
    "starts": starts,
    "memory": lambda size: [memory(size)],
    "in_memory": in_memory,
    "step_cost": step_cost,
    "growth": growth,
    "open": beside_open_executions,
}


def measurements(sizes: dict[str, int], jobs: int | None, aof: bool) -> Iterator[tuple[str, Measurement]]:
    """Return the measurements of one round by name. Workloads with processes run next to the RQ reference."""
    through = [(name, size) for name, size in sizes.items() if name in WORKLOADS]
    if through:
        for kind, default in JOBS.items():
            yield f"rq {kind}", partial(measure_rq, kind, jobs or default)
        yield "workflows", partial(through_processes, through)
        if aof:
            yield "workflows with an append-only file", partial(through_processes, through, aof=True)
        many = [(name, size) for name, size in through if name == "many"]
        if many:
            yield "many by rq worker", partial(through_processes, many, STOCK)
    for name, measure in OTHERS.items():
        if name in sizes:
            yield name, partial(measure, sizes[name])


def measure(results: Results, number: int, name: str, measurement: Measurement) -> None:
    began = time.monotonic()
    try:
        results.runs += measurement()
    except Exception as error:  # the other measurements are still valid
        results.failures.append(f"{name}, round {number}: {type(error).__name__}: {error}")
    print(f"round {number}: {name}, {time.monotonic() - began:.1f} s", file=sys.stderr)


def machine() -> dict[str, str]:
    redis = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
    return {
        "Python": platform.python_version(),
        "redis-server": redis.partition("v=")[2].split()[0],
        "rq": version("rq"),
        "redis-py": version("redis"),
        "processors": str(os.cpu_count()),
    }


def parse_size(argument: str) -> tuple[str, int]:
    name, _, size = argument.partition("=")
    if name not in DEFAULT_SIZES:
        raise argparse.ArgumentTypeError(f"no measurement {name!r}; there are {', '.join(DEFAULT_SIZES)}")
    if size and not (size.isdecimal() and int(size)):
        raise argparse.ArgumentTypeError(f"the size of {name} must be a number above 0, not {size!r}")
    return name, int(size) if size else DEFAULT_SIZES[name]


def options(description: str = "") -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("measurements", nargs="*", type=parse_size, metavar="NAME[=SIZE]")
    parser.add_argument("--runs", type=int, default=5, help="number of rounds (default: 5)")
    parser.add_argument(
        "--jobs", type=int, help="number of RQ jobs to compare with (default: 2,000, and 200 with forks)"
    )
    parser.add_argument("--aof", action="store_true", help="also measure workflows with an append-only file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the results to this file")
    parser.add_argument("--report", type=Path, metavar="FILE", help="print the tables of a saved file")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="folder of the side-by-side benchmark")
    return parser


def main(description: str, args: Sequence[str] | None = None) -> int:
    arguments = options(description).parse_args(args)
    if arguments.report is not None:
        print(report(Results.read(arguments.report)))
        return 0
    logging.disable(logging.CRITICAL)  # the cost of logging depends on its destination
    sizes, results = dict(arguments.measurements) or DEFAULT_SIZES, Results(machine())

    def save() -> None:
        if arguments.json is not None:
            results.write(arguments.json)

    for number in range(1, arguments.runs + 1):
        for name, measurement in measurements(sizes, arguments.jobs, arguments.aof):
            measure(results, number, name, measurement)
            save()
    if arguments.peers is not None:
        plan = {name: sizes.get(name, DEFAULT_SIZES[name]) for name in WORKLOADS}
        for row in peers(arguments.peers, plan, arguments.runs):
            results.peers.append(row)
            save()
    print(report(results))
    return 1 if results.failures else 0
