"""A work-horse loads neither workflow functions nor the builder, unless its executors use them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
import orchestrator.worker.harness
heavy = ("orchestrator.functions", "orchestrator.builder", "orchestrator.application.spec.step_models")
sys.exit(", ".join(name for name in sys.modules if name.startswith(heavy)) or 0)
"""


def test_the_harness_does_not_load_workflow_functions() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True)

    assert run.returncode == 0, run.stderr
