"""How scripts/matrix finds Pythons and servers, and that a row names what has really run."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.compatibility import pythons, servers
from scripts.compatibility.combinations import Combination, CombinationError, Laboratory
from scripts.compatibility.command import QUICK, ROOT, find_pythons, find_servers, parse
from scripts.compatibility.pythons import Python
from scripts.compatibility.report import EXIT_MISSING
from scripts.compatibility.servers import Server
from servers.redis_server import require_redis_server

THIS_PYTHON = Python(platform.python_version(), sys.executable)
A_TEST = "def test_which_passes():\n    assert True\n"


def program(path: Path, output: str, exit_code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{output}'\nexit {exit_code}\n")
    path.chmod(0o755)
    return path


def laboratory(folder: Path, *tests: str) -> Laboratory:
    return Laboratory(ROOT, folder / "cache", tests, processes=1, max_minutes=1)


def this_server() -> Server:
    require_redis_server()
    found = servers.probe(Path(shutil.which("redis-server") or ""))
    assert found is not None
    return found


# ---- Pythons


def test_a_shim_that_does_not_run_is_passed_over_for_a_version_of_pyenv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "shims" / "python3.13", "pyenv: python3.13: command not found", 127)
    program(tmp_path / "versions" / "3.13.2" / "bin" / "python", "3.13.2 /of/3.13.2")
    newest = program(tmp_path / "versions" / "3.13.10" / "bin" / "python", "3.13.10 /of/3.13.10")
    monkeypatch.setenv("PATH", str(tmp_path / "shims"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))

    assert pythons.find_python("3.13") == Python("3.13.10", "/of/3.13.10")
    assert pythons.find_python("3.13.2") == Python("3.13.2", "/of/3.13.2")
    assert pythons.find_python("3.1") is None
    assert pythons.find_python(str(newest)) == Python("3.13.10", "/of/3.13.10")


def test_a_python_that_is_not_there_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))

    assert find_pythons(["3.14", sys.executable]) == ([THIS_PYTHON], ["Python 3.14"])


# ---- servers


def test_a_server_tells_its_name_and_version(tmp_path: Path) -> None:
    valkey = program(tmp_path / "valkey-server", "Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64")
    redis = program(tmp_path / "redis-server", "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1")

    assert servers.probe(valkey) == Server("valkey", "9.1.2", valkey)
    assert servers.probe(redis) == Server("redis", "7.0.15", redis)
    assert servers.probe(program(tmp_path / "other", "nginx version: 1.27")) is None
    assert servers.probe(tmp_path / "nothing") is None


def test_a_family_is_missing_unless_a_server_is_of_it() -> None:
    found = [Server("redis", "7.0.15", Path()), Server("redis", "60.2.1", Path())]

    assert servers.missing_servers(found, ["redis 6", "redis 7", "redis 7.0", "redis 7.1", "valkey 7"]) == [
        "redis 6",
        "redis 7.1",
        "valkey 7",
    ]


def test_a_server_under_two_names_is_one(tmp_path: Path) -> None:
    other, first, old = (Server("redis", v, tmp_path / v) for v in ("7.0.15", "7.0.15", "6.2.14"))

    assert servers.distinct([other, None, first, old]) == [old, other]


def test_a_given_server_that_does_not_run_is_missing(tmp_path: Path) -> None:
    good = program(tmp_path / "good", "Redis server v=8.0.6 sha=0")

    found = find_servers([str(good), str(tmp_path / "bad")], [], laboratory(tmp_path))

    assert found == ([Server("redis", "8.0.6", good)], [str(tmp_path / "bad")])


# ---- combinations


def test_the_tests_run_on_the_server_of_the_row(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(A_TEST)
    combination = Combination(THIS_PYTHON, this_server())

    row = laboratory(tmp_path, str(tmp_path / "test_it.py")).run_in(Path(sys.prefix), combination)

    assert (row.python, row.server) == (platform.python_version(), str(this_server()))
    assert (row.counts.passed, row.counts.failed, row.result) == (1, 0, "passed")
    assert row.rq.startswith("2.")


def test_a_failing_test_fails_the_row(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(A_TEST.replace("True", "False"))
    combination = Combination(THIS_PYTHON, this_server())

    row = laboratory(tmp_path, str(tmp_path / "test_it.py")).run_in(Path(sys.prefix), combination)

    assert (row.counts.passed, row.counts.failed, row.result) == (0, 1, "failed")
    assert [name.rpartition("::")[2] for name in row.counts.failures] == ["test_which_passes"]


def test_another_server_than_that_of_the_row_is_an_error(tmp_path: Path) -> None:
    combination = Combination(THIS_PYTHON, replace(this_server(), version="99.0.0"))

    with pytest.raises(CombinationError, match=f"on server {this_server()} instead of redis 99"):
        laboratory(tmp_path, "nothing").run_in(Path(sys.prefix), combination)


def test_tests_that_cannot_be_collected_are_an_error(tmp_path: Path) -> None:
    combination = Combination(THIS_PYTHON, this_server())

    with pytest.raises(CombinationError, match=r"pytest ended with code [45]"):
        laboratory(tmp_path, str(tmp_path / "nothing.py")).run_in(Path(sys.prefix), combination)


def test_an_environment_that_cannot_be_made_is_an_error_of_its_row(tmp_path: Path) -> None:
    broken = program(tmp_path / "python", "there is no module venv", 1)

    row = laboratory(tmp_path).run(
        Combination(Python("3.14.0", str(broken)), Server("redis", "8.0.6", Path()))
    )

    assert row.result == "error"
    assert "-m venv --clear: exit code 1: there is no module venv" in row.problem


# ---- the command


def test_nothing_found_is_never_a_pass() -> None:
    options = ["--python", "/no/python", "--server", "/no/server", "--allow-missing"]

    run = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "matrix"), *options], capture_output=True, text=True
    )

    assert run.returncode == EXIT_MISSING, run.stderr
    assert run.stdout.splitlines() == [
        *("No combination was run.", "", "MISSING, and so not run:", "  Python /no/python", "  /no/server")
    ]


def test_the_quick_tests_are_there() -> None:
    assert not [path for path in QUICK if not (ROOT / path).exists()]
    with pytest.raises(SystemExit):
        parse(["--quick", "tests/worker"])
