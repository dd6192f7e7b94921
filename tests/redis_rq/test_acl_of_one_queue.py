"""The worker user of docs/acl that is limited to one queue: it serves that queue, and no other."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import NoPermissionError, ResponseError

from orchestrator.application.records.decisions import Complete
from orchestrator.application.values.dispatch_tokens import dispatch_id
from orchestrator.redis_rq.connection import Client
from orchestrator.redis_rq.keys import Keys
from processes import JSON_SERIALIZER, PatientClient, Stack, stack, wait_until
from redis_rq.test_acl import ADMINISTRATION, CLASS, FORBIDDEN, NOT_ALLOWED
from servers.guarded_redis import GuardedRedis, guarded_redis
from worlds.attacks import CREW, STOCK, WARM

pytestmark = pytest.mark.slow

OWN, OTHER = "own_q.1", "own_q"
"""The name of one queue begins like the other, and both have characters that job ids write in another way."""
USER = f"worker-of-{OWN}"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedRedis]:
    with guarded_redis(tmp_path, OWN) as made:
        yield made


@pytest.fixture
def processes(guarded: GuardedRedis, tmp_path: Path) -> Iterator[Stack]:
    """A coordinator; no worker yet."""
    with stack(guarded.url("coordinator"), "step_functions", tmp_path / "logs") as made:
        made.coordinator()
        yield made


def serve(
    processes: Stack, guarded: GuardedRedis, kind: str = WARM, user: str = USER, queue: str = OWN
) -> None:
    processes.url = guarded.url(user)
    if kind == STOCK:
        names = [f"orchestrator.{queue}:1", f"orchestrator.{queue}"]
        rq = (sys.executable, "-m", "rq.cli", "worker", "--url", processes.url, *JSON_SERIALIZER)
        processes._spawn(*rq, "--job-class", CLASS, *names)
    else:
        processes.worker(queue, *kind.split()[2:])


def add(queue: str, **more: Any) -> dict[str, Any]:
    return {"steps": [{"id": "a", "fn": "add", "input": {"a": 1, "b": 2}, "queue": queue, **more}]}


@pytest.mark.parametrize("kind", [STOCK, WARM, CREW])
def test_it_serves_its_queue_and_is_refused_nothing(
    guarded: GuardedRedis, processes: Stack, kind: str
) -> None:
    operator, reader = PatientClient(guarded.client("operator")), PatientClient(guarded.client("reader"))
    steps = [
        *add(OWN, priority=1)["steps"],
        {"id": "speaks", "fn": "talks", "depends_on": ["a"], "queue": OWN},
        {"id": "many", "fn": "many_rows", "depends_on": ["a"], "input": {"count": 60_000}, "queue": OWN},
        {"id": "fails", "fn": "fail", "depends_on": ["a"], "queue": OWN, "on_error": "continue"},
        {"id": "absent", "fn": "no_such_function", "depends_on": ["a"], "queue": OWN},
    ]
    serve(processes, guarded, kind)

    operator.start({"steps": steps}, {}, "x1")
    wait_until(lambda: is_declined(reader, "x1"), what=processes.log())
    operator.cancel("x1", reason="enough")
    reader.wait("x1", 180)

    done = {step: reader.record("x1").steps[step].status for step in ("a", "speaks", "many", "fails")}
    assert done == {"a": "complete", "speaks": "complete", "many": "complete", "fails": "failed"}
    assert [line.text for line in reader.step_log("x1", "speaks")]
    assert guarded.refusals() == [], processes.log()


def is_declined(reader: PatientClient, execution_id: str) -> bool:
    """Whether nothing is left but the step that every worker declines."""
    steps = reader.record(execution_id).steps
    ended = [steps[step].ended_at for step in ("a", "speaks", "many", "fails")]
    return all(ended) and steps["absent"].declined > 0


@pytest.fixture
def dispatched(guarded: GuardedRedis, processes: Stack) -> dict[str, tuple[str, str]]:
    """For each of the two queues the job id and the token of a step that waits there, without a worker."""
    operator, reader = PatientClient(guarded.client("operator")), PatientClient(guarded.client("reader"))
    found = {}
    for queue in (OWN, OTHER):
        operator.start(add(queue), {}, queue)
        token = str(reader.record(queue).steps["a"].token)
        with guarded.client("admin") as admin:
            [job_id] = admin.lrange(f"rq:queue:orchestrator.{queue}", 0, -1)
        found[queue] = (str(job_id), token)
    return found


def refused(client: Client, command: list[str]) -> bool:
    try:
        client.execute_command(*command)  # type: ignore[no-untyped-call]
    except NoPermissionError:
        return True
    return False


def test_it_cannot_read_change_or_take_the_jobs_of_another_queue(
    guarded: GuardedRedis, dispatched: dict[str, tuple[str, str]]
) -> None:
    (own, _), (other, _) = dispatched[OWN], dispatched[OTHER]
    job, queue = Keys.rq_job(other), f"rq:queue:orchestrator.{OTHER}"
    commands = [
        *(
            ["HGETALL", job],
            ["HGET", job, "data"],
            ["HSET", job, "data", "x"],
            ["DEL", job],
            ["EXPIRE", job, "1"],
        ),
        *(["RENAME", job, Keys.rq_job(own)], ["COPY", job, Keys.rq_job(own)], ["DUMP", job], ["TYPE", job]),
        *(["LPOP", queue], ["LRANGE", queue, "0", "-1"], ["RPUSH", queue, own], ["RPUSH", f"{queue}:1", own]),
        *(
            ["ZADD", f"rq:failed:orchestrator.{OTHER}", "1", other],
            ["XADD", f"rq:results:{other}", "*", "a", "b"],
        ),
        *(["SCAN", "0", "MATCH", "rq:job:*"], ["KEYS", "rq:job:*"], ["PUBLISH", "rq:pubsub:w1", "x"]),
    ]

    with guarded.client(USER) as client:
        assert client.hget(Keys.rq_job(own), "status") == "queued"
        assert [command for command in commands if not refused(client, command)] == []
        for call in (
            f"'HGETALL', '{job}'",
            f"'LPOP', '{queue}'",
            "'SCAN', '0'",
            "'PUBLISH', 'rq:pubsub:w', 'x'",
        ):
            with pytest.raises(ResponseError, match=NOT_ALLOWED):
                client.eval(f"return redis.call({call})", 0)


def test_it_can_do_nothing_that_the_shared_worker_user_cannot(guarded: GuardedRedis) -> None:
    with guarded.client(USER) as client:
        commands = [command.split() for command in ADMINISTRATION + FORBIDDEN["worker"]]
        assert [command for command in commands if not refused(client, command)] == []


def test_a_result_that_it_makes_up_for_a_step_of_another_queue_is_dropped(
    guarded: GuardedRedis, processes: Stack, dispatched: dict[str, tuple[str, str]]
) -> None:
    (other, token), (_, own_token) = dispatched[OTHER], dispatched[OWN]
    reader = PatientClient(guarded.client("reader"))
    weid = reader.record(OTHER).workflow_execution_id
    run = {"execution": weid, "step": "a", "run_id": "0", "attempt": "1"}
    guesses = [dispatch_id(token), other, own_token, f"{dispatch_id(token)}.{own_token.partition('.')[2]}"]

    with guarded.client(USER) as client:
        for guess in guesses:
            result = {"type": "result", **run, "token": guess, "output": json.dumps({"sum": 666})}
            client.xadd(Keys().events_of(weid), result)
            client.xadd(Keys().events_of(weid), {"type": "started", **run, "token": guess, "worker": "w"})
    with guarded.client("admin") as admin:
        stale = 2 * len(guesses)
        wait_until(lambda: int(str(admin.hget(Keys().counters, "stale") or 0)) == stale, what=processes.log())
    assert (reader.record(OTHER).status, reader.record(OTHER).steps["a"].worker) == ("in_progress", None)

    serve(processes, guarded, user="worker", queue=OTHER)
    assert isinstance(reader.wait(OTHER, 180), Complete), processes.log()
    assert reader.record(OTHER).steps["a"].output == {"sum": 3}
