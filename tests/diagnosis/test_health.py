"""Health: a process must be responsive. That it exists, and that Redis responds, is not enough."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from diagnosis.test_why import connected, registered
from orchestrator.backend.backend import Backend
from orchestrator.cli import main
from orchestrator.coordinator.loop import Coordinator, CoordinatorOptions
from orchestrator.diagnosis import Health, ProcessFilter, health
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.runner import RqRunner
from processes import Stack, stack, wait_until
from servers.redis_server import own_redis
from worlds.documents import document, step
from worlds.redis_world import RedisWorld
from worlds.waiting import in_thread

HERE = socket.gethostname()
QUEUE = "orchestrator.default"


def coordinators(
    world: RedisWorld, process_filter: ProcessFilter | None = None, max_age_ms: int = 10_000
) -> Health:
    return health(world.client, world.keys, "coordinator", process_filter, max_age_ms)


def workers(
    world: RedisWorld, process_filter: ProcessFilter | None = None, max_age_ms: int = 10_000
) -> Health:
    return health(world.client, world.keys, "worker", process_filter, max_age_ms)


# ---- coordinators


def test_a_coordinator_is_healthy_while_it_sends_heartbeats(world: RedisWorld) -> None:
    assert coordinators(world).words == "no coordinator found on any host"
    world.coordinator("one")
    healthy = coordinators(world)
    world.client.zadd(world.keys.coordinators, {"one": world.now_ms() - 15_500})

    late = coordinators(world)

    assert (healthy.is_healthy, healthy.words) == (True, "1 healthy coordinator on any host")
    assert (late.is_healthy, late.words) == (False, "unresponsive coordinator: one (late by 15 s)")
    assert coordinators(world, max_age_ms=20_000).is_healthy


def test_one_unresponsive_coordinator_of_several_is_enough(world: RedisWorld) -> None:
    now = world.now_ms()
    world.client.zadd(world.keys.coordinators, {"one": now, "two": now})
    assert coordinators(world).words == "2 healthy coordinators on any host"

    world.client.zadd(world.keys.coordinators, {"two": now - 60_000})

    found = coordinators(world)
    assert [(pulse.name, pulse.is_healthy) for pulse in found.pulses] == [("one", True), ("two", False)]
    assert not found.is_healthy


def test_a_filter_selects_a_host_or_a_name(world: RedisWorld) -> None:
    now = world.now_ms()
    world.client.zadd(world.keys.coordinators, {"box-7-ab12": now, "box-2-9-cd34": now - 60_000})

    assert coordinators(world, ProcessFilter(host="box")).is_healthy
    assert not coordinators(world, ProcessFilter(host="box-2")).is_healthy
    assert coordinators(world, ProcessFilter(host="elsewhere")).words == "no coordinator found on elsewhere"
    assert coordinators(world, ProcessFilter(name="box-7-ab12")).is_healthy
    assert not coordinators(world, ProcessFilter(host="elsewhere", name="box-2-9")).is_healthy
    assert (
        coordinators(world, ProcessFilter(name="box-3")).words == "no coordinator found with the name box-3"
    )


def test_a_coordinator_that_hangs_in_a_decision_is_not_healthy(world: RedisWorld) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hangs() -> str:
        entered.set()
        assert leave.wait(180)
        return "nonce"

    client = world.connect()
    store = world.store_on(client)
    coordinator = Coordinator(
        Backend(store=store, runner=RqRunner(client, world.keys)),
        world.log("one", client),
        store,
        CoordinatorOptions(block_ms=10, sweep_every_s=0.0),
        nonce=hangs,
    )
    stop = threading.Event()
    with in_thread(lambda: coordinator.run(stop)):
        wait_until(lambda: coordinators(world, max_age_ms=1_000).is_healthy)
        world.start(document(step("a")))
        assert entered.wait(180)

        wait_until(lambda: not coordinators(world, max_age_ms=1_000).is_healthy)

        assert health(world.client, world.keys, "redis").is_healthy
        leave.set()
        wait_until(lambda: coordinators(world, max_age_ms=1_000).is_healthy)
        stop.set()


# ---- workers


def test_a_worker_is_healthy_while_it_is_connected_and_its_heartbeat_is_not_overdue(
    world: RedisWorld,
) -> None:
    registered(world, "w1", QUEUE, ttl_s=100)
    gone = workers(world)
    with connected(world, "w1"):
        healthy = workers(world)
        world.client.expire("rq:worker:w1", 55)
        late = workers(world)
        world.client.expire("rq:worker:w1", 30)
        overdue = workers(world)

    assert gone.words == "no worker found on any host"
    assert healthy.is_healthy
    assert late.is_healthy
    assert (overdue.is_healthy, overdue.words) == (False, "unresponsive worker: w1 (late by 30 s)")


def test_the_registration_of_a_killed_worker_does_not_count_against_the_next_one(world: RedisWorld) -> None:
    registered(world, "old", QUEUE, ttl_s=5)
    registered(world, "new", QUEUE)

    with connected(world, "new"):
        assert workers(world, ProcessFilter(host="h1")).words == "1 healthy worker on h1"


def test_workers_of_other_queues_and_other_hosts_do_not_count(world: RedisWorld) -> None:
    registered(world, "w1", "another team")
    registered(world, "w2", QUEUE)

    with connected(world, "w1", "w2"):
        assert [pulse.name for pulse in workers(world).pulses] == ["w2"]
        assert not workers(world, ProcessFilter(host="h2")).is_healthy


def test_without_permission_for_pubsub_only_the_heartbeats_count(tmp_path: Path) -> None:
    with own_redis(tmp_path) as server, server.client() as admin:
        allowed = {"keys": ["*"], "commands": ["+@all", "-pubsub"]}
        admin.acl_setuser("lookout", enabled=True, nopass=True, **allowed)
        world = RedisWorld(lambda: connect(f"unix://lookout:any@{server.socket}"))
        registered(world, "w1", QUEUE)

        assert workers(world).is_healthy
        world.client.expire("rq:worker:w1", 30)
        assert not workers(world).is_healthy
        world.close()


def test_a_registration_without_a_worker_key_is_ignored(world: RedisWorld) -> None:
    world.client.sadd("rq:workers", "rq:worker:expired")
    world.client.set("rq:worker:strange", "no hash")
    world.client.sadd("rq:workers", "rq:worker:strange")

    assert workers(world).words == "no worker found on any host"


# ---- the command and real processes


@pytest.fixture
def processes(redis_url: str, tmp_path: Path) -> Iterator[Stack]:
    with stack(redis_url, "step_functions", tmp_path / "logs") as made:
        yield made


def command(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["health", *arguments, "--redis-url", url])


def is_healthy(url: str, *arguments: str) -> bool:
    return command(url, *arguments).exit_code == 0


@pytest.mark.slow
def test_a_coordinator_that_is_stopped_is_not_healthy_although_it_exists(processes: Stack) -> None:
    url = processes.url
    assert command(url).output == f"no coordinator found on {HERE}\n"
    process = processes.coordinator()
    wait_until(lambda: is_healthy(url), what=processes.log())

    process.send_signal(signal.SIGSTOP)

    wait_until(lambda: not is_healthy(url, "coordinator", "--max-age", "1s"))
    assert process.poll() is None
    assert is_healthy(url, "redis")
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: is_healthy(url, "coordinator", "--max-age", "2"))


@pytest.mark.slow
def test_a_coordinator_that_is_blocked_in_its_loop_is_not_healthy_although_redis_responds(
    processes: Stack,
) -> None:
    url, client = processes.url, connect(processes.url)
    process = processes.coordinator()
    wait_until(lambda: is_healthy(url), what=processes.log())

    client.client_pause(60_000, all=False)  # writes wait, and so does its sweep; reads are served
    try:
        wait_until(lambda: not is_healthy(url, "--max-age", "1s"))
        assert process.poll() is None
        assert is_healthy(url, "redis")
    finally:
        client.client_unpause()
        client.close()
    wait_until(lambda: is_healthy(url))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ours", "stock"])
def test_a_worker_is_healthy_until_it_is_killed(processes: Stack, kind: str) -> None:
    url = processes.url
    process = processes.worker() if kind == "ours" else processes.rq_worker()
    wait_until(lambda: is_healthy(url, "worker"), what=processes.log())

    processes.kill(process)

    wait_until(lambda: not is_healthy(url, "worker"))


@pytest.mark.slow
def test_a_worker_that_is_killed_while_its_work_horse_lives_on_becomes_unresponsive(
    processes: Stack, tmp_path: Path
) -> None:
    url, world = processes.url, RedisWorld(lambda: connect(processes.url))
    process, pid_file = processes.worker(), tmp_path / "horse"
    one = world.coordinator()
    world.begin(one, document(step("busy", input={"pid_file": str(pid_file)})))
    wait_until(pid_file.exists, what=processes.log())
    wait_until(lambda: is_healthy(url, "worker"), what=processes.log())  # its child may run a step before

    processes.kill(process)

    try:
        wait_until(lambda: not is_healthy(url, "worker", "--max-age", "1s"))
        assert "late by" in command(url, "worker", "--max-age", "1s").output, "the horse keeps the connection"
    finally:
        processes.kill_pid(int(pid_file.read_text()))
        world.close()


def test_the_command_checks_this_host_by_default(redis_url: str) -> None:
    world = RedisWorld(lambda: connect(redis_url))
    world.client.zadd(world.keys.coordinators, {"elsewhere-7-ab12": world.now_ms()})

    here, anywhere = command(redis_url), command(redis_url, "--any", "--json")
    named = command(redis_url, "--name", "elsewhere-7")

    assert here.exit_code == 1
    assert named.exit_code == 0
    printed = json.loads(anywhere.output)
    assert (printed["process"], printed["is_healthy"]) == ("coordinator", True)
    assert printed["pulses"][0]["name"] == "elsewhere-7-ab12"
    world.close()


def test_without_redis_no_process_is_healthy() -> None:
    for process in ("coordinator", "worker", "redis"):
        result = command("unix:///nowhere/redis.sock", process)
        assert result.exit_code == 1
        assert result.output.startswith("cannot use Redis: ")


def test_a_max_age_that_is_not_a_duration_is_wrong_usage(redis_url: str) -> None:
    result = command(redis_url, "--max-age", "soon")

    assert result.exit_code == 2
    assert "whole seconds" in result.output
