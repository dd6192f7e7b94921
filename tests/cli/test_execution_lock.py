"""An execution in a file is locked for one process, and for no longer than that lives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli.errors import InvalidRequest
from orchestrator.cli.execution_lock import lock_execution
from processes import PATIENCE_S

HOLD = """
import sys
from orchestrator.cli.execution_lock import lock_execution
with lock_execution(sys.argv[1], "e1"):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_an_execution_that_another_process_has_locked_is_rejected_until_that_ends(tmp_path: Path) -> None:
    db = str(tmp_path / "kept.db")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, db], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"

    with (
        pytest.raises(InvalidRequest, match="another process runs the execution 'e1'"),
        lock_execution(db, "e1"),
    ):
        pass
    with lock_execution(db, "e2"):
        pass
    holder.kill()
    holder.communicate(timeout=PATIENCE_S)
    with lock_execution(db, "e1"):
        pass
