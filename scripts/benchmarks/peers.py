"""Other systems on the same work: a side-by-side benchmark of its own, which is given as a folder.

It finds systems beside itself, so it is copied, with ours among them. Systems take turns, a round after the
other, so that what the machine does meanwhile meets them all.
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
"""One of each, in the configuration with two workers where there is one."""
ADAPTER = ROOT / "scripts" / "orchestrator_sys.py"


def peers(
    folder: Path, sizes: Mapping[str, int], runs: int, systems: Sequence[str] = SYSTEMS
) -> Iterator[dict[str, Any]]:
    """Rows as that benchmark writes them: one for each workload of each system in each round."""
    python = os.environ.get("BENCH_PYTHON", sys.executable)
    environment = {**os.environ, "BENCH_PYTHON_ORCHESTRATOR_SYS": sys.executable}
    with tempfile.TemporaryDirectory(prefix="peers-") as copy:
        there = Path(copy, "bench")
        shutil.copytree(folder, there)
        (there / "systems").chmod(0o755)
        shutil.copy(ADAPTER, there / "systems")
        plan = ",".join(f"{name}:{size}" for name, size in sizes.items())
        for number in range(runs):
            out = there.parent / f"{number}.jsonl"
            words = ["--plan", plan, "--configs", ",".join(systems), "--reps", "1", "--out", str(out)]
            subprocess.run(
                [python, "run.py", *words], cwd=there, env=environment, stdout=sys.stderr, check=True
            )
            for line in out.read_text().splitlines():
                yield json.loads(line) | {"rep": number}
