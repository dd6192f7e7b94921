"""Workflows through real processes, beside bare jobs of RQ.

A coordinator, two workers, and a client that starts workflows and hears of their end by subscribing. The
clock runs from the first word of the client until the last end is heard; what came of them is compared
afterwards. The yardstick is RQ itself: as many workers of its own, on jobs that do nothing and wait already.
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
from scripts.benchmarks.measuring import Run, Wrong
from scripts.benchmarks.processes import (
    FUNCTIONS,
    OURS,
    STOCK,
    Ends,
    Fleet,
    client_of,
    measured,
    started,
    wait_until,
)

WORKERS = 2
JOBS = {"SimpleWorker": 2_000, "Worker": 200}
"""Of the yardstick: one that never forks, and one that forks for each."""
STEP_JOB = ("--job-class", "orchestrator.worker.step_job.StepJob")
HIDDEN = "until all workers are there"


def through_processes(
    workloads: Iterable[tuple[str, int]], kind: str = OURS, aof: bool = False, coordinators: int = 1
) -> list[Run]:
    """These workloads one after the other, through one set of processes."""
    with started(aof) as fleet:
        fleet.coordinators(coordinators)
        fleet.workers(WORKERS, kind, *((*STEP_JOB, Keys().queue("default")) if kind == STOCK else ()))
        fleet.get_ready()
        ends = Ends(fleet)
        _run("chain", 4, kind, fleet, ends)  # what is loaded when it is first needed
        return [_run(name, size, kind, fleet, ends) for name, size in workloads]


def _run(name: str, size: int, kind: str, fleet: Fleet, ends: Ends) -> Run:
    steps = {"chain": size, "fan": size + 2, "many": 4 * size}[name]
    run, client, keys, redis = (
        Run(name, size, kind, steps),
        client_of(fleet),
        Keys(),
        fleet.server.client,
    )
    before = _conflicts(fleet)
    with measured(run, fleet):
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
    wanted = {"chain": [size], "fan": [2 * size], "many": [2 * n + 4 for n in range(size)]}[name]
    if [json.loads(outcome)["n"] for outcome, _ in found] != wanted:
        raise Wrong(f"{name} of {size} by {kind} came to {str(found)[:200]}")
    # A version says how many commits there were before it.
    run.facts["commits"] = sum(int(version.partition("-")[0]) for _, version in found)
    run.facts["conflicts"] = _conflicts(fleet) - before
    return run


def _conflicts(fleet: Fleet) -> int:
    return int(str(fleet.server.client.hget(Keys().counters, "conflicts") or 0))


def two(size: int) -> list[Run]:
    """A fan and many diamonds through one coordinator, and through two."""
    found = []
    for count, named in ((1, "1 coordinator"), (2, "2 coordinators")):
        for run in through_processes([("fan", size), ("many", size)], coordinators=count):
            run.workload, run.system = f"two: {run.workload}", named
            found.append(run)
    return found


def cold() -> Run:
    """From the first process to the first end: Redis, a coordinator, a worker, one diamond."""
    run, began = Run("cold", 1, OURS, 4), time.perf_counter()
    with started() as fleet:
        ends = Ends(fleet)
        fleet.coordinators(1)
        fleet.workers(1, OURS)
        client_of(fleet).start(DIAMOND, {"n": 1})
        ends.wait(1)
        run.seconds = time.perf_counter() - began
        run.cpu_s = fleet.cpu_s()
    return run


def yardstick(kind: str, jobs: int) -> list[Run]:
    """Jobs that nobody takes until all workers are there; then the clock runs until they are finished."""
    with started() as fleet:
        redis, run = fleet.server.client, Run("jobs", jobs, f"rq {kind}", jobs)
        queue = Queue("bench", connection=connect_for_rq(fleet.server.url), serializer=JSONSerializer)
        prepared = (Queue.prepare_data(f"{FUNCTIONS}.job", (n,), result_ttl=600) for n in range(jobs))
        queue.enqueue_many(list(prepared))
        redis.rename("rq:queue:bench", HIDDEN)
        fleet.workers(WORKERS, STOCK, "--worker-class", f"rq.worker.{kind}", "bench")
        fleet.get_ready()
        with measured(run, fleet):
            redis.rename(HIDDEN, "rq:queue:bench")
            looks = wait_until(lambda: redis.zcard("rq:finished:bench") == jobs, fleet)
        run.commands["zcard"] -= looks  # RQ tells nobody: we look, which is not RQ's
        run.round_trips -= looks
    return [run]
