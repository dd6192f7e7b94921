"""Measures workflows with real processes, and plain RQ jobs for comparison.

A client starts workflows with a coordinator and two workers, and learns of their end by subscribing. The time
runs from the first request of the client until the last execution has ended; the results are checked
afterwards. The reference is RQ itself: the same number of RQ workers, with jobs that do nothing and are
already queued.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from rq import Queue
from rq.serializers import JSONSerializer

from orchestrator.redis_rq.keys import Keys
from orchestrator.worker.processes.rq_registration import connect_for_rq
from scripts.benchmarks.documents import DIAMOND, chain, fan
from scripts.benchmarks.measuring import Run, WrongResult
from scripts.benchmarks.processes import (
    FUNCTIONS,
    OURS,
    STOCK,
    EndListener,
    Fleet,
    make_client,
    measure_fleet,
    start_fleet,
    wait_until,
)

WORKERS = 2
JOBS = {"SimpleWorker": 2_000, "Worker": 200}
"""The number of RQ jobs by worker class. SimpleWorker never forks; Worker forks for each job."""
STEP_JOB = ("--job-class", "orchestrator.worker.step_job.StepJob")
HIDDEN = "hidden until all workers are ready"


def through_processes(
    workloads: Iterable[tuple[str, int]], kind: str = OURS, aof: bool = False, coordinators: int = 1
) -> list[Run]:
    """Measure these workloads one after the other with the same processes."""
    with start_fleet(aof) as fleet:
        fleet.coordinators(coordinators)
        fleet.workers(WORKERS, kind, *((*STEP_JOB, Keys().queue("default")) if kind == STOCK else ()))
        fleet.get_ready()
        ends = EndListener(fleet)
        _run("chain", 4, kind, fleet, ends)  # loads modules that are imported on first use
        return [_run(name, size, kind, fleet, ends) for name, size in workloads]


def _run(name: str, size: int, kind: str, fleet: Fleet, ends: EndListener) -> Run:
    steps = {"chain": size, "fan": size + 2, "many": 4 * size}[name]
    run, client, keys, redis = (
        Run(name, size, kind, steps),
        make_client(fleet),
        Keys(),
        fleet.server.client,
    )
    before = _conflicts(fleet)
    with measure_fleet(run, fleet):
        if name == "many":
            workflow_id = client.register("diamond", DIAMOND)
            names = [f"many-{n}" for n in range(size)]
            client.start_many(["diamond"] * size, ({"n": n} for n in range(size)), names)
            ids = [f"{workflow_id}#{one}" for one in names]
        else:
            document = {"chain": chain, "fan": fan}[name](size)
            ids = [client.start(document, {}).workflow_execution_id]
        ends.wait(len(ids))
    found: list[Any] = [redis.hmget(keys.workflow(one), "outcome", "version") for one in ids]
    expected = {"chain": [size], "fan": [2 * size], "many": [2 * n + 4 for n in range(size)]}[name]
    if [json.loads(outcome)["n"] for outcome, _ in found] != expected:
        raise WrongResult(f"{name} of {size} by {kind} gave {str(found)[:200]}")
    # A version counts the commits before it.
    run.facts["commits"] = sum(int(version.partition("-")[0]) for _, version in found)
    run.facts["conflicts"] = _conflicts(fleet) - before
    return run


def _conflicts(fleet: Fleet) -> int:
    return int(str(fleet.server.client.hget(Keys().counters, "conflicts") or 0))


def two(size: int) -> list[Run]:
    """Measure a fan and many diamonds with one coordinator and with two."""
    found = []
    for count, system in ((1, "1 coordinator"), (2, "2 coordinators")):
        for run in through_processes([("fan", size), ("many", size)], coordinators=count):
            run.workload, run.system = f"two: {run.workload}", system
            found.append(run)
    return found


def cold() -> Run:
    """Measure from the first process to the first end: Redis, a coordinator, a worker, one diamond."""
    run, began = Run("cold", 1, OURS, 4), time.perf_counter()
    with start_fleet() as fleet:
        ends = EndListener(fleet)
        fleet.coordinators(1)
        fleet.workers(1, OURS)
        make_client(fleet).start(DIAMOND, {"n": 1})
        ends.wait(1)
        run.seconds = time.perf_counter() - began
        run.cpu_s = fleet.cpu_s()
    return run


def measure_rq(kind: str, jobs: int) -> list[Run]:
    """Measure RQ jobs.

    Their queue is hidden until all workers are ready; then the time runs until they finish.
    """
    with start_fleet() as fleet:
        redis, run = fleet.server.client, Run("jobs", jobs, f"rq {kind}", jobs)
        queue = Queue("bench", connection=connect_for_rq(fleet.server.url), serializer=JSONSerializer)
        prepared = (Queue.prepare_data(f"{FUNCTIONS}.job", (n,), result_ttl=600) for n in range(jobs))
        queue.enqueue_many(list(prepared))
        redis.rename("rq:queue:bench", HIDDEN)
        fleet.workers(WORKERS, STOCK, "--worker-class", f"rq.worker.{kind}", "bench")
        fleet.get_ready()
        with measure_fleet(run, fleet):
            redis.rename(HIDDEN, "rq:queue:bench")
            checks = wait_until(lambda: redis.zcard("rq:finished:bench") == jobs, fleet)
        run.commands["zcard"] -= checks  # RQ does not publish this; our polling is not part of RQ's work
        run.round_trips -= checks
    return [run]
