"""A run of pytest in a folder, as somebody has it who has installed the package.

Whether or not this package is installed where the tests run, and with which entry points: the folder says of
itself that a package with the pytest entry points of this pyproject.toml is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")


def own_environment() -> dict[str, str]:
    """Without what a run around it says to its own processes: it is not measured with that one."""
    ours = ("COV_", "COVERAGE_", "PYTEST_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def install_plugin(folder: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = project["entry-points"]["pytest11"]
    installed = folder / "as_installed-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: as-installed\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[pytest11]\n" + "".join(f"{name} = {module}\n" for name, module in points.items())
    )


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """With warnings as errors, and our code in its path."""
    environment = {**own_environment(), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    return subprocess.run(
        [*PYTEST, "-W", "error", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
