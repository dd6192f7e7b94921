"""`orchestrator mcp` without its extra and with wrong options. tests/mcp has what it serves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import main

ROOT = Path(__file__).parents[3]
BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("mcp", "mcp_types"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""


@pytest.mark.slow
def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)

    code, printed = run_blocked(tmp_path, "mcp")
    helped, _ = run_blocked(tmp_path, "mcp", "--help")

    assert (code, helped) == (1, 0)
    assert printed == (
        "Error: the MCP server needs more packages: pip install 'rq-orchestrator[mcp]' (missing: mcp)\n"
    )


@pytest.mark.parametrize("user", ["", "a\nb", "x" * 300], ids=["empty", "two lines", "long"])
def test_a_user_is_a_short_name(user: str) -> None:
    result = CliRunner().invoke(main, ["mcp", "--user", user])

    assert result.exit_code == 2
    assert "--user: write a name of at most 200 characters" in result.output


def run_blocked(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the command line in a new interpreter that cannot import the library."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    run = subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return run.returncode, run.stdout
