"""Jobs and leases that others may read: they name a dispatch, and do not say how to complete its step."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from rq import Queue
from rq.command import send_stop_job_command
from rq.job import Job
from rq.serializers import JSONSerializer

from orchestrator.application.spec.tag_routes import TagRoutes
from orchestrator.application.values.dispatch_tokens import dispatch_id, has_secret
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.job_taker import JobTaker, WorkerQueues
from orchestrator.redis_rq.keys import Keys, job_id_of, job_id_prefix
from orchestrator.redis_rq.queries.inspection import Inspection
from orchestrator.redis_rq.queries.record_queries import RecordQueries
from orchestrator.redis_rq.queries.rq_workers import queue_position
from orchestrator.redis_rq.verify.verifier import Verifier
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

QUEUE = "orchestrator.default"
SPEC = document(step("a"))


def token_of(world: RedisWorld, weid: str) -> str:
    token = world.record(weid).steps["a"].token
    assert token is not None
    return token


def begun(world: RedisWorld) -> tuple[Coordinator, str, str]:
    """A coordinator, an execution whose step waits in its queue, and the token of the step."""
    one = world.coordinator()
    weid = world.begin(one, SPEC)
    return one, weid, token_of(world, weid)


@pytest.fixture
def bare(world: RedisWorld) -> Iterator[Client]:
    """A client of the same server that does not decode."""
    with connect(f"unix://{world.client.connection_pool.connection_kwargs['path']}", decodes=False) as client:
        yield client


def taker(client: Client, queue: str = QUEUE) -> JobTaker:
    return JobTaker(client, WorkerQueues("w1", [queue], Keys()), lambda: 9_999_999_999_999)


def result(weid: str, token: str) -> dict[str, str]:
    run = {"execution": weid, "step": "a", "run_id": "0", "attempt": "1", "token": token}
    return {"type": "result", "output": '{"n":1}', **run}


# ---- the form of ids


@pytest.mark.parametrize(
    ("queue", "prefix"),
    [
        ("orchestrator.default", "orchestrator_2Edefault__"),
        ("orchestrator.default:1", "orchestrator_2Edefault__"),
        ("a:b.my_queue-2", "a_3Ab_2Emy_5Fqueue-2__"),
    ],
)
def test_a_job_id_begins_with_the_queue_in_characters_that_rq_allows(queue: str, prefix: str) -> None:
    made = job_id_of(queue, "-_AAAAAAAAAA.secret")

    assert (job_id_prefix(queue), made) == (prefix, f"{prefix}-_AAAAAAAAAA")
    assert re.fullmatch(r"[A-Za-z0-9_-]+", made)


def test_no_job_id_begins_as_those_of_another_queue() -> None:
    names = ["a", "ab", "a_", "a__", "a-", "a.b", "a_2Eb", "a__b", "A", "a-b"]
    prefixes = [job_id_prefix(Keys("p").queue(name)) for name in names]

    assert len(set(prefixes)) == len(names)
    for own in prefixes:
        begins = [prefix for prefix in prefixes if f"{own}__AAAAAAAAAA".startswith(prefix)]
        assert begins == [own]


# ---- what others may read


def test_only_the_data_of_a_job_has_the_token(world: RedisWorld) -> None:
    _, _, token = begun(world)
    [job_id], [lease] = world.waiting(), world.leases()
    job: dict[str, str] = world.client.hgetall(Keys.rq_job(job_id))  # type: ignore[assignment]
    secret = token.rpartition(".")[2]

    assert has_secret(token)
    assert job_id == f"orchestrator_2Edefault__{dispatch_id(token)}"
    assert (lease, job["description"]) == (lease, lease)
    assert lease.endswith(f"|a|0|1|{dispatch_id(token)}")
    assert [name for name, value in job.items() if secret in value] == ["data"]
    assert not [text for text in (job_id, lease) if secret in text]


def test_what_leases_and_descriptions_say_does_not_complete_a_step(world: RedisWorld) -> None:
    one, weid, token = begun(world)
    [job_id] = world.waiting()

    for guess in (dispatch_id(token), job_id, f"{dispatch_id(token)}."):
        world.send(world.keys.events_of(weid), result(weid, guess))
    one.run_once()
    assert (world.status(weid), world.counter("stale")) == ("in_progress", 3)

    world.send(world.keys.events_of(weid), result(weid, token))
    one.run_once()
    assert (world.status(weid), world.leases()) == ("complete", {})


def test_a_step_runs_and_nothing_is_left(world: RedisWorld) -> None:
    one, weid, _ = begun(world)

    world.settle(one)

    assert world.status(weid) == "complete"
    assert (world.leases(), world.waiting(), world.client.keys("rq:job:*")) == ({}, [], [])


def test_the_tools_of_rq_take_the_id(world: RedisWorld, bare: Client) -> None:
    _, weid, token = begun(world)
    [job_id] = world.waiting()
    [(taken, _)] = taker(bare).take(1)
    later = world.begin(world.coordinator(), SPEC)
    queue = Queue(QUEUE, connection=bare, serializer=JSONSerializer)

    job = Job.fetch(job_id, connection=bare, serializer=JSONSerializer)
    with world.connect().pubsub(ignore_subscribe_messages=True) as commands:  # type: ignore[no-untyped-call]
        commands.subscribe("rq:pubsub:w1")
        commands.get_message(timeout=5)
        send_stop_job_command(bare, job_id, serializer=JSONSerializer)
        command: Any = commands.get_message(timeout=5)

    assert (taken, job.id, job.get_status(), job.worker_name) == (job_id, job_id, "started", "w1")
    assert job.description == f"{weid}|a|0|1|{dispatch_id(token)}"
    assert json.loads(command["data"])["job_id"] == job_id
    [waiting] = queue.jobs
    assert (queue.job_ids, waiting.get_position()) == ([job_id_of(QUEUE, token_of(world, later))], 0)
    Job(job_id, bare).id = waiting.id  # RQ checks the characters of an id here


# ---- losses and revocations, by the id


def test_a_lease_that_expires_is_a_loss(world: RedisWorld) -> None:
    one, weid, token = begun(world)
    assert world.pop() is not None
    world.client.zadd(world.keys.leases, dict.fromkeys(world.leases(), 1), xx=True)

    one.run_once()
    one.run_once()

    again = token_of(world, weid)
    assert (again != token, world.record(weid).steps["a"].run_id, world.counter("lost")) == (True, 1, 1)
    assert world.waiting() == [job_id_of(QUEUE, again)]


def test_a_job_that_rq_calls_failed_is_a_loss(world: RedisWorld) -> None:
    one, weid, _ = begun(world)
    job_id = str(world.client.lpop(Keys.rq_queue(QUEUE)))
    world.client.zadd(Keys.rq_failed(QUEUE), {job_id: 1})

    one.run_once()
    one.run_once()

    assert (world.counter("lost"), world.client.zcard(Keys.rq_failed(QUEUE))) == (1, 0)
    assert world.record(weid).steps["a"].run_id == 1


def test_a_job_that_has_left_its_queue_becomes_due(world: RedisWorld) -> None:
    one, _, _ = begun(world)
    [(lease, queued_at)] = world.leases().items()
    world.client.lpop(Keys.rq_queue(QUEUE))

    one.run_once()

    assert world.leases()[lease] < queued_at


def test_a_cancelled_step_leaves_the_queue_or_is_stopped(world: RedisWorld, bare: Client) -> None:
    one, weid, _ = begun(world)
    other = world.begin(one, SPEC)
    running = taker(bare)
    [(job_id, payload)] = running.take(1)
    assert payload is not None
    with world.connect().pubsub(ignore_subscribe_messages=True) as commands:  # type: ignore[no-untyped-call]
        commands.subscribe("rq:pubsub:w1")
        commands.get_message(timeout=5)

        for execution in (weid, other):
            event = {"type": "control", "action": "cancel", "execution": execution}
            world.send(world.keys.events_of(execution), event)
        one.run_once()

        command: Any = commands.get_message(timeout=5)
    assert json.loads(command["data"]) == {"command": "stop-job", "job_id": job_id}
    assert world.client.keys("rq:job:*") == [Keys.rq_job(job_id)], "only the one that runs"
    assert running.is_superseded()


def test_a_job_whose_route_has_changed_is_not_run_after_its_step_was_cancelled(
    world: RedisWorld, bare: Client
) -> None:
    spec = document(step("a", tags=["gpu"]))
    world.routes = TagRoutes.parse("gpu=box")
    weid = world.begin(world.coordinator(), spec)
    world.routes = TagRoutes.parse("gpu=other")
    world.killed("one")
    two = world.coordinator("two")
    event = {"type": "control", "action": "cancel", "execution": weid}
    world.send(world.keys.events_of(weid), event)

    two.run_once()

    assert (world.status(weid), world.leases()) == ("cancelled", {})
    assert taker(bare, "orchestrator.box").take(1) == []
    assert world.client.keys("rq:job:*") == []


# ---- looking


def test_the_job_of_a_dispatch_is_found_whatever_its_queue(world: RedisWorld) -> None:
    one = world.coordinator()
    spec = document(step("a", input={"n": 7}, queue="far", priority=1))
    tokens = [token_of(world, world.begin(one, spec)) for _ in range(2)]

    queries, inspection = RecordQueries(world.client, world.keys), Inspection(world.client, world.keys)

    assert queries.inputs_of(tokens[1]) == {"n": 7}
    assert queue_position(inspection, tokens[1]) == ("orchestrator.far:1", 1)
    assert queries.inputs_of("AAAAAAAAAAAA.BBBBBBBBBBBB") is None


def test_a_published_loss_explains_a_missing_lease(world: RedisWorld) -> None:
    _, weid, token = begun(world)
    [lease] = world.leases()
    world.client.zrem(world.keys.leases, lease)
    found = Verifier(world.client, world.keys).verify_record(weid).found
    assert [one.finding.words for one in found] == [f"dispatch {dispatch_id(token)} has no lease"]

    run = {"execution": weid, "step": "a", "run_id": "0", "attempt": "1", "token": dispatch_id(token)}
    world.send(world.keys.events_of(weid), {"type": "lost", **run})

    assert Verifier(world.client, world.keys).verify_record(weid).found == []


# ---- beside an earlier release


def test_tokens_get_a_secret_when_no_coordinator_of_an_earlier_release_is_alive(world: RedisWorld) -> None:
    world.client.zadd(world.keys.coordinators, {"old": world.now_ms()})
    one, weid, token = begun(world)
    [lease] = world.leases()
    assert (has_secret(token), world.waiting(), lease.rpartition("|")[2]) == (False, [token], token)

    world.client.zrem(world.keys.coordinators, "old")
    one.run_once()
    later = world.begin(one, SPEC)

    assert has_secret(token_of(world, later))
    world.settle(one)
    assert (world.status(weid), world.status(later), world.leases()) == ("complete", "complete", {})


def test_a_job_of_an_earlier_release_is_revoked_and_lost_as_before(world: RedisWorld) -> None:
    world.client.zadd(world.keys.coordinators, {"old": world.now_ms()})
    one, weid, token = begun(world)
    other = world.begin(one, SPEC)
    world.client.zrem(world.keys.coordinators, "old")
    world.client.lrem(Keys.rq_queue(QUEUE), 1, token)
    [lease] = [lease for lease in world.leases() if lease.endswith(token)]
    world.client.zadd(world.keys.leases, {lease: 1})
    world.send(world.keys.events_of(other), {"type": "control", "action": "cancel", "execution": other})

    one.run_once()
    one.run_once()

    assert (world.record(weid).steps["a"].run_id, has_secret(token_of(world, weid))) == (1, True)
    assert world.status(other) == "cancelled"
    assert not world.client.exists(Keys.rq_job(token_of_other(world)))
    world.settle(one)
    assert (world.status(weid), world.leases()) == ("complete", {})


def token_of_other(world: RedisWorld) -> str:
    """The first job in the queue: the one that was revoked."""
    return str(world.client.lindex(Keys.rq_queue(QUEUE), 0))
