"""A coordinator by itself: how many events it handles, and how many starts it accepts.

Producer, coordinator and simulated workers take turns in one process, and only the one that is measured is
counted: its processor seconds, the seconds of its turns, in which Redis serves it, its commands and its round
trips. Beside the starts, RQ enqueues as many jobs.
"""

from __future__ import annotations

from collections.abc import Callable

from rq import Queue
from rq.serializers import JSONSerializer

from orchestrator.application.spec.validation import check_spec
from orchestrator.worker.processes.rq_registration import connect_for_rq
from scripts.benchmarks.documents import DIAMOND
from scripts.benchmarks.measuring import Run, Wrong, metered, tallied
from scripts.benchmarks.processes import started
from scripts.benchmarks.rig import Rig


def alone(diamonds: int) -> Run:
    """Events of so many diamonds: their starts, and the results of their steps."""
    with started() as fleet:
        rig = Rig(fleet.server)
        rig.producer.register("diamond", DIAMOND)
        rig.start_many("diamond", 20, "warm")
        rig.settle(Run.nobody())
        rig.start_many("diamond", diamonds, "d")
        run, before = Run("alone", diamonds, "coordinator", 1), rig.handled
        rig.settle(run)
        run.steps = rig.handled - before
        run.facts["events_per_cpu_s"] = run.steps / run.cpu_s["coordinator"]
        ended = rig.redis.zcard(rig.keys.index("complete"))
        if ended != diamonds + 20:
            raise Wrong(f"{ended} of {diamonds + 20} diamonds have ended")
    return run


def starts(count: int) -> list[Run]:
    """By start_many() and one by one, what a coordinator takes to accept them, and RQ."""
    with started() as fleet:
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
            with tallied(run, rig.redis), metered(run):
                send()
            runs.append(run)
            accepted = Run(way, count, "accepting coordinator", count)
            with tallied(accepted, rig.redis, rig.others):
                rig.coordinate(accepted)
            runs.append(accepted)
        queued = rig.redis.llen(rig.keys.rq_queue(rig.keys.queue("default")))
        if queued != count * len(ways):
            raise Wrong(f"{queued} jobs wait after {count * len(ways)} starts")
        return [*runs, *_enqueueing(rig, fleet.server.url, count)]


def _enqueueing(rig: Rig, url: str, count: int) -> list[Run]:
    """As many jobs of RQ, with one argument like ours."""
    queue = Queue("yardstick", connection=connect_for_rq(url), serializer=JSONSerializer)
    together = Run("enqueue_many", count, "rq", count)
    with tallied(together, rig.redis), metered(together):
        jobs = (Queue.prepare_data("yardstick.nothing", ({"n": n},), timeout=60) for n in range(count))
        queue.enqueue_many(list(jobs))
    by_one = Run("enqueue, one by one", count, "rq", count)
    with tallied(by_one, rig.redis), metered(by_one):
        for n in range(count):
            queue.enqueue("yardstick.nothing", {"n": n}, job_timeout=60)
    return [together, by_one]
