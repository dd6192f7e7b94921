"""The gauges of the metrics: what `list` and `doctor` say, read in a bounded number of commands."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from diagnosis.test_why import connected, registered
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.cli import main
from orchestrator.diagnosis import run_checks
from orchestrator.metrics import gauges as gauges_module
from orchestrator.metrics.reader import MetricsReader
from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.verify.verifier import Verifier
from servers.guarded_redis import GuardedRedis, guarded_redis
from servers.redis_contents import calls
from servers.redis_server import own_redis
from worlds.documents import Json, document, step
from worlds.families import control, decide_all
from worlds.redis_world import RedisWorld
from worlds.samples import Samples, parse, scrape

QUEUE = "orchestrator.default"


def boom(inputs: Json) -> Json:
    raise ValueError("boom")


def loaded_system(world: RedisWorld) -> None:
    """Executions in many states, waiting jobs in two queues, slots held and waited for, and late events."""
    one = world.coordinator()
    for n in range(7):
        world.begin(one, document(step("a"), name="done"), execution_id=f"done-{n}")
    world.settle(one)
    for n in range(3):
        world.begin(one, document(step("a"), name="bad"), execution_id=f"bad-{n}")
    world.settle(one, executors={"a": boom})
    for n in range(4):
        spec = document(step("a", concurrency={"key": "k", "limit": 1}), name="limited")
        world.begin(one, spec, execution_id=f"limited-{n}")
    for n in range(2):
        weid = world.begin(one, document(step("a", queue="slow"), name="slow"), execution_id=f"slow-{n}")
    control(world, weid, "pause")
    decide_all(world, one)
    for _ in range(5):
        world.start("unknown")
    decide_all(world, one)
    for _ in range(6):
        world.start(document(step("a"), name="unread"))


def listed(redis_url: str) -> Counter[str]:
    found = CliRunner().invoke(main, ["list", "--json", "--limit", "1000", "--redis-url", redis_url])
    assert found.exit_code == 0, found.output
    return Counter(one["status"] for one in json.loads(found.stdout)["executions"])


def doctor_numbers(redis_url: str) -> dict[str, dict[str, float]]:
    found = CliRunner().invoke(main, ["doctor", "--json", "--redis-url", redis_url])
    return {one["name"]: one["numbers"] for one in json.loads(found.stdout)["checks"]}


def test_the_numbers_are_those_of_list_and_doctor(world: RedisWorld, redis_url: str) -> None:
    loaded_system(world)

    found, by_status, doctor = scrape(world), listed(redis_url), doctor_numbers(redis_url)

    assert {status: found("executions", status=status) for status in WorkflowStatus} == {
        status: by_status[status] for status in WorkflowStatus
    }
    assert by_status["complete"] == 7
    assert by_status["failed"] == 3
    assert found("executions_ended_total", workflow="done", status="complete") == 7
    assert found("coordinators") == doctor["coordinators"]["alive"] == 1
    assert found("stream_unread_events", stream="starts") == doctor["starts"]["unread"] == 6
    assert found("stream_pending_events", stream="starts") == doctor["starts"]["unacknowledged"] == 0
    assert found.total("queue_waiting_jobs") == doctor["queues"]["waiting"] == 3
    assert found("queue_waiting_jobs", queue="slow") == 2
    assert found("timers") == doctor["timers"]["total"]
    assert found("timers_overdue") == doctor["timers"]["overdue"] == 0
    assert found("leases") == doctor["leases"]["total"] == 3
    assert found("dead_letters") == doctor["dead_letters"]["total"] == 5
    assert found("dead_letters_written_total") == doctor["counters"]["dead"] == 5
    assert found.total("workers") == doctor["workers"]["alive"] == 0
    assert (found("slots_held"), found("slots_waited_for")) == (1, 3)
    oldest_s = found("queue_oldest_job_seconds", queue="slow") or 0
    assert 0 < oldest_s <= doctor["queues"]["oldest_ms"] / 1000
    stopped_s = found("coordinator_last_turn_seconds", coordinator="one") or 0
    assert stopped_s <= doctor["coordinators"]["oldest_heartbeat_ms"] / 1000


def test_overdue_timers_and_leases_are_those_of_the_doctor(world: RedisWorld, redis_url: str) -> None:
    one = world.coordinator()
    world.begin(one, document(step("a", timeout="5s"), name="order"))
    world.client.zadd(world.keys.timers, {"retry|x#1|a|": world.now_ms() - 3_600_000})
    world.client.zadd(world.keys.leases, {"x#1|a|0|1|t": world.now_ms() - 3_600_000})

    found, doctor = scrape(world), doctor_numbers(redis_url)

    assert found("timers_overdue") == doctor["timers"]["overdue"] == 1
    assert found("leases_overdue") == doctor["leases"]["overdue"] == 1


def test_workers_count_by_state_and_by_queue(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, document(step("a")))
    with connected(world, "w1"), connected(world, "w2"):
        registered(world, "w1", QUEUE, state="busy")
        registered(world, "w2", QUEUE, state="a new state")
        registered(world, "w3", QUEUE)
        registered(world, "theirs", "another")

        found = scrape(world)

    assert (found("workers", state="busy"), found("workers", state="other")) == (1, 1)
    assert (found("workers", state="gone"), found("workers", state="idle")) == (1, 0)
    assert found("queue_workers", queue="default") == 2


# ---- slots


def test_slots_are_counted_until_all_are_free(world: RedisWorld) -> None:
    one = world.coordinator()
    spec = document(step("a", concurrency={"key": {"var": "input.key"}, "limit": 2}))
    for key in ("x", "y"):
        for _ in range(5):
            world.begin(one, spec, inputs={"key": key})
    decide_all(world, one)

    found = scrape(world)
    assert (found("slots_held"), found("slots_waited_for"), found("concurrency_keys")) == (4, 6, 2)

    world.work(most=1)
    decide_all(world, one)
    found = scrape(world)
    assert (found("slots_held"), found("slots_waited_for"), found("concurrency_keys")) == (4, 5, 2)

    world.settle(one)
    found = scrape(world)
    assert (found("slots_held"), found("slots_waited_for"), found("concurrency_keys")) == (0, 0, 0)
    assert not world.client.exists(world.keys.slots)


def test_a_repaired_slot_is_counted(world: RedisWorld) -> None:
    """A wrong number, as a coordinator of 0.1.1 leaves it, is right again with the next change of the key."""
    one = world.coordinator()
    spec = document(step("a", concurrency={"key": "k", "limit": 1}))
    for _ in range(2):
        world.begin(one, spec)
    decide_all(world, one)
    world.client.delete(world.keys.slot_holders("k"))
    world.client.zadd(world.keys.slots, {world.keys.slot_holders("k"): 77})

    Verifier(world.client, world.keys, repairs=True).verify_all()

    found = scrape(world)
    assert found("slots_held") == world.client.zcard(world.keys.slot_holders("k"))
    assert found("slots_waited_for") == world.client.zcard(world.keys.slot_waiters("k"))


def test_keys_beyond_the_limit_count_as_one_holder_each(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges_module, "MAX_KEYS_IN_USE", 2)
    scores = {"few": 1, "other": 1, "many": 5, "waited for": 2**26 * 3 + 1}
    world.client.zadd(world.keys.slots, scores)

    found = scrape(world)

    assert (found("slots_held"), found("slots_waited_for"), found("concurrency_keys")) == (8, 3, 4)


# ---- commands


def commands_of_a_scrape(world: RedisWorld) -> int:
    scrape(world)
    world.client.config_resetstat()
    scrape(world)
    found = calls(world.client)
    found.pop("config|resetstat", None)
    found.pop("info", None)  # one is of the scrape, and one of this test
    return sum(found.values())


def test_the_number_of_commands_does_not_grow_with_executions(world: RedisWorld) -> None:
    one = world.coordinator()

    def run(count: int, *, name: str) -> None:
        for n in range(count):
            world.start(document(step("a"), step("b", after="a"), name=name), execution_id=f"{name}-{n}")
        world.settle(one)
        world.start(document(step("a"), name=name))
        decide_all(world, one)

    run(20, name="few")
    few = commands_of_a_scrape(world)
    run(300, name="many")
    many = commands_of_a_scrape(world)

    assert few <= 250
    assert many == few


def test_queues_and_workers_cost_a_few_commands_each(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, document(step("a")))
    before = commands_of_a_scrape(world)
    registered(world, "w1", QUEUE)
    with_worker = commands_of_a_scrape(world)
    world.begin(one, document(step("a", queue="another")))
    with_queue = commands_of_a_scrape(world)

    assert with_worker - before == 3
    assert with_queue - with_worker <= 11


# ---- memory


def test_the_estimate_of_memory_is_near_to_what_redis_uses(world: RedisWorld) -> None:
    one = world.coordinator()
    empty = _used(world.client)
    for n in range(400):
        inputs = {"text": "x" * 2_000}
        world.start(document(step("a"), name="order"), inputs=inputs, execution_id=f"order-{n}")
    world.settle(one)
    for key in world.client.scan_iter("orchestrator:answer:*"):
        world.client.delete(key)

    found = scrape(world)

    used = _used(world.client) - empty
    assert used / 2 < found.total("keys_memory_bytes") < used * 2
    assert (found("keys_memory_bytes", part="executions") or 0) > 400 * 2_000
    assert (found("redis_memory_bytes") or 0) > used
    assert found("redis_memory_limit_bytes") == 0


def _used(client: Client) -> int:
    info: Any = client.info("memory")
    return int(info["used_memory_dataset"])


# ---- users, and a Redis that is gone


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedRedis]:
    with guarded_redis(tmp_path) as made:
        yield made


def test_the_user_reader_may_read_all_of_it(guarded: GuardedRedis) -> None:
    world = RedisWorld(lambda: guarded.client("coordinator"))
    one = world.coordinator()
    world.start(document(step("a", concurrency={"key": "k", "limit": 1}), name="order"))
    decide_all(world, one)
    with guarded.client("admin") as admin:
        as_admin = parse(MetricsReader(admin, world.keys).render().decode())
    before = guarded.refusals()

    with guarded.client("reader") as reader:
        found = parse(MetricsReader(reader, world.keys).render().decode())

    assert found("up") == 1
    assert found.keys() == as_admin.keys()
    assert found("queue_waiting_jobs", queue="default") == 1
    assert (found("keys_memory_bytes", part="executions") or 0) > 0
    assert guarded.refusals() == before
    world.close()


@pytest.mark.parametrize("user", ["producer", "worker"])
def test_a_user_without_the_right_gets_no_half_of_the_numbers(guarded: GuardedRedis, user: str) -> None:
    with guarded.client(user) as client:
        found = parse(MetricsReader(client, RedisWorld(lambda: guarded.client(user)).keys).render().decode())

    assert found == Samples({("orchestrator_up", frozenset()): 0.0})


def test_a_redis_that_is_gone_is_a_number_too(tmp_path: Path) -> None:
    with own_redis(tmp_path) as server:
        client = connect(server.url)
        reader = MetricsReader(client, RedisWorld(lambda: connect(server.url)).keys)
        assert parse(reader.render().decode())("up") == 1

        server.kill()
        gone = parse(reader.render().decode())
        server.start()
        again = parse(reader.render().decode())

    assert gone == Samples({("orchestrator_up", frozenset()): 0.0})
    assert again("up") == 1


def test_every_check_of_the_doctor_that_counts_something_has_a_metric(world: RedisWorld) -> None:
    """A number that only the doctor has cannot wake anyone up."""
    loaded_system(world)
    numbers = {check.name: set(check.numbers) for check in run_checks(world.client, world.keys)}
    elsewhere = {
        "clock": "it is about the machine of the reader",
        "memory": "redis_memory_bytes",
        "replication": "a property of the server, as redis_exporter shows it",
        "streams": "stream_unread_events; trimmed entries are no work",
        "partitions": "a setting of the reader",
        "stream_ids": "repaired by coordinators",
        "index": "executions",
        "webhooks": "steps of their own",
        "executors": "a setting of the reader",
    }
    shown = {
        *("coordinators", "starts", "events", "timers", "leases", "workers", "queues", "failed_jobs"),
        *("declined", "partial", "dead_letters", "counters"),
    }

    assert {name for name, found in numbers.items() if found} <= shown | elsewhere.keys()
