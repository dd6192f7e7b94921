"""Prints the results as tables. The tables in docs/performance.md come from here."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from scripts.benchmarks.measuring import Run
from scripts.benchmarks.processes import OURS
from scripts.benchmarks.results import Results, ratio
from scripts.benchmarks.tables import table
from scripts.benchmarks.targets import OUR_PEER, TARGETS, per_s

WORKLOADS = ("chain", "fan", "many")


def report(results: Results) -> str:
    return "\n\n".join(_parts(results))


def _parts(results: Results) -> Iterator[str]:
    machine, rounds = results.machine, max(map(len, results.groups().values()), default=0)
    yield f"{', '.join(f'{what} {which}' for what, which in machine.items())}; medians of {rounds} runs."
    yield "## Targets\n\n" + table(
        ("what", "measured", "target", "met"), [target.cells(results) for target in TARGETS]
    )
    yield "## Figures\n\n" + _figures(results)
    if any(run.facts for run in results.runs):
        yield "## Further figures\n\n" + _facts(results)
    if any(run.aof for run in results.runs):
        yield "## With an append-only file\n\n" + _aof(results)
    if results.peers:
        yield "## Peers\n\n" + _peers(results)
    if results.failures:
        yield "## Not measured\n\n" + "\n".join(f"- {one}" for one in results.failures)


def _figures(results: Results) -> str:
    header = (
        "workload",
        "by",
        "n",
        "per second",
        "× RQ",
        "ms each",
        "commands",
        "round trips",
        "processor ms each",
    )
    rq_rate = results.figure("jobs", "rq SimpleWorker", per_s)
    rows = []
    for (workload, size, system, aof), runs in results.groups().items():
        middle = sorted(runs, key=lambda one: one.seconds)[len(runs) // 2]
        rate = statistics.median(map(per_s, runs))
        if not aof and rate:
            reference = rq_rate if workload.removeprefix("two: ") in (*WORKLOADS, "jobs") else None
            rows.append(
                (f"{workload} of {size:,}", system, f"{middle.steps:,}", *_cells(middle, rate, reference))
            )
    return table(header, rows)


def _cells(run: Run, rate: float, reference: float | None) -> tuple[str, ...]:
    factor = ratio(rate, reference)
    spent = ", ".join(f"{kind} {1000 * cpu / run.steps:.2f}" for kind, cpu in sorted(run.cpu_s.items()))
    return (
        f"{rate:,.0f}",
        "" if factor is None else f"{factor:.2f}",
        f"{1000 / rate:.2f}",
        f"{run.commands_each:.1f}",
        f"{run.round_trips_each:.2f}",
        spent,
    )


def _facts(results: Results) -> str:
    rows = []
    for (workload, size, system, aof), runs in results.groups().items():
        for name in [] if aof else runs[0].facts:
            found = statistics.median(run.facts[name] for run in runs)
            rows.append((f"{workload} of {size:,}", system, name.replace("_", " "), f"{found:,.0f}"))
    return table(("workload", "by", "what", "median"), rows)


def _aof(results: Results) -> str:
    rows = []
    for workload in WORKLOADS:
        without, having = (results.figure(workload, OURS, per_s, aof=aof) for aof in (False, True))
        if without and having:
            rows.append((workload, f"{without:,.0f}", f"{having:,.0f}", f"{having / without:.2f}"))
    return table(("workload", "steps/s without", "steps/s with", "ratio"), rows)


def _peers(results: Results) -> str:
    """Compare with peers. A ratio above 1 means that this project was faster by that factor."""
    header = (
        "system",
        "chain ms/step",
        "fan steps/s",
        "many steps/s",
        "ours × chain",
        "ours × fan",
        "ours × many",
    )
    rows = []
    for system in dict.fromkeys(row["config"] for row in results.peers):
        rates = [results.peer(system, workload) for workload in WORKLOADS]
        ours = [ratio(results.peer(OUR_PEER, one), rate) for one, rate in zip(WORKLOADS, rates, strict=True)]
        cells = [_figure(rates[0] and 1000 / rates[0], 2), *(_figure(rate, 0) for rate in rates[1:])]
        rows.append((system, *cells, *(_figure(one, 2) for one in ours)))
    failed = {
        f"- {row['config']}, {row['workload']}: {row.get('error') or row.get('skipped') or row.get('got')}"
        for row in results.peers
        if row.get("ok") is False or row.get("skipped")
    }
    return "\n\n".join(
        [table(header, rows), *(["Not measured:\n\n" + "\n".join(sorted(failed))] if failed else [])]
    )


def _figure(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
