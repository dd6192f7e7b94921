"""A package of executors as somebody has it who has installed it, without a network.

Its own pyproject.toml is read by setuptools, which puts its modules and its entry points into a folder. So
does pip, which needs more than a development environment need have: a way to make wheels.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "docs" / "examples" / "executors-package"
SETUP = "from setuptools import setup; setup()"


def install(project: Path, folder: Path) -> Path:
    """The folder that the project is installed in, to be named in PYTHONPATH; the project stays clean."""
    copy, site = folder / "project", folder / "site"
    shutil.copytree(project, copy)
    site.mkdir()
    for command in (["build_py", "--build-lib", str(site)], ["egg_info", "--egg-base", str(site)]):
        run = subprocess.run(
            [sys.executable, "-c", SETUP, "--quiet", *command], cwd=copy, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
    return site
