"""Measures whether a step costs more in a larger workflow, or with more open executions.

Everything runs in this process: a coordinator and the work-horse of `orchestrator worker` take turns. Small
workflows run several times, so that the times are meaningful.
"""

from __future__ import annotations

import threading

from orchestrator.invocation.executors import Executors
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.job_taker import JobTaker, WorkerQueues
from orchestrator.redis_rq.keys import Keys
from orchestrator.worker.harness import Harness
from orchestrator.worker.lease import RedisClock
from orchestrator.worker.processes.recycling import RecyclingLimits, RecyclingMonitor
from orchestrator.worker.processes.work_horse import WorkHorse
from scripts.benchmarks.documents import DIAMOND, PARKED, chain, fan
from scripts.benchmarks.functions import inc, total
from scripts.benchmarks.measuring import Run, WrongResult, count_process, count_redis
from scripts.benchmarks.processes import Server, start_fleet
from scripts.benchmarks.rig import Rig

SMALL = 100
REPETITIONS = 5
DIAMONDS = 250
START_BATCH_SIZE = 5_000
LEASE_MS = 60_000


def growth(size: int) -> list[Run]:
    """Measure chains and fans of a hundred steps and of `size` steps."""
    return [_measure_workflow(shape, each) for shape in ("chain", "fan") for each in (SMALL, size)]


def _measure_workflow(shape: str, size: int) -> Run:
    times = REPETITIONS if size == SMALL else 1
    document = {"chain": chain, "fan": fan}[shape](size)
    with start_fleet() as fleet:
        rig, horse = Rig(fleet.server), _make_work_horse(fleet.server)
        run = Run(f"growth: {shape}", size, "in one process", times * len(document["steps"]))
        for n in range(-1, times):  # the first run is a warm-up
            counted = run if n >= 0 else Run.unmeasured()
            rig.producer.send_start(document if n >= 0 else chain(SMALL), {})
            with count_redis(counted, rig.redis, rig.others):
                rig.coordinate(counted)
                while rig.redis.llen(rig.keys.rq_queue(rig.keys.queue("default"))):
                    rig.others["llen"] += 1
                    with count_process(counted, "worker"):
                        horse.serve(burst=True)
                    rig.coordinate(counted)
                with count_process(counted, "coordinator"):
                    rig.log.sweep()
        ended = rig.redis.zcard(rig.keys.index("complete"))
        if ended != times + 1:
            raise WrongResult(f"{ended} of {times + 1} executions completed")
    return run


def _make_work_horse(server: Server) -> WorkHorse:
    client, bare = connect(server.url), connect(server.url, decodes=False)
    clock, keys = RedisClock(client), Keys()
    queues = WorkerQueues("bench", [keys.queue("default")], keys)
    taker = JobTaker(bare, queues, lambda: clock.now_ms() + LEASE_MS)
    harness = Harness(client, Executors(mapping={"inc": inc, "total": total}), clock, "bench")
    return WorkHorse(taker, harness, RecyclingMonitor(RecyclingLimits(max_steps=10**9)), threading.Event())


def beside_open_executions(count: int) -> list[Run]:
    """Diamonds while a hundred executions are open, and while so many are; one look at all leases, timers and
    queues is counted with them."""
    return [_measure_beside(SMALL), _measure_beside(count)]


def _measure_beside(count: int) -> Run:
    with start_fleet() as fleet:
        rig = Rig(fleet.server)
        rig.producer.register("diamond", DIAMOND)
        rig.producer.register("parked", PARKED)
        for first in range(0, count, START_BATCH_SIZE):
            rig.start_many("parked", min(START_BATCH_SIZE, count - first), f"p{first}-")
            rig.coordinate(Run.unmeasured())
        rig.start_many("diamond", DIAMONDS, "warm")
        rig.settle(Run.unmeasured())
        rig.log.sweep()
        rig.start_many("diamond", DIAMONDS, "d")
        run = Run("open", count, "coordinator", 4 * DIAMONDS)
        rig.settle(run)
        with count_redis(run, rig.redis), count_process(run, "coordinator"):
            rig.log.sweep()
        found = rig.redis.zcard(rig.keys.index("in_progress"))
        if found != count:
            raise WrongResult(f"{found} of {count} executions are open")
    return run
