"""Runs the tests for one combination of a Python, a server and versions of rq and redis-py.

Each Python with its versions of rq and redis-py has an environment of its own, in a cache folder. The server
stands first on the PATH, under the name redis-server, which is where the tests look for it. Before the tests,
a probe starts it as they do, and reads from it what it is: a row of the table never names a version that was
not seen to run.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.compatibility.pythons import Python
from scripts.compatibility.report import Row, read_counts
from scripts.compatibility.servers import Server, link_as_redis_server

EXTRAS = "dev,embedded"
PROBE = """
import json, platform, subprocess, tempfile
from importlib.metadata import version
from pathlib import Path

from orchestrator.embedded import find_redis_server
from servers.redis_server import own_redis

with tempfile.TemporaryDirectory() as folder, own_redis(Path(folder)) as server, server.client() as client:
    info = client.info("server")
print(json.dumps({
    "python": platform.python_version(),
    "server": f"{info.get('server_name', 'redis')} {info.get('valkey_version') or info['redis_version']}",
    "embedded": find_redis_server(),
    "rq": version("rq"),
    "redis_py": version("redis"),
}))
"""
PROBE_TIMEOUT_S = 60.0


class CombinationError(Exception):
    """The tests of a combination could not be run to their end."""


@dataclass(frozen=True, slots=True)
class Combination:
    python: Python
    server: Server
    rq: str | None = None
    redis_py: str | None = None

    def __str__(self) -> str:
        versions = [f"Python {self.python.version}", str(self.server)]
        versions += [f"rq {self.rq}"] if self.rq else []
        versions += [f"redis-py {self.redis_py}"] if self.redis_py else []
        return ", ".join(versions)

    @property
    def file_name(self) -> str:
        return str(self).replace(", ", "_").replace(" ", "-")

    @property
    def row(self) -> Row:
        """The row of it before anything has run."""
        return Row(self.python.version, str(self.server), self.rq or "-", self.redis_py or "-")

    @property
    def pins(self) -> list[str]:
        """What is installed instead of the newest versions that pyproject.toml allows."""
        pins = {"rq": self.rq, "redis": self.redis_py}
        return [f"{name}=={version}" for name, version in pins.items() if version]


@dataclass(frozen=True, slots=True)
class Laboratory:
    """The checkout, the cache folder, and how the tests are run."""

    root: Path
    cache: Path
    tests: Sequence[str]
    processes: int
    max_minutes: float

    def run(self, combination: Combination) -> Row:
        """Try one combination. A problem on the way is part of the row, and never a pass."""
        started = time.monotonic()
        try:
            row = self.run_in(self.make_environment(combination.python, combination.pins), combination)
        except CombinationError as error:
            row = replace(combination.row, problem=str(error))
        return replace(row, seconds=time.monotonic() - started)

    def make_environment(self, python: Python, pins: Sequence[str]) -> Path:
        """The folder of an environment with this project; made anew when its dependencies have changed."""
        folder = self.cache / "_".join([python.version, *(pin.replace("==", "-") for pin in pins)])
        project = tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        stamp = hashlib.sha256(json.dumps([project, python.path, *pins]).encode()).hexdigest()
        file = folder / "installed"
        if not (file.exists() and file.read_text() == stamp):
            _call([python.path, "-m", "venv", "--clear", str(folder)], self.root)
            pip = [*pip_of(folder), "install", "-qq"]
            _call([*pip, "--editable", f".[{EXTRAS}]"], self.root)
            if pins:  # a second call: the project itself may not allow these versions
                _call([*pip, *pins], self.root)
            file.write_text(stamp)
        return folder

    def run_in(self, environment: Path, combination: Combination) -> Row:
        """Run the tests in an environment that is made already."""
        links = link_as_redis_server(combination.server, self.cache / "servers")
        variables = self._variables(environment, links)
        row = self._probe(combination.row, environment, links, variables)
        logs = self.cache / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / f"{combination.file_name}.log"
        report = log.with_suffix(".xml")
        report.unlink(missing_ok=True)
        # fmt: off
        command = [
            python_of(environment), "-m", "pytest", "-q", *self.tests, "-n", str(self.processes),
            "--dist", "loadfile", "--no-loadscope-reorder", "-p", "no:cacheprovider", f"--junitxml={report}",
        ]
        # fmt: on
        code = _run_until(command, self.root, variables, log, self.max_minutes * 60)
        if not report.exists():
            raise CombinationError(f"pytest ended with code {code} and without a report: see {log}")
        counts = read_counts(report.read_text(encoding="utf-8"))
        if code != (1 if counts.failed else 0):
            raise CombinationError(f"pytest ended with code {code}: see {log}")
        return replace(row, counts=counts)

    def _probe(self, row: Row, environment: Path, links: Path, variables: dict[str, str]) -> Row:
        """The row with the versions that really run; an error unless the server is the one of this row."""
        command = [python_of(environment), "-c", PROBE]
        variables = {**variables, "PYTHONPATH": os.pathsep.join([str(self.root / "tests"), str(self.root)])}
        found = json.loads(_call(command, self.root, variables, PROBE_TIMEOUT_S).splitlines()[-1])
        expected = {"python": row.python, "server": row.server, "embedded": str(links / "redis-server")}
        for name, value in expected.items():
            if found[name] != value:
                raise CombinationError(f"the tests would run on {name} {found[name]} instead of {value}")
        return replace(row, rq=found["rq"], redis_py=found["redis_py"])

    def _variables(self, environment: Path, links: Path) -> dict[str, str]:
        dropped = {"PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "FORCE_COLOR"}
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        return {
            **kept,
            "PATH": os.pathsep.join([str(links), os.environ["PATH"]]),
            "ORCHESTRATOR_REQUIRE_REDIS": "1",
            "VENV": str(environment),  # scripts that the tests call use this environment too
            "NO_COLOR": "1",
        }


def python_of(environment: Path) -> str:
    return str(environment / "bin" / "python")


def pip_of(environment: Path) -> list[str]:
    return [python_of(environment), "-m", "pip", "--disable-pip-version-check"]


def _call(
    command: Sequence[str],
    folder: Path,
    variables: dict[str, str] | None = None,
    timeout_s: float | None = None,
) -> str:
    try:
        run = subprocess.run(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CombinationError(f"{Path(command[0]).name}: {error}") from error
    if run.returncode:
        words = " ".join(command[1:4])
        raise CombinationError(f"{words}: exit code {run.returncode}: {_last_line(run.stderr or run.stdout)}")
    return run.stdout


def _run_until(
    command: Sequence[str], folder: Path, variables: dict[str, str], log: Path, timeout_s: float
) -> int:
    """The exit code of a command whose output goes to a file. Its processes are killed after the timeout."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise CombinationError(f"not done after {timeout_s / 60:g} minutes: see {log}") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no output").strip()
