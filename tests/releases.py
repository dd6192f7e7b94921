"""Releases, each built as a wheel and installed in an environment of its own, and their processes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from processes import PATIENCE_S, ROOT

OFFLINE = ("--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "orchestrator", "executors")


@dataclass
class Release:
    """An installed release, and the processes of it that the test has started."""

    folder: Path
    environment: Mapping[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def command(self) -> str:
        return str(self.folder / "bin" / "orchestrator")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.command, *arguments],
            env=self._variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{len(self.processes)}-{arguments[0]}.log").open("wb") as log:
            process = subprocess.Popen(
                [self.command, *arguments],
                cwd=self.folder,
                env=self._variables(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def _variables(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("ORCHESTRATOR_")}
        return {**ours, **self.environment}


def stop(process: subprocess.Popen[bytes]) -> int:
    """Ask a process to end, as an operator does, and return its exit code."""
    process.send_signal(signal.SIGTERM)
    return process.wait(PATIENCE_S)


def commit_of_the_last_release() -> str:
    """The commit that the changelog names. The test is skipped where the repository does not have it."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"The release is commit `([0-9a-f]+)`", changelog)
    assert found is not None
    git = subprocess.run(["git", "cat-file", "-e", f"{found[1]}^{{commit}}"], cwd=ROOT, capture_output=True)
    if git.returncode:
        pytest.skip(f"this clone does not have the commit {found[1]} of the last release")
    return found[1]


def export(commit: str, folder: Path) -> Path:
    """The sources of a commit."""
    folder.mkdir()
    archive = subprocess.run(
        ["git", "archive", commit, *SOURCES], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


def copy_checkout(folder: Path) -> Path:
    """The sources of this checkout, as they are."""
    folder.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder)
    return folder


@contextmanager
def installed(sources: Path, folder: Path, environment: Mapping[str, str]) -> Iterator[Release]:
    """Build a wheel and install it. The dependencies are those of the tests; nothing is downloaded."""
    wheels = folder / "wheels"
    pip = [sys.executable, "-m", "pip"]
    _run([*pip, "wheel", *OFFLINE, "--no-build-isolation", "--wheel-dir", str(wheels), str(sources)])
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    python = str(folder / "bin" / "python")
    [wheel] = wheels.glob("*.whl")
    _run([*pip, "--python", python, "install", *OFFLINE, str(wheel)])
    # A folder that a .pth file names is searched last, and its own .pth files are not read.
    [site] = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    release = Release(folder, environment)
    try:
        yield release
    finally:
        release.end()


def _run(command: list[str]) -> None:
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert run.returncode == 0, f"{command}\n{run.stdout}{run.stderr}"
