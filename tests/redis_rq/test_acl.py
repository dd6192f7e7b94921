"""The users of docs/acl: the whole system works with them, and none of them can do what it has no need to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from orchestrator.application.records.decisions import Cancelled, Complete
from orchestrator.cli.main import main
from orchestrator.payload_stores import PayloadSettings
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.payloads import RedisPayloads
from processes import JSON_SERIALIZER, PatientClient, Stack, wait_until
from servers.guarded_redis import USERS, GuardedRedis, guarded_redis
from worlds.attacks import CREW, STOCK, WARM

pytestmark = pytest.mark.slow

CLASS = "orchestrator.worker.step_job.StepJob"
NOT_ALLOWED = r"can't (access|run)|[Nn]o permissions to (access|run)"  # Redis until 7.0, and later ones
STEPS = [
    {"id": "add", "fn": "add", "input": {"a": 1, "b": {"var": "input.b"}}},
    {
        "id": "speaks",
        "fn": "talks",
        "depends_on": ["add"],
        "concurrency": {"key": "one", "limit": 1},
    },
    {"id": "many", "fn": "many_rows", "depends_on": ["add"], "input": {"count": 60_000}},
    {
        "id": "sum",
        "fn": "sum_of_rows",
        "input": {"rows": {"var": "steps.many.output.rows"}},
        "depends_on": ["many"],
    },
    {"id": "each", "fn": "nothing", "map": {"over": [1, 2, 3], "as": "n"}, "depends_on": ["add"]},
    {"id": "go", "wait": {"signal": "go", "timeout": "60s"}, "depends_on": ["add", "sum"]},
]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedRedis]:
    with guarded_redis(tmp_path) as made:
        yield made


def serve(stack: Stack, guarded: GuardedRedis, kind: str) -> None:
    """A coordinator and a worker, each as the user that it should be."""
    stack.url = guarded.url("coordinator")
    stack.coordinator()
    stack.url = guarded.url("worker")
    if kind == STOCK:
        stack._spawn(
            *(sys.executable, "-m", "rq.cli", "worker", "--url", stack.url, *JSON_SERIALIZER),
            *("--job-class", CLASS, "orchestrator.default"),
        )
    else:
        stack.worker("default", *kind.split()[2:])


@pytest.mark.parametrize("kind", [STOCK, WARM, CREW])
def test_a_workflow_runs_from_start_to_end_and_nobody_is_refused_anything(
    guarded: GuardedRedis, tmp_path: Path, kind: str
) -> None:
    stack = Stack("", "step_functions", tmp_path / "logs")
    stack.folder.mkdir()
    producer, operator = PatientClient(guarded.client("producer")), PatientClient(guarded.client("operator"))
    reader = PatientClient(guarded.client("reader"))
    try:
        serve(stack, guarded, kind)
        operator.register("shop", {"steps": STEPS, "schedule": {"cron": "0 0 1 1 *"}})

        started = producer.start("shop", {"b": 2}, "x1", reply_timeout_s=180)
        other = producer.start({"steps": STEPS}, {"b": 2, "large": "x" * 2_000_000}, "x2")
        wait_until(lambda: reader.record("x1").steps["sum"].status == "complete", what=stack.log())
        assert operator.signal("x1", "go", {"by": "ada"})
        operator.cancel(other.execution_id, reason="enough")

        assert isinstance(reader.wait(started.execution_id, 180), Complete), stack.log()
        assert isinstance(reader.wait("x2", 180), Cancelled)
        assert [line.text for line in reader.step_log("x1", "speaks")]
        assert reader.record("x1").steps["sum"].output == {"sum": 1_799_970_000, "count": 60_000}
        operator.delete("x2")
    finally:
        stack.end()
    assert guarded.refusals() == [], stack.log()


READS = (
    "show x1",
    "list",
    "failures",
    "history x1",
    "check-consistency",
    "explain x1",
    "dead-letters list",
    "workflows",
    "schedules",
    "graph x1",
)


def test_a_reader_may_look_at_everything_by_the_command_line(guarded: GuardedRedis, tmp_path: Path) -> None:
    stack = Stack("", "step_functions", tmp_path / "logs")
    stack.folder.mkdir()
    operator = PatientClient(guarded.client("operator"))
    try:
        serve(stack, guarded, WARM)
        operator.register("shop", {"steps": STEPS})
        operator.start("shop", {"b": 2}, "x1", reply_timeout_s=180)
        wait_until(lambda: operator.record("x1").steps["sum"].status == "complete", what=stack.log())
        for command in READS:
            done = orchestrator(guarded.url("reader"), *command.split())
            assert done.exit_code == 0, (command, done.output)
        doctor = orchestrator(guarded.url("reader"), "doctor")
        assert "redis" in doctor.output
        done = orchestrator(guarded.url("coordinator"), "check-consistency", "--repair")
        assert done.exit_code == 0, done.output
    finally:
        stack.end()
    assert guarded.refusals() == []


def test_doctor_says_that_its_user_lacks_a_permission(guarded: GuardedRedis) -> None:
    done = orchestrator(guarded.url("producer"), "doctor")

    assert done.exit_code == 1
    assert "this Redis user lacks a permission: " in done.output
    assert "(docs/security.md)" in done.output


def orchestrator(url: str, *words: str) -> Result:
    return CliRunner().invoke(main, ["--redis-url", url, *words])


ADMINISTRATION = (
    "FLUSHALL",
    "FLUSHDB",
    "KEYS *",
    "CONFIG GET *",
    "CONFIG SET appendonly no",
    "ACL LIST",
    "ACL SETUSER default on nopass ~* +@all",
    "SHUTDOWN NOSAVE",
    "SAVE",
    "MONITOR",
    "CLIENT KILL TYPE normal",
    "SCRIPT FLUSH",
    "REPLICAOF 127.0.0.1 1",
    "MODULE LIST",
    "FUNCTION FLUSH",
    "GET others",
    "SET others x",
    "RPUSH rq:queue:default x",
    "PUBLISH others x",
    "CLIENT TRACKING ON BCAST",
    "RANDOMKEY",
)
FORBIDDEN: dict[str, tuple[str, ...]] = {
    "producer": (
        "SUBSCRIBE orchestrator:changed:x",
        "XADD orchestrator:events:0 * type control",
        "XRANGE orchestrator:starts - +",
        "XDEL orchestrator:starts 1-1",
        "DEL orchestrator:starts",
        "HGETALL orchestrator:workflow:x#1",
        "HSET orchestrator:definitions a b",
        "GET orchestrator:payload:x",
        "RPUSH rq:queue:orchestrator.default x",
        "HSET rq:job:x data x",
        "EVAL return 0",
    ),
    "worker": (
        "HGETALL orchestrator:workflow:x#1",
        "HSET orchestrator:workflow:x#1 status complete",
        "DEL orchestrator:workflow:x#1",
        "XADD orchestrator:starts * spec x",
        "XADD orchestrator:dead * x y",
        "XRANGE orchestrator:events:0 - +",
        "ZREM orchestrator:leases x",
        "DEL orchestrator:leases",
        "ZADD orchestrator:timers 1 x",
        "HGETALL orchestrator:spec:x",
        "SADD rq:queues x",
        "SET rq:suspended 1",
        'PUBLISH rq:pubsub:w1 {"command":"shutdown"}',
        "SPUBLISH rq:pubsub:w1 x",
        "PSUBSCRIBE rq:pubsub:*",
        "PUBSUB CHANNELS",
        "SCAN 0 MATCH rq:job:*",
        "ZRANGE orchestrator:leases 0 -1",
        "ZSCAN orchestrator:leases 0",
        "DEL orchestrator:payload:x",
    ),
    "coordinator": ("HSET rq:worker:x state x", "SMEMBERS rq:workers", "LPOP rq:queue:default"),
    "reader": (
        "PUBLISH orchestrator:changed:x y",
        "XADD orchestrator:starts * spec x",
        "XADD orchestrator:events:0 * type control",
        "HSET orchestrator:workflow:x#1 status complete",
        "DEL orchestrator:workflow:x#1",
        "SET orchestrator:payload:x y",
        "GETEX orchestrator:payload:x PX 1",
        "GETDEL orchestrator:payload:x",
        "EXPIRE orchestrator:payload:x 0",
        "BLMOVE orchestrator:answer:x orchestrator:answer:x LEFT LEFT 1",
        "HSET rq:job:x data x",
    ),
    "operator": (
        "PUBLISH orchestrator:changed:x y",
        "HSET orchestrator:workflow:x#1 status complete",
        "DEL orchestrator:workflow:x#1",
        "ZREM orchestrator:leases x",
        "RPUSH rq:queue:orchestrator.default x",
        "HSET rq:job:x data x",
        "GETEX orchestrator:payload:x PX 1",
        'PUBLISH rq:pubsub:w1 {"command":"shutdown"}',
    ),
}


@pytest.mark.parametrize("user", USERS)
def test_nobody_can_do_what_it_has_no_need_to(guarded: GuardedRedis, user: str) -> None:
    allowed = []
    for command in ADMINISTRATION + FORBIDDEN[user]:
        with guarded.client(user) as client:
            try:
                client.execute_command(*command.split())
                allowed.append(command)
            except NoPermissionError:
                pass
    assert allowed == []


@pytest.mark.parametrize("user", ["worker", "coordinator", "reader", "operator"])
def test_a_script_may_do_what_its_caller_may_and_no_more(guarded: GuardedRedis, user: str) -> None:
    with guarded.client(user) as client:
        for command in ("'SET', 'others', 'x'", "'FLUSHALL'", "'LPUSH', 'rq:queue:default', 'x'"):
            sha = client.script_load(f"return redis.call({command})")
            with pytest.raises(ResponseError, match=NOT_ALLOWED):
                client.evalsha(str(sha), 0)


@pytest.mark.parametrize("command", ["'PUBLISH', 'rq:pubsub:w1', 'x'", "'SCAN', '0'", "'RANDOMKEY'"])
def test_a_script_of_a_worker_can_neither_stop_workers_nor_find_jobs(
    guarded: GuardedRedis, command: str
) -> None:
    with guarded.client("worker") as client, pytest.raises(ResponseError, match=NOT_ALLOWED):
        client.eval(f"return redis.call({command})", 0)


@pytest.mark.parametrize("user", ["reader", "operator"])
def test_changes_of_an_execution_are_published_by_a_coordinator_and_read_by_pages(
    guarded: GuardedRedis, user: str
) -> None:
    channel = "orchestrator:changed:x#1"
    with guarded.client("coordinator") as coordinator, guarded.client(user) as client:
        subscription = client.pubsub()
        subscription.subscribe(channel)
        assert subscription.get_message(timeout=30)["type"] == "subscribe"

        assert coordinator.publish(channel, "") == 1

        assert subscription.get_message(timeout=30)["type"] == "message"
        subscription.close()


def test_a_reader_gets_a_large_value_and_cannot_make_it_expire(guarded: GuardedRedis) -> None:
    with guarded.client("producer") as producer:
        RedisPayloads(producer, Keys(), ttl_s=1_000).put("x", b"large")

    with guarded.client("reader") as reader:
        read = PayloadSettings().open(reader, Keys(), renews=False).get("x")
        with pytest.raises(NoPermissionError):
            reader.execute_command("GETEX", Keys().payload("x"), "PX", 1)

    with guarded.client("admin") as admin:
        assert (read, admin.exists(Keys().payload("x"))) == (b"large", 1)


def test_who_has_no_password_is_nobody(guarded: GuardedRedis) -> None:
    with guarded.server.client() as client, pytest.raises(AuthenticationError):
        client.get("orchestrator:starts")
