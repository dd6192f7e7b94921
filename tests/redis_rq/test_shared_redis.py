"""What docs/security.md says that the users of docs/acl can still do: each claim is tried on a real server.

A test that fails here is good news for the code, and a sentence that is no longer true in the page.
"""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import NoPermissionError, ResponseError
from rq.job import Job
from rq.serializers import JSONSerializer

from orchestrator.application.errors import PayloadMissing
from orchestrator.application.values.payload_refs import fetch_payload, pack
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.payloads import RedisPayloads
from orchestrator.redis_rq.queries.rq_workers import WORKERS
from processes import is_running, stack, wait_until
from servers.guarded_redis import ACL, GuardedRedis, guarded_redis
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

KEYS = Keys()
OWN = "own"
LIMITED = f"worker-of-{OWN}"
SHARED_AND_LIMITED = pytest.mark.parametrize("user", ["worker", LIMITED])


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedRedis]:
    with guarded_redis(tmp_path, OWN) as made:
        yield made


@pytest.fixture
def world(guarded: GuardedRedis) -> Iterator[RedisWorld]:
    world = RedisWorld(lambda: guarded.client("admin"))
    yield world
    world.close()


def begun(world: RedisWorld) -> tuple[Coordinator, str]:
    """A coordinator, and an execution whose step waits in the queue `default`."""
    one = world.coordinator()
    return one, world.begin(one, document(step("a")))


# ---- a worker user


def test_the_shared_worker_user_finds_the_jobs_of_every_queue_and_completes_their_steps(
    guarded: GuardedRedis, world: RedisWorld
) -> None:
    one, weid = begun(world)

    with guarded.client("worker") as worker:
        [job_id] = worker.lrange("rq:queue:orchestrator.default", 0, -1)
        [_, _, [stream, _, _], options] = json.loads(str(worker.hget(Keys.rq_job(str(job_id)), "data")))
        run = {"execution": weid, "step": "a", "run_id": "0", "attempt": "1", "token": options["token"]}
        worker.xadd(stream, {"type": "result", **run, "output": '{"made": "up"}'})
    one.run_once()

    assert world.record(weid).steps["a"].output == {"made": "up"}


@SHARED_AND_LIMITED
def test_a_worker_user_can_steer_any_execution_whose_id_it_knows(
    guarded: GuardedRedis, world: RedisWorld, user: str
) -> None:
    one, weid = begun(world)
    waiting = world.begin(one, document({"id": "w", "wait": {"signal": "go"}}))
    run = {"execution": weid, "step": "a", "run_id": "0", "attempt": "1"}

    with guarded.client(user) as worker:
        [lease] = world.leases()
        lost: Any = {"type": "lost", **run, "token": lease.rpartition("|")[2], "reason": "made up"}
        worker.xadd(KEYS.events_of(weid), lost)
        worker.xadd(KEYS.events_of(waiting), {"type": "signal", "execution": waiting, "name": "go"})
        one.run_once()
        assert world.record(weid).steps["a"].lost == 1
        worker.xadd(KEYS.events_of(weid), {"type": "control", "execution": weid, "action": "cancel"})
        one.run_once()

    assert (world.status(weid), world.status(waiting)) == ("cancelled", "complete")


@SHARED_AND_LIMITED
def test_a_worker_user_cannot_start_an_execution(guarded: GuardedRedis, world: RedisWorld, user: str) -> None:
    one, weid = begun(world)
    spec = json.dumps(document(step("a")))
    parent = {"execution": weid, "step": "a", "run_id": "0", "attempt": "1", "token": "guess"}
    child = {"type": "child", **parent, "root": weid, "depth": "1", "execution_id": "mine", "inputs": "{}"}

    with guarded.client(user) as worker:
        with pytest.raises(NoPermissionError):
            worker.xadd(KEYS.starts, {"spec": spec})
        worker.xadd(KEYS.events(0), {"spec": spec, "execution_id": "mine"})
        worker.xadd(KEYS.events(0), {"type": "start", "spec": spec, "execution_id": "mine"})
        worker.xadd(KEYS.events(0), {**child, "spec": spec})
    one.run_once()
    one.run_once()

    assert not world.client.exists(KEYS.execution("mine"))


