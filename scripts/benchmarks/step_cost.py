"""What a step of `Workflow.run()` costs in memory: processor time and Python calls, with 1 and 4 threads.

    python -m scripts.benchmarks.step_cost --calls    prints the calls of a step in each case, as JSON
    python -m scripts.benchmarks.step_cost --serve    measures the case that each line of the input names, and
                                                      prints the microseconds of a step

scripts/bench-pairs runs two of these processes in turn, one with the package of an older checkout. The speed
of a machine changes within a second, so that only short measurements that follow each other are comparable.
It uses only what every release has: a Backend that does not know `threads` gets none.
"""

from __future__ import annotations

import gc
import inspect
import json
import subprocess
import sys
import threading
import time
from types import FrameType
from typing import Any

from orchestrator import Backend, Workflow
from scripts.benchmarks.documents import Document, chain, n_of
from scripts.benchmarks.functions import inc
from scripts.benchmarks.measuring import Run, WrongResult

DIAMOND: Document = {
    "steps": [
        {"op": "a", "input": {"n": {"var": "input.n"}}},
        {"op": "b", "depends_on": ["a"], "input": {"n": n_of("a")}},
        {"op": "c", "depends_on": ["a"], "input": {"n": n_of("a")}},
        {"op": "d", "depends_on": ["b", "c"], "input": {"b": n_of("b"), "c": n_of("c")}},
    ],
    "outputs": {"n": n_of("d")},
}
"""Written with the keys that runfox has too. The result is twice its input, plus four."""
FUNCTIONS: dict[str, Any] = {
    **dict.fromkeys(("a", "b", "c", "inc"), inc),
    "d": lambda inputs: {"n": inputs["b"] + inputs["c"]},
}
CHAIN_SIZE = 100
CASES: dict[str, tuple[Document, dict[str, Any], int, int]] = {
    "chain": (chain(CHAIN_SIZE), {}, CHAIN_SIZE, CHAIN_SIZE),
    "diamond": (DIAMOND, {"n": 0}, 4, 4),
}
"""A document, its inputs, the result, and the number of its steps."""
NAMED = {f"{case}, {n} thread{'s' * (n > 1)}": (case, n) for n in (1, 4) for case in CASES}
STEPS = 100
COUNTED_STEPS = 500


def step_cost(rounds: int) -> list[Run]:
    """One run for each case: the smallest processor time of all rounds, and the calls. They are counted in
    another process, because a profiler would distort the time."""
    runs, calls = [], _count_calls_elsewhere()
    for name, (case, threads) in NAMED.items():
        seconds = min(_time(case, threads) for _ in range(rounds))
        run = Run(f"a step in memory: {case}", threads, "threads", 1, seconds, cpu_s={"process": seconds})
        run.facts = {"processor_us": 1e6 * seconds, "python_calls": calls[name]}
        runs.append(run)
    return runs


def _count_calls_elsewhere() -> dict[str, float]:
    command = [sys.executable, "-m", "scripts.benchmarks.step_cost", "--calls"]
    calls: dict[str, float] = json.loads(subprocess.check_output(command, text=True))
    return calls


def _time(case: str, threads: int) -> float:
    """The processor seconds of a step, without the garbage collector: it visits what other rounds left."""
    workflows, result = _create(case, threads, STEPS)
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        outcomes = [workflow.run().outcome for workflow in workflows]
        spent_s = time.process_time() - began
    finally:
        gc.enable()
    if outcomes != [{"n": result}] * len(outcomes):
        raise WrongResult(f"{case} with {threads} threads gave {outcomes[0]}")
    return spent_s / STEPS


def _create(case: str, threads: int, steps: int) -> tuple[list[Workflow], int]:
    """Workflows with this many steps together, not run yet, and their result."""
    document, inputs, result, size = CASES[case]
    knows_threads = "threads" in inspect.signature(Backend.__init__).parameters
    options: dict[str, Any] = {"threads": threads} if knows_threads else {}
    backend = Backend(FUNCTIONS, **options)
    made = [Workflow.from_dict(document, backend, inputs=inputs) for _ in range(steps // size + 1)]
    made.pop().run()  # so that what the first run of a backend makes does not count
    return made, result


def count_calls() -> dict[str, float]:
    """The Python calls of a step in all threads, by case. Every thread has the profiler from its start on.

    The smallest of several runs, because a run on a busy machine also checks that its steps do not hang."""
    counter = _CallCounter()
    threading.setprofile(counter)
    sys.setprofile(counter)
    found = {}
    for name, (case, threads) in NAMED.items():
        workflows, _ = _create(case, threads, COUNTED_STEPS)
        found[name] = min(map(counter.count, workflows)) * len(workflows) / COUNTED_STEPS
    sys.setprofile(None)
    threading.setprofile(None)
    return found


class _CallCounter:
    """A profiler that counts the calls of Python functions while it is on."""

    calls, is_on = 0, False

    def count(self, workflow: Workflow) -> int:
        self.calls, self.is_on = 0, True
        workflow.run()
        self.is_on = False
        return self.calls

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and self.is_on:
            self.calls += 1


def serve() -> None:
    """Measure one case after the other, as the input names them."""
    for line in sys.stdin:
        print(1e6 * _time(*NAMED[line.strip()]), flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--calls"]:
            print(json.dumps(count_calls()))
        case ["--serve"]:
            serve()
        case _:
            sys.exit(__doc__)
