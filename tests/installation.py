"""A package of executors, installed by pip into a folder of its own, with what is there and no network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "docs" / "examples" / "executors-package"
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
WITH_WHAT_IS_THERE = ("--no-index", "--no-deps", "--no-build-isolation")


def install(project: Path, folder: Path) -> Path:
    """The folder that the project is installed in, to be named in PYTHONPATH; the project stays clean."""
    copy, site = folder / "project", folder / "site"
    shutil.copytree(project, copy)
    command = [*PIP, *WITH_WHAT_IS_THERE, "--target", str(site), str(copy)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return site
