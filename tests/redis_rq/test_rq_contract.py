"""What we assume of RQ 2: our lean job hash runs under its workers, and nothing else does under ours."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from rq import Queue, SimpleWorker, Worker
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer
from rq.worker import BaseWorker

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.redis_rq.connection import Client
from orchestrator.redis_rq.job_codec import RUN_STEP, job_args, read_job, read_payload
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.lost_reasons import WRONG_SERIALIZER
from orchestrator.worker.step_job import StepJob
from processes import ROOT, run_module
from servers.redis_server import RedisServer
from worlds.commits import creation, written
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld

QUEUE = "orchestrator.default"
KEPT_BY_RQ = {"rq:queues"}
LET_EXPIRE_BY_RQ = ("rq:worker:", "rq:clean_registries:")
"""What RQ itself leaves behind, of queues and of workers; nothing of it belongs to a job."""

EXECUTORS = """
import os, signal, sys

def fine(inputs):
    return {"pid": os.getpid(), **inputs}

def killed(inputs):
    os.kill(os.getpid(), signal.SIGKILL)

def leaves(inputs):
    os._exit(3)

def exits(inputs):
    sys.exit(1)

def touch(*args):
    open(os.environ["TOUCHED"], "w").close()
"""


@pytest.fixture
def rq_client(redis_server: RedisServer, redis_url: str) -> Iterator[Client]:
    with redis_server.client() as client:
        yield client


@pytest.fixture(autouse=True)
def executors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of executors; returns the file that `touch` makes."""
    (tmp_path / "contract_executors.py").write_text(EXECUTORS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ORCHESTRATOR_EXECUTORS", "contract_executors")
    monkeypatch.setenv("TOUCHED", str(tmp_path / "touched"))
    return tmp_path / "touched"


def stock(kind: type[BaseWorker], job_class: type[Job] = Job) -> Callable[[Client], BaseWorker]:
    def make(client: Client) -> BaseWorker:
        queue = Queue(QUEUE, connection=client, serializer=JSONSerializer, job_class=job_class)
        return kind([queue], connection=client, serializer=JSONSerializer, job_class=job_class)

    return make


class Ours:
    """`orchestrator worker`, as long as there is something to do."""

    def __init__(self, client: Client) -> None:
        self._url = f"unix://{client.connection_pool.connection_kwargs['path']}"

    def work(self, burst: bool) -> None:
        assert burst
        command = ["orchestrator", "worker", "--burst", "--redis-url", self._url]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = run_module(command, environment, ROOT, 300)
        assert done.returncode == 0, done.stderr


class Works(Protocol):
    def work(self, burst: bool) -> Any: ...


WORKERS: dict[str, Callable[[Client], Works]] = {
    "Worker": stock(Worker),
    "Worker, StepJob": stock(Worker, StepJob),
    "SimpleWorker": stock(SimpleWorker),
    "orchestrator worker": Ours,
}


def left_in_rqs_place(world: RedisWorld) -> set[str]:
    found = set(world.client.scan_iter("rq:*"))
    passing = {key for key in found if key.startswith(LET_EXPIRE_BY_RQ) and world.client.ttl(key) > 0}
    return found - passing


# ---- the job


def test_rq_reads_our_job(world: RedisWorld, rq_client: Client) -> None:
    record = written(world.store, creation(document(step("a", timeout="7s", input={"x": "ü"}))))
    token = record.steps["a"].token
    assert token is not None

    job = Job.fetch(token, connection=rq_client, serializer=JSONSerializer)

    assert (job.func_name, job.origin, job.timeout) == (RUN_STEP, QUEUE, 37)
    assert job.get_status() == JobStatus.QUEUED
    assert job.args == [world.keys.events_of(record.workflow_execution_id), "a", {"x": "ü"}]
    assert job.kwargs == {"timeout_s": 7.0}
    assert job.description == f"{record.workflow_execution_id}|a|0|1|{token}"


def test_a_step_without_a_timeout_has_none_in_rq_either(world: RedisWorld, rq_client: Client) -> None:
    record = written(world.store, creation(document(step("a", timeout="none"))))
    token = record.steps["a"].token
    assert token is not None
    job = Job.fetch(token, connection=rq_client, serializer=JSONSerializer)
    assert job.timeout == -1


def test_a_job_comes_back_as_it_went() -> None:
    job = DispatchJob("w#x", "a", "fn", {"n": [1, {"ü": None}]}, 2, 3, 4, "t-0", "", "default", 1.5, 99)
    keys = Keys("team", 3)
    found = read_payload(*parts_of(job, keys), job_id="t-0")
    assert found is not None
    assert read_job(found, "default") == job
    assert (found["key"], found["leases"]) == (job.idempotency_key, keys.leases)
    assert found["events"] == keys.events_of("w#x")


def parts_of(job: DispatchJob, keys: Keys) -> tuple[str, str]:
    _, data, _, description = job_args(job, keys.events_of(job.workflow_execution_id), keys.queue("default"))
    return str(data), str(description)


def test_what_few_steps_have_is_in_the_jobs_of_those_alone() -> None:
    plain = DispatchJob("w#x", "a", "fn", {}, 0, token="t-0")
    rich = replace(plain, heartbeat_s=0.5, source={"type": "fn", "configuration": {"a": [1]}})

    options = [json.loads(parts_of(job, Keys())[0])[3] for job in (plain, rich)]
    assert [one.keys() for one in options] == [set(), {"heartbeat_s", "source"}]
    found = read_payload(*parts_of(rich, Keys()), job_id="t-0")
    assert found is not None
    assert read_job(found, "default") == rich


@pytest.mark.parametrize(
    "data",
    [
        "",
        "{",
        "7",
        "null",
        "[]",
        '["os.system",null,["x"],{}]',
        f'["{RUN_STEP}",null,[],{{}}]',
        f'["{RUN_STEP}",null,["x"],{{}}]',
        f'["{RUN_STEP}",null,{{"a":1}},{{}}]',
        f'["{RUN_STEP}",null,["p:events:0","f"],{{}}]',
        f'["{RUN_STEP}",null,["p:events:0","f",[]],{{}}]',
        f'["{RUN_STEP}",null,[7,"f",{{}}],{{}}]',
        f'["{RUN_STEP}",null,["p:events:0","f",{{}}],{{"round":"x"}}]',
        f'["{RUN_STEP}",null,["p:events:0","f",{{}}],[]]',
    ],
)
def test_what_is_no_step_of_ours_has_no_payload(data: str) -> None:
    assert read_payload(data, LEASE, job_id="t") is None


LEASE = "w#x|a|0|1|t"


@pytest.mark.parametrize("description", [None, "", "step a", "w#x|a|0|t", "w#x|a|0|one|t", b"\xff|a|0|1|t"])
def test_a_job_whose_description_is_no_lease_has_no_payload(description: str | bytes | None) -> None:
    data = f'["{RUN_STEP}",null,["p:events:0","f",{{}}],{{}}]'

    assert read_payload(data, LEASE, job_id="t") is not None
    assert read_payload(data, description, job_id="t") is None


# ---- workers


@pytest.mark.parametrize("make", WORKERS.values(), ids=WORKERS)
def test_a_workflow_runs_under_every_worker_and_leaves_nothing_behind(
    world: RedisWorld, rq_client: Client, make: Callable[[Client], Works]
) -> None:
    one = world.coordinator()
    spec = document(step("a", fn="fine", input={"n": 1}), step("b", after="a", fn="fine"))
    weid = world.begin(one, spec)
    for _ in range(2):
        make(rq_client).work(burst=True)
        one.run_once()

    record = world.record(weid)
    assert record.status == "complete"
    output = record.steps["a"].output
    assert output["n"] == 1
    assert (output["pid"] == os.getpid()) == (make is WORKERS["SimpleWorker"])
    assert left_in_rqs_place(world) == KEPT_BY_RQ
    assert (world.leases(), world.timers(), world.pending()) == ({}, {}, [])


@pytest.mark.parametrize("fn", ["killed", "leaves"])
def test_our_worker_reports_a_dead_work_horse_at_once(world: RedisWorld, rq_client: Client, fn: str) -> None:
    one = world.coordinator()
    world.begin(one, document(step("a", fn=fn)))
    payload = world.payloads()[0]

    Ours(rq_client).work(burst=True)

    [(_, event)] = world.events()
    assert (event["type"], event["token"]) == ("lost", payload["token"])
    assert ("signal 9" if fn == "killed" else "exit 3") in event["reason"]


def test_the_sweep_finds_a_dead_work_horse_of_a_stock_worker(world: RedisWorld, rq_client: Client) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a", fn="killed"), limits={"max_lost": 1}))
    for _ in range(2):
        stock(Worker)(rq_client).work(burst=True)
        one.run_once()
        one.run_once()
    error = world.record(weid).error
    assert error is not None
    assert (error["kind"], "work-horse died (signal 9): it was killed" in error["message"]) == ("lost", True)
    assert "ORCHESTRATOR_MAX_MEMORY" in error["message"]
    assert left_in_rqs_place(world) == KEPT_BY_RQ


@pytest.mark.parametrize("worker_class", [Worker, SimpleWorker])
def test_a_stock_worker_with_another_serializer_is_named_in_the_error(
    world: RedisWorld, rq_client: Client, worker_class: type[Worker]
) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a", fn="killed"), limits={"max_lost": 1}))
    for _ in range(2):
        worker_class(["orchestrator.default"], connection=rq_client).work(burst=True)
        one.run_once()
        one.run_once()

    error = world.record(weid).error
    assert error is not None
    assert error == {
        "kind": "lost",
        "message": f"{WRONG_SERIALIZER} (2 workers lost with this attempt)",
        "step": "a",
    }
    history = [entry for entry in world.history(weid) if "reason" in entry]
    assert {entry["reason"] for entry in history} == {WRONG_SERIALIZER}
    assert left_in_rqs_place(world) == KEPT_BY_RQ


@pytest.mark.parametrize("named", ["no_such_module", "contract_executors,no_such_module"])
def test_executors_that_cannot_be_imported_are_the_error_of_the_step(
    world: RedisWorld, rq_client: Client, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("ORCHESTRATOR_EXECUTORS", named)
    one = world.coordinator()
    weid = world.begin(one, document(step("a", fn="fine")))
    stock(SimpleWorker)(rq_client).work(burst=True)
    one.run_once()
    error = world.record(weid).error
    assert error is not None
    assert "no_such_module" in error["message"]


# ---- forged jobs


def forge(world: RedisWorld, function: str, args: list[Any], **fields: str) -> None:
    now = "2026-01-01T00:00:00.000000Z"
    job: dict[Any, Any] = {
        "data": json.dumps([function, None, args, {}]),
        "timeout": "30",
        "created_at": now,
        "enqueued_at": now,
        "origin": QUEUE,
        "status": "queued",
        "description": "forged",
        **fields,
    }
    world.client.hset("rq:job:forged", mapping=job)
    world.client.sadd("rq:queues", f"rq:queue:{QUEUE}")
    world.client.rpush(f"rq:queue:{QUEUE}", "forged")


def test_a_stock_worker_would_run_anything(world: RedisWorld, rq_client: Client, executors: Path) -> None:
    """Why we have a worker of our own."""
    forge(world, "os.system", [f"touch {executors}"])
    stock(SimpleWorker)(rq_client).work(burst=True)
    assert executors.exists()


@pytest.mark.parametrize(
    "function", ["os.system", "contract_executors.touch", "orchestrator.worker.harness.Harness"]
)
def test_our_worker_runs_nothing_but_steps(
    world: RedisWorld, rq_client: Client, executors: Path, function: str
) -> None:
    forge(world, function, [f"touch {executors}"])

    Ours(rq_client).work(burst=True)

    assert not executors.exists()
    assert left_in_rqs_place(world) == KEPT_BY_RQ, "it is dropped"


@pytest.mark.parametrize(
    "callback", ["failure_callback_name", "success_callback_name", "stopped_callback_name"]
)
def test_our_worker_calls_nobody_back(
    world: RedisWorld, rq_client: Client, executors: Path, callback: str
) -> None:
    if callback == "failure_callback_name":
        forge(world, "os.system", ["true"], failure_callback_name="contract_executors.touch")
    else:
        record = written(world.store, creation(document(step("a", fn="fine"))))
        token = record.steps["a"].token
        world.client.hset(f"rq:job:{token}", callback, "contract_executors.touch")

    Ours(rq_client).work(burst=True)

    assert not executors.exists()


def test_a_job_with_rubbish_for_data_does_not_end_our_worker(world: RedisWorld, rq_client: Client) -> None:
    forge(world, "x", [])
    world.client.hset("rq:job:forged", "data", b"\xff\xfe")
    one = world.coordinator()
    weid = world.begin(one, document(step("a", fn="fine")))
    Ours(rq_client).work(burst=True)
    one.run_once()
    assert world.status(weid) == "complete"


CORRUPT: dict[str, Json] = {
    "status": {"status": "exploded"},
    "date": {"created_at": "yesterday"},
    "timeout": {"timeout": "soon"},
}


@pytest.mark.parametrize("fields", CORRUPT.values(), ids=CORRUPT)
def test_a_job_that_rq_cannot_read_does_not_end_our_worker(
    world: RedisWorld, rq_client: Client, fields: Json
) -> None:
    forge(world, "x", [], **fields)
    one = world.coordinator()
    weid = world.begin(one, document(step("a", fn="fine")))
    Ours(rq_client).work(burst=True)
    one.run_once()
    assert world.status(weid) == "complete"
