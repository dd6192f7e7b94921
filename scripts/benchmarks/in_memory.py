"""Measures workflows in one process without Redis: `Workflow.run()`, compared with runfox."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from orchestrator import Backend, Workflow
from scripts.benchmarks.documents import Document, chain
from scripts.benchmarks.measuring import Run, WrongResult
from scripts.benchmarks.step_cost import DIAMOND, FUNCTIONS

Start = Callable[[Document, dict[str, Any]], Any]
"""Creates a workflow from a document and its inputs, with run() that returns an outcome."""
SMALL, LARGE = 100, 1_000


def in_memory(diamonds: int) -> list[Run]:
    """Measure diamonds with this project and with runfox if it is installed, and chains with this project."""
    gc.collect()
    gc.freeze()  # so that garbage collection skips objects of other measurements
    ways: dict[str, Start] = {"Workflow.run()": _ours(), "4 threads": _ours(threads=4)}
    if find_spec("runfox") is not None:
        ways["runfox"] = _runfox()
    runs = []
    for system, start in ways.items():
        run = Run("in memory: many", diamonds, system, 4 * diamonds)
        documents = [DIAMOND] * diamonds
        if system == "runfox":  # its ids contain seconds, and repeat within one document
            documents = [DIAMOND | {"name": f"diamond{n}"} for n in range(diamonds)]
        _time(run, [(start, one, {"n": n}, 2 * n + 4) for n, one in enumerate(documents)])
        runs.append(run)
    for size in (SMALL, LARGE):
        run = Run("in memory: chain", size, "Workflow.run()", LARGE)
        _time(run, [(_ours(), chain(size), {}, size)] * (LARGE // size))
        runs.append(run)
    return runs


def _time(run: Run, cases: list[tuple[Start, Document, dict[str, Any], int]]) -> None:
    cpu, began = time.process_time(), time.perf_counter()
    for start, document, inputs, expected in cases:
        outcome = start(document, inputs).run().outcome
        if outcome != {"n": expected}:
            raise WrongResult(f"{run.workload} of {run.size} by {run.system} gave {outcome}")
    run.seconds = time.perf_counter() - began
    run.cpu_s = {"process": time.process_time() - cpu}


def _ours(threads: int = 1) -> Start:
    """Steps this short are fastest with one thread."""
    backend = Backend(FUNCTIONS, threads=threads)
    return lambda document, inputs: Workflow.from_dict(document, backend, inputs=inputs)


def _runfox() -> Start:
    import runfox

    backend = runfox.Backend(executor=lambda op, inputs: FUNCTIONS[op](inputs))
    return lambda document, inputs: runfox.Workflow.from_dict(document, backend, inputs=inputs)
