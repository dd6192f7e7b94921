"""The command behind scripts/torture."""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys

from torture.fleet import ROLES
from torture.nemesis import Nemesis
from torture.partition import is_possible, partition
from torture.run import PROCESSES, Report, torture
from torture.sqlite_run import SqliteReport, torture_sqlite


def main() -> int:
    logging.getLogger("rq").addHandler(logging.NullHandler())  # it would log the jobs that we clean up
    arguments = options().parse_args()
    if arguments.partition is not None:
        return _partition(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    if arguments.sqlite:
        report: Report | SqliteReport = torture_sqlite(arguments.minutes, seed)
    else:
        processes = arguments.processes or PROCESSES[arguments.workers]
        report = torture(arguments.minutes, seed, processes, arguments.appendfsync, arguments.fault)
    print(json.dumps(report.as_dict()) if arguments.json else "\n".join(report.lines()))
    return 1 if report.broken else 0


def _partition(arguments: argparse.Namespace) -> int:
    if not is_possible():
        print("network namespaces need root and the command ip (apt-get install iproute2)", file=sys.stderr)
        return 2
    found = partition(arguments.partition, "concurrent" if arguments.workers == "concurrent" else "ours")
    print(json.dumps(vars(found)) if arguments.json else "\n".join(found.lines()))
    return 1 if found.broken else 0


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/torture",
        description="Run real processes under faults and check invariants. Exit code 1: one is broken.",
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="duration of the faults (default: 1)")
    parser.add_argument("--seed", type=int, help="seed of the faults (default: random)")
    parser.add_argument(
        "--sqlite", action="store_true", help="instead, kill processes that work on one SQLite file"
    )
    parser.add_argument("--workers", choices=sorted(PROCESSES), default="mixed", help="kinds of workers")
    parser.add_argument(
        "--processes",
        type=_parse_counts,
        metavar="ROLE=N,...",
        help=f"number of processes of each role: {', '.join(ROLES)}",
    )
    parser.add_argument("--appendfsync", choices=["always", "everysec"], help="default: chosen by the seed")
    parser.add_argument(
        "--fault",
        action="append",
        choices=[name for _, name in Nemesis.TABLE],
        metavar="NAME",
        default=[],
        help=f"inject only this fault; can be repeated: {', '.join(name for _, name in Nemesis.TABLE)}",
    )
    parser.add_argument(
        "--partition",
        type=float,
        nargs="?",
        const=40.0,
        metavar="SECONDS",
        help="instead, disconnect a worker and a coordinator from Redis in network namespaces (default: 40)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def _parse_counts(text: str) -> dict[str, int]:
    counts = dict(part.split("=", 1) for part in text.split(","))
    if unknown := counts.keys() - set(ROLES):
        raise argparse.ArgumentTypeError(f"unknown role: {', '.join(sorted(unknown))}")
    return {role: int(counts[role]) for role in ROLES if role in counts}


if __name__ == "__main__":
    sys.exit(main())
