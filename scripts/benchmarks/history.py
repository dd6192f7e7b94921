"""What an event and a step cost with the history of ORCHESTRATOR_HISTORY: processor time, calls, memory.

python -m scripts.benchmarks.history    prints one JSON object; scripts/bench-pairs --history runs it
"""

from __future__ import annotations

import json

from scripts.benchmarks import coordinating
from scripts.benchmarks.cost import SIZE, profiled_processes
from scripts.benchmarks.memory import memory

STEPS = 1_000
"""A fan of this many steps is measured, beside many executions of four steps."""


def measure() -> dict[str, dict[str, float]]:
    run = coordinating.alone(SIZE)
    with profiled_processes():
        calls = coordinating.alone(SIZE).facts["calls_coordinator"]
    return {
        "event": {
            "us": 1e6 * run.cpu_s["coordinator"] / run.steps,
            "calls": calls / run.steps,
            "commands": run.commands_each,
            "redis us": 1e6 * run.cpu_s["redis"] / run.steps,
        },
        "bytes": {
            name.replace("_", " "): value
            for name, value in memory(STEPS).facts.items()
            if name.startswith(("settled", "history", "execution"))
        },
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
