"""The systemd units in docs/deploy: systemd accepts them, they fit the command line, and have few rights."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deployment.command_lines import check_command
from orchestrator.application.spec.model import DEFAULT_TIMEOUT_S
from orchestrator.settings import STOP_GRACE_S

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "deploy" / "systemd"
UNITS = ["orchestrator-coordinator.service", "orchestrator-web.service", "orchestrator-worker@.service"]
PROGRAM = "/opt/orchestrator/bin/orchestrator"
MAX_EXPOSURE = "20"
"""Tenths, as `systemd-analyze security` counts: 0 is safest, 100 is a unit without limits."""


@pytest.fixture
def units(tmp_path: Path) -> list[str]:
    """Copies of the units, the worker as one of the queue `default`, with a program that exists here."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze on the PATH: apt-get install systemd")
    copies = []
    for name in UNITS:
        copy = tmp_path / name.replace("@.", "@default.")
        copy.write_text((FOLDER / name).read_text().replace(PROGRAM, sys.executable))
        copies.append(str(copy))
    return copies


def settings_of(unit: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", (FOLDER / unit).read_text(), re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


def test_every_unit_is_tested() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == UNITS


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True)


def test_systemd_accepts_them(units: list[str]) -> None:
    run = analyze("verify", "--man=no", "--recursive-errors=no", *units)

    assert (run.returncode, run.stderr) == (0, "")


def test_systemd_finds_a_mistake_in_a_unit(units: list[str]) -> None:
    unit = Path(units[0])
    unit.write_text(unit.read_text().replace("KillMode=mixed", "KillMode=both"))

    assert "both" in analyze("verify", "--man=no", "--recursive-errors=no", str(unit)).stderr


def test_they_are_exposed_to_little(units: list[str]) -> None:
    for unit in units:
        run = analyze("security", "--offline=true", "--no-pager", f"--threshold={MAX_EXPOSURE}", unit)
        assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("unit", UNITS)
def test_the_command_line_exists_and_the_process_is_always_started_again(unit: str) -> None:
    settings = settings_of(unit)
    [line] = settings["ExecStart"]
    words = line.replace("%i", "default").split()

    assert words[0] == PROGRAM
    check_command(["orchestrator", *words[1:]])
    assert settings["Restart"] == ["always"]
    assert settings["KillMode"] == ["mixed"], (
        "a worker finishes its step only if its work-horse gets no SIGTERM"
    )


def test_a_worker_may_finish_its_step() -> None:
    [stop_s] = settings_of("orchestrator-worker@.service")["TimeoutStopSec"]

    assert float(stop_s) >= DEFAULT_TIMEOUT_S + STOP_GRACE_S + 10