@SHARED_AND_LIMITED
def test_a_worker_user_can_drop_the_events_that_nobody_has_read(
    guarded: GuardedRedis, world: RedisWorld, user: str
) -> None:
    """`MAXLEN 0`. A result that is dropped makes its step run again when its lease ends; a signal is gone."""
    one, weid = begun(world)
    world.work()
    assert world.client.xlen(KEYS.events_of(weid)) == 1

    with guarded.client(user) as worker:
        worker.xadd(KEYS.events_of(weid), {"type": "x"}, maxlen=0, approximate=False)
    one.run_once()
    assert (world.client.xlen(KEYS.events_of(weid)), world.status(weid)) == (0, "in_progress")

    world.client.zadd(KEYS.leases, dict.fromkeys(world.leases(), 1))
    world.settle(one)
    assert (world.status(weid), world.record(weid).steps["a"].run_id) == ("complete", 1)


@SHARED_AND_LIMITED
def test_a_worker_user_can_spoil_a_large_value_and_not_forge_it(
    guarded: GuardedRedis, world: RedisWorld, user: str
) -> None:
    """The id of a large value is the hash of its content, so a step that loads another content fails."""
    store, rows = RedisPayloads(world.client, KEYS), json.dumps(["x" * 2_000])
    payload_id = sha256(rows.encode()).hexdigest()
    store.put(payload_id, pack(rows))
    assert fetch_payload(payload_id, store.get, 1_000_000) == rows.encode()

    with guarded.client(user) as worker:
        worker.set(KEYS.payload(payload_id), pack('["y"]'))
        with pytest.raises(PayloadMissing, match="is damaged in the store"):
            fetch_payload(payload_id, store.get, 1_000_000)
        worker.getex(KEYS.payload(payload_id), px=1)
    wait_until(lambda: not world.client.exists(KEYS.payload(payload_id)))


@SHARED_AND_LIMITED
def test_a_worker_user_can_write_what_other_workers_show_of_themselves(
    guarded: GuardedRedis, world: RedisWorld, user: str
) -> None:
    world.client.sadd(WORKERS, "rq:worker:other")
    world.client.hset("rq:worker:other", mapping={"state": "busy"})
    note = '["orchestrator.other","fn","w#x","a","orchestrator:events:0"]'
    world.client.zadd(KEYS.declined, {note: 1})

    with guarded.client(user) as worker:
        assert worker.hset("rq:worker:other", "state", "idle") == 0
        assert worker.srem(WORKERS, "rq:worker:other") == 1
        assert worker.zrevrangebyscore(KEYS.declined, "+inf", "-inf") == [note]
        worker.xadd(KEYS.step_log("w#x"), {"text": "made up"})
        worker.zadd(KEYS.leases, {"w#x|a|0|1|d": 9e12})


@pytest.mark.slow
def test_a_worker_user_can_have_a_stock_worker_stop_its_step(
    guarded: GuardedRedis, world: RedisWorld, tmp_path: Path
) -> None:
    """RQ asks its key in Redis what it runs. The step is lost, and runs again."""
    pid_file, go = tmp_path / "pid", tmp_path / "go"
    theirs = document(step("a", fn="waits", input={"pid_file": str(pid_file), "go": str(go)}))
    one = world.coordinator()
    weid, own = world.begin(one, theirs), world.begin(one, document(step("a", queue=OWN)))
    with stack(guarded.url("worker"), "step_functions", tmp_path / "logs") as processes:
        processes.rq_worker()
        wait_until(pid_file.exists, what=processes.log())
        first = int(pid_file.read_text())
        with guarded.client(LIMITED) as attacker:
            [job_id] = attacker.lrange(f"rq:queue:orchestrator.{OWN}", 0, -1)
            [name] = attacker.smembers(WORKERS)
            attacker.hset(str(name), mapping={"state": "busy", "current_job": str(job_id)})
            told = {"status": "started", "worker_name": str(name).removeprefix("rq:worker:")}
            attacker.hset(Keys.rq_job(str(job_id)), mapping=told)
            attacker.xadd(KEYS.events_of(own), {"type": "control", "execution": own, "action": "cancel"})
        wait_until(lambda: one.run_once() is not None and not is_running(first), what=processes.log())
        go.touch()
        wait_until(
            lambda: one.run_once() is not None and world.status(weid) == "complete", what=processes.log()
        )
    assert (world.status(own), world.record(weid).steps["a"].run_id) == ("cancelled", 1)


