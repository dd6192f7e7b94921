"""Adapter of this project for a side-by-side benchmark: chain, fan and many, with real processes.

The harness provides `core` (services, processes, the Adapter class) and `steps` (the functions that every
system computes). Each step is a step of a workflow, and the document passes its output on. Workers import
this module for its executors, some of them for each step, so imports that only the client needs are inside
functions.
"""

import json
import sys
from pathlib import Path

import steps
from core import Adapter, config

COMMAND = Path(sys.executable).with_name("orchestrator")
RQ = Path(sys.executable).with_name("rq")


# ---- executors: the functions of the harness, with the input of a step


def inc(inputs):
    return steps.inc(inputs)


def branch(inputs):
    return steps.branch(inputs, inputs["k"])


def join(inputs):
    return steps.join(inputs["all"])


def dbl(inputs):
    return steps.dbl(inputs)


def tpl(inputs):
    return steps.tpl(inputs)


def add(inputs):
    return steps.add(inputs["x"], inputs["y"])


# ---- documents


def n_of(step):
    return {"var": f"steps.{step}.output.n"}


def chain(size):
    found = [{"id": "s0", "fn": "inc", "input": {"n": 0}}]
    found += [{"id": f"s{i}", "fn": "inc", "input": {"n": n_of(f"s{i - 1}")}} for i in range(1, size)]
    return {"steps": found, "outputs": {"n": n_of(f"s{size - 1}")}}


def fan(size):
    found = [{"id": "src", "fn": "inc", "input": {"n": 0}}]
    found += [{"id": f"b{k}", "fn": "branch", "input": {"n": n_of("src"), "k": k}} for k in range(size)]
    outputs = [{"var": f"steps.b{k}.output"} for k in range(size)]
    found += [{"id": "join", "fn": "join", "input": {"all": outputs}}]
    return {"steps": found, "outputs": {"n": n_of("join"), "count": {"var": "steps.join.output.count"}}}


DIAMOND = {
    "steps": [
        {"id": "a", "fn": "inc", "input": {"n": {"var": "input.n"}}},
        {"id": "b", "fn": "dbl", "input": {"n": n_of("a")}},
        {"id": "c", "fn": "tpl", "input": {"n": n_of("a")}},
        {
            "id": "d",
            "fn": "add",
            "input": {"x": {"var": "steps.b.output"}, "y": {"var": "steps.c.output"}},
        },
    ],
    "outputs": {"n": n_of("d")},
}


class Orchestrator(Adapter):
    needs = ("redis",)
    durability = "any process may be killed at any time: the record in Redis is enough to continue"

    def start(self):
        from orchestrator.client import Client
        from orchestrator.redis_rq.connection import connect

        env = self.ctx.env(
            ORCHESTRATOR_REDIS_URL=self.ctx.redis_url,
            ORCHESTRATOR_EXECUTORS="orchestrator_sys",
        )
        for _ in range(self.o.get("coordinators", 1)):
            self.ctx.spawn([str(COMMAND), "coordinator", "--log-level", "warning"], env=env)
        if self.o["kind"] == "stock":
            for _ in range(self.o["workers"]):
                options = ["worker", "--serializer", "json", "--url", self.ctx.redis_url, "-q"]
                options += ["--job-class", "orchestrator.worker.step_job.StepJob"]
                self.ctx.spawn([str(RQ), *options, "orchestrator.default"], env=env)
        else:
            count = ["--processes", str(self.o["workers"])]
            if "concurrency" in self.o:
                count += ["--concurrency", str(self.o["concurrency"])]
            self.ctx.spawn([str(COMMAND), "worker", "--log-level", "warning", *count], env=env)
        self.redis = connect(self.ctx.redis_url)
        self.client = Client(self.redis)

    def outcome(self, execution):
        def read_outcome():
            status, outcome = self.redis.hmget(f"orchestrator:workflow:{execution}", "status", "outcome")
            if status in ("failed", "halted", "cancelled"):
                raise RuntimeError(f"{execution} is {status}")
            return json.loads(outcome) if status == "complete" else None

        return read_outcome

    def run(self, document):
        started = self.client.start(document, {})
        return self.ctx.until(self.outcome(started.workflow_execution_id))

    def chain(self, n):
        return self.run(chain(n))

    def fan(self, n):
        return self.run(fan(n))

    def many(self, n):
        workflow_id = self.client.register("diamond", DIAMOND)
        self.round = getattr(self, "round", 0) + 1
        ids = [f"many-{self.round}-{w}" for w in range(n)]
        self.client.start_many(["diamond"] * n, ({"n": w} for w in range(n)), ids)
        return [self.ctx.until(self.outcome(f"{workflow_id}#{one}")) for one in ids]


config("orchestrator-2w", Orchestrator, kind="ours", workers=2)
config("orchestrator-stock-2w", Orchestrator, kind="stock", workers=2)
config("orchestrator-concurrent-2w", Orchestrator, kind="ours", workers=2, concurrency=8)
config("orchestrator-2c-2w", Orchestrator, kind="ours", workers=2, coordinators=2)
