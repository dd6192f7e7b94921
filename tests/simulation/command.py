"""The command that plays many simulations: `scripts/simulate`.

Exit code 0 when all went well, 1 when one did not (its seed, its document and what happened are printed, and
how to see it again), 2 when it was called wrongly. With --mutant a fence is missing: then it is 0 when a
simulation notices, and 1 when none does.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import fields

from simulation.mutants import MUTANTS
from simulation.simulation import SERVERS, Failure, Report, Stage, simulate

CHUNK = 20
"""How many seeds one process plays at a time."""

RARELY = (100_000, 50, 100)
"""A world is gone with its last actor: to look for what is left all the time costs more than it frees."""

Job = tuple[str, str | None, int, int]


def main(arguments: Sequence[str] | None = None) -> int:
    gc.set_threshold(*RARELY)
    given = _parser().parse_args(arguments)
    if given.story:
        print(*_stories(range(given.first, given.first + given.seeds), given.level), sep="\n")
        return 0
    began, total = time.monotonic(), Report()
    last = given.first + given.seeds
    jobs: list[Job] = [
        (given.level, given.mutant, first, min(first + CHUNK, last))
        for first in range(given.first, last, CHUNK)
    ]
    for report, failure in _played(jobs, given.processes):
        total.add(report)
        if failure is not None:
            print(failure if given.mutant is None or given.whole else failure.splitlines()[0])
            _print(total, time.monotonic() - began, given.json)
            return int(given.mutant is None)
    _print(total, time.monotonic() - began, given.json)
    if given.mutant is not None:
        print(f"{given.mutant!r} was not noticed in {given.seeds} seeds", file=sys.stderr)
    return int(given.mutant is not None)


def _played(jobs: Sequence[Job], processes: int) -> Iterator[tuple[Report, str | None]]:
    if processes == 1:
        yield from map(_play, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(processes, gc.set_threshold, RARELY) as pool:
        yield from pool.imap(_play, jobs)


def _play(job: Job) -> tuple[Report, str | None]:
    """What happened in some seeds, up to the first that failed."""
    level, mutant, first, last = job
    total = Report()
    with nullcontext() if mutant is None else MUTANTS[mutant].alive():
        for seed in range(first, last):
            try:
                total.add(simulate(seed, level))
            except Failure as failure:
                return total, str(failure)
    return total, None


def _stories(seeds: Iterable[int], level: str) -> Iterator[str]:
    """What happened last in each of these seeds."""
    for seed in seeds:
        stage = Stage(seed, SERVERS[level])
        stage.play()
        yield from stage.world.traced


def _print(total: Report, took_s: float, as_json: bool) -> None:
    if as_json:
        counts = {one.name: getattr(total, one.name) for one in fields(total)}
        print(json.dumps({**counts, "took_s": round(took_s, 1)}))
        return
    print(f"{total.seeds:,} seeds in {took_s:.0f} s, {total.seeds / max(took_s, 0.001):.1f} a second")
    print(f"{sum(total.faults.values()):,} faults: {_listed(total.faults)}")
    print(f"{total.executions:,} executions ended: {_listed(total.ended)}")
    print(
        f"{total.jobs:,} runs of steps, {total.counters['lost']:,} dispatches lost,"
        f" {total.counters['declined']:,} declined,"
        f" {total.counters['stale']:,} results and other events refused as stale,"
        f" {total.counters['late']:,} as late, {total.counters['dead']:,} dead letters"
    )
    print(f"{total.points:,} points of interleaving, {total.seconds / 3600:,.1f} simulated hours")


def _listed(counts: dict[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{count:,} {name}" for name, count in ordered)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description="Play simulations, seed by seed.")
    parser.add_argument("--seeds", type=int, default=1_000, metavar="N", help="how many; 1000 if not given")
    parser.add_argument("--from", type=int, default=0, metavar="SEED", dest="first", help="the first of them")
    parser.add_argument(
        "--level", choices=sorted(SERVERS), default="memory", help="over which Redis; memory if not given"
    )
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with this fence taken away")
    parser.add_argument("--processes", type=int, default=1, metavar="P", help="so many at a time")
    parser.add_argument("--whole", action="store_true", help="all of what happened, of a mutant too")
    parser.add_argument("--story", action="store_true", help="only play, and tell what happened last")
    parser.add_argument("--json", action="store_true", help="what happened, as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
