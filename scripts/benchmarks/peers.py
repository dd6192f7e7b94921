"""Runs other systems on the same work with a separate side-by-side benchmark, whose folder is an option.

That benchmark finds systems in its own folder, so the folder is copied and our adapter is added. Systems take
turns in each round, so that other load on the machine affects all of them alike.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.benchmarks.processes import ROOT

SYSTEMS = (
    "orchestrator-2w",
    "rq-dep-simple-2w",
    "celery-prefork2",
    "dramatiq-2p8t",
    "huey-process2",
    "taskiq-2w",
    "streaq-2w",
    "dbos-pg",
    "sayiir-durable-pg",
    "runfox-sqlite-inproc",
    "runfox-memory",
    "flowtoy",
)
"""One configuration of each system, with two workers if there is one."""
ADAPTER = ROOT / "scripts" / "orchestrator_sys.py"


def peers(
    folder: Path, sizes: Mapping[str, int], runs: int, systems: Sequence[str] = SYSTEMS
) -> Iterator[dict[str, Any]]:
    """Return the rows of that benchmark: one for each workload of each system in each round."""
    python = os.environ.get("BENCH_PYTHON", sys.executable)
    environment = {**os.environ, "BENCH_PYTHON_ORCHESTRATOR_SYS": sys.executable}
    with tempfile.TemporaryDirectory(prefix="peers-") as copy:
        target = Path(copy, "bench")
        shutil.copytree(folder, target)
        (target / "systems").chmod(0o755)
        shutil.copy(ADAPTER, target / "systems")
        plan = ",".join(f"{name}:{size}" for name, size in sizes.items())
        for number in range(runs):
            out = target.parent / f"{number}.jsonl"
            args = ["--plan", plan, "--configs", ",".join(systems), "--reps", "1", "--out", str(out)]
            subprocess.run(
                [python, "run.py", *args], cwd=target, env=environment, stdout=sys.stderr, check=True
            )
            for line in out.read_text().splitlines():
                yield json.loads(line) | {"rep": number}
