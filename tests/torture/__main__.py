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
from torture.run import PROCESSES, torture


def main() -> int:
    logging.getLogger("rq").addHandler(logging.NullHandler())  # it would tell of what we clear away
    given = options().parse_args()
    if given.partition is not None:
        return _partition(given)
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    processes = given.processes or PROCESSES[given.workers]
    report = torture(given.minutes, seed, processes, given.appendfsync, given.fault)
    print(json.dumps(report.as_dict()) if given.json else "\n".join(report.lines()))
    return 1 if report.broken else 0


def _partition(given: argparse.Namespace) -> int:
    if not is_possible():
        print("network namespaces need root, and the command ip (apt-get install iproute2)", file=sys.stderr)
        return 2
    found = partition(given.partition, "crew" if given.workers == "crew" else "ours")
    print(json.dumps(vars(found)) if given.json else "\n".join(found.lines()))
    return 1 if found.broken else 0


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/torture",
        description="Torture a system of real processes, and judge it. Exit code 1: an invariant is broken.",
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="how long faults go on; 1 unless given")
    parser.add_argument("--seed", type=int, help="which faults are drawn; by default any")
    parser.add_argument(
        "--workers", choices=sorted(PROCESSES), default="mixed", help="which kinds of workers"
    )
    parser.add_argument(
        "--processes", type=_counts, metavar="ROLE=N,...", help=f"how many of each role: {', '.join(ROLES)}"
    )
    parser.add_argument("--appendfsync", choices=["always", "everysec"], help="by default the seed decides")
    parser.add_argument(
        "--fault",
        action="append",
        choices=[name for _, name in Nemesis.TABLE],
        metavar="NAME",
        default=[],
        help=f"only this one, may be given again: {', '.join(name for _, name in Nemesis.TABLE)}",
    )
    parser.add_argument(
        "--partition",
        type=float,
        nargs="?",
        const=40.0,
        metavar="SECONDS",
        help="instead: cut a worker and a coordinator off from Redis, in network namespaces; 40 unless given",
    )
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    return parser


def _counts(text: str) -> dict[str, int]:
    counts = dict(part.split("=", 1) for part in text.split(","))
    if unknown := counts.keys() - set(ROLES):
        raise argparse.ArgumentTypeError(f"no such role: {', '.join(sorted(unknown))}")
    return {role: int(counts[role]) for role in ROLES if role in counts}


if __name__ == "__main__":
    sys.exit(main())
