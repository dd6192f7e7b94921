"""Measures a coordinator alone: the events that it handles and the starts that it accepts.

Producer, coordinator and simulated workers take turns in one process. Only one of them is measured: its CPU
seconds, the seconds of its turns including the time in Redis, its commands and its round trips. For
comparison, RQ enqueues the same number of jobs.
"""

from __future__ import annotations

from collections.abc import Callable

from rq import Queue
from rq.serializers import JSONSerializer

from orchestrator.application.spec.validation import check_spec
from orchestrator.worker.processes.rq_registration import connect_for_rq
from scripts.benchmarks.documents import DIAMOND
from scripts.benchmarks.measuring import Run, WrongResult, count_process, count_redis
from scripts.benchmarks.processes import start_fleet
from scripts.benchmarks.rig import Rig


def alone(diamonds: int) -> Run:
    """Measure the events of `diamonds` workflows: their starts and the results of their steps."""
    with start_fleet() as fleet:
        rig = Rig(fleet.server)
        rig.producer.register("diamond", DIAMOND)
        rig.start_many("diamond", 20, "warm")
        rig.settle(Run.unmeasured())
        rig.start_many("diamond", diamonds, "d")
        run, before = Run("alone", diamonds, "coordinator", 1), rig.handled
        rig.settle(run)
        run.steps = rig.handled - before
        run.facts["events_per_cpu_s"] = run.steps / run.cpu_s["coordinator"]
        ended = rig.redis.zcard(rig.keys.index("complete"))
        if ended != diamonds + 20:
            raise WrongResult(f"{ended} of {diamonds + 20} diamonds completed")
    return run


def starts(count: int) -> list[Run]:
    """Measure sending starts in several ways, accepting them, and enqueueing jobs with RQ."""
    with start_fleet() as fleet:
        rig = Rig(fleet.server)
        producer, loaded = rig.producer, check_spec(DIAMOND)
        producer.register("diamond", DIAMOND)
        inputs = [{"n": n} for n in range(count)]
        ways: dict[str, Callable[[], object]] = {
            "start_many, a registered name": lambda: producer.start_many(["diamond"] * count, inputs),
            "start_many, a loaded spec": lambda: producer.start_many([loaded] * count, inputs),
            "start_many, a document": lambda: producer.start_many([DIAMOND] * count, inputs),
            "send_start, one by one": lambda: [producer.send_start("diamond", one) for one in inputs],
        }
        runs = []
        for way, send in ways.items():
            run = Run(way, count, "client", count)
            with count_redis(run, rig.redis), count_process(run):
                send()
            runs.append(run)
            accepted = Run(way, count, "accepting coordinator", count)
            with count_redis(accepted, rig.redis, rig.others):
                rig.coordinate(accepted)
            runs.append(accepted)
        queued = rig.redis.llen(rig.keys.rq_queue(rig.keys.queue("default")))
        if queued != count * len(ways):
            raise WrongResult(f"{queued} jobs are queued after {count * len(ways)} starts")
        return [*runs, *_enqueue_with_rq(rig, fleet.server.url, count)]


def _enqueue_with_rq(rig: Rig, url: str, count: int) -> list[Run]:
    """Measure enqueueing the same number of RQ jobs with a similar argument."""
    queue = Queue("reference", connection=connect_for_rq(url), serializer=JSONSerializer)
    together = Run("enqueue_many", count, "rq", count)
    with count_redis(together, rig.redis), count_process(together):
        jobs = (Queue.prepare_data("reference.nothing", ({"n": n},), timeout=60) for n in range(count))
        queue.enqueue_many(list(jobs))
    by_one = Run("enqueue, one by one", count, "rq", count)
    with count_redis(by_one, rig.redis), count_process(by_one):
        for n in range(count):
            queue.enqueue("reference.nothing", {"n": n}, job_timeout=60)
    return [together, by_one]
