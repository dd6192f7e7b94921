"""Finds Python interpreters: by path, on the PATH, and among the versions of pyenv."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WANTED = ("3.11", "3.12", "3.13", "3.14")
PROBE = "import platform, sys; print(platform.python_version(), sys.executable)"
PROBE_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Python:
    version: str
    path: str


def find_python(wanted: str) -> Python | None:
    """The interpreter at this path; or of this version, such as 3.13 or 3.13.0."""
    if os.sep in wanted:
        return probe(wanted)
    found = (probe(path) for path in _candidates(wanted))
    return next((one for one in found if one and f"{one.version}.".startswith(f"{wanted}.")), None)


def probe(path: str) -> Python | None:
    """Run an interpreter for its version; None if it does not run, as shims of pyenv may not."""
    try:
        run = subprocess.run(
            [path, "-c", PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            cwd="/",  # pyenv reads .python-version of the current folder
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version, _, executable = run.stdout.strip().partition(" ")
    return Python(version, executable) if run.returncode == 0 and executable else None


def _candidates(version: str) -> Iterator[str]:
    minor = ".".join(version.split(".")[:2])
    for folder in os.get_exec_path():
        if path := shutil.which(f"python{minor}", path=folder):
            yield path
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = sorted(root.glob(f"versions/{minor}*"), key=_version_key, reverse=True)
    yield from (str(folder / "bin" / "python") for folder in folders)


def _version_key(folder: Path) -> list[int]:
    return [int(part) for part in folder.name.split(".") if part.isdecimal()]
