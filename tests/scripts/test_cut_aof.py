"""An append-only file that ends anywhere: what Redis makes of it is whole. scripts/cut-aof does all cuts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from effort import count

SCRIPT = Path(__file__).parents[2] / "scripts" / "cut-aof"
CUTS = count(32, 64)


@pytest.mark.slow
def test_wherever_the_file_is_cut_off_what_is_left_is_whole() -> None:
    command = [sys.executable, str(SCRIPT), "--cuts", str(CUTS), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)

    report = json.loads(done.stdout)
    assert report["wrong"] == [], done.stderr
    assert report["cuts"] >= CUTS
    assert report["states"] >= 8, "the cuts were meant to fall into several transactions"
    assert report["executions"]["ended"] > report["states"] * 10