@pytest.mark.parametrize("user", ["worker", LIMITED, "reader", "operator", "coordinator"])
def test_a_script_of_a_user_can_block_redis_until_an_administrator_ends_it(
    guarded: GuardedRedis, user: str
) -> None:
    with guarded.client("admin") as admin:
        admin.config_set("busy-reply-threshold", 50)
        runner = threading.Thread(target=_run_for_ever, args=[guarded, user], daemon=True)
        runner.start()
        wait_until(lambda: _is_blocked(admin))
        with guarded.client("reader") as reader, pytest.raises(ResponseError, match="BUSY"):
            reader.exists("orchestrator:starts")

        admin.script_kill()
        runner.join(180)
        assert admin.ping()


def _run_for_ever(guarded: GuardedRedis, user: str) -> None:
    with guarded.client(user) as worker, suppress(ResponseError):
        worker.evalsha(str(worker.script_load("while true do end")), 0)


def _is_blocked(admin: Client) -> bool:
    try:
        return not admin.ping()
    except ResponseError as error:
        return "BUSY" in str(error)


# ---- readers, operators


@pytest.mark.parametrize("user", ["reader", "operator"])
def test_a_reader_sees_the_names_of_all_keys_and_not_what_others_keep_in_them(
    guarded: GuardedRedis, user: str
) -> None:
    with connect(f"{guarded.url('admin')}&db=1") as admin:
        admin.set("shop:customer:17", "Ada")

    with connect(f"{guarded.url(user)}&db=1") as reader:
        assert list(reader.scan_iter("shop:*")) == ["shop:customer:17"]
        with pytest.raises(NoPermissionError):
            reader.get("shop:customer:17")


# ---- other applications of the same Redis


@pytest.mark.parametrize("user", ["worker", "coordinator"])
def test_workers_and_coordinators_can_rewrite_the_rq_jobs_of_others_unless_their_lists_are_narrowed(
    guarded: GuardedRedis, world: RedisWorld, user: str
) -> None:
    world.client.hset("rq:job:of-the-shop", "data", "theirs")
    with guarded.client(user) as client:
        client.hset("rq:job:of-the-shop", "data", "ours")

        rules = (ACL / f"{user}.acl").read_text().split()[2:]
        narrow = [rule.replace("~rq:job:*", "~rq:job:orchestrator_2E*") for rule in rules]
        assert narrow != rules
        world.client.execute_command("ACL", "SETUSER", user, "reset", *narrow)  # type: ignore[no-untyped-call]
    with guarded.client(user) as client, pytest.raises(NoPermissionError):
        client.hset("rq:job:of-the-shop", "data", "ours")

    one = RedisWorld(lambda: guarded.client(user)).coordinator() if user == "coordinator" else None
    _, weid = begun(world)
    [job_id] = world.waiting()
    with guarded.client(user) as client:
        assert client.hget(Keys.rq_job(job_id), "status") == "queued"
    if one is not None:
        world.killed("one")
        world.work()
        one.run_once()
        assert world.status(weid) == "complete"


class Trap:
    """What runs code when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self._file, "unpickled")


def test_a_tool_that_reads_jobs_without_json_runs_what_a_job_has(
    guarded: GuardedRedis, tmp_path: Path
) -> None:
    """As dashboards do: RQ's own serializer unpickles the job when it is shown."""
    file = tmp_path / "trap"
    with connect(guarded.url("admin"), decodes=False) as client:
        data = pickle.dumps(("os.system", None, (Trap(file),), {}))
        client.hset("rq:job:forged", mapping={"data": data, "status": "queued", "origin": "orchestrator.own"})

        with suppress(Exception):
            Job.fetch("forged", connection=client, serializer=JSONSerializer).args  # noqa: B018
        assert not file.exists()

        with suppress(Exception):
            Job.fetch("forged", connection=client).args  # noqa: B018
        assert file.exists()
