"""The doctor: each check finds its problem, created for real, and says what to do."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from redis.exceptions import ResponseError

from diagnosis.test_why import connected, registered
from orchestrator.cli import main
from orchestrator.diagnosis import Check, Level, run_checks
from orchestrator.diagnosis.doctor import CHECK_NAMES
from orchestrator.diagnosis.server import check_server
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from orchestrator_executors.webhook import webhook
from processes import stack, wait_until
from servers.redis_contents import calls
from servers.redis_server import RedisServer, own_redis
from worlds.documents import document, step
from worlds.families import control, decide_all
from worlds.redis_world import RedisWorld
from worlds.waiting import in_thread

ONE = document(step("a"))
QUEUE = "orchestrator.default"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis with correct settings; the tests change them."""
    with own_redis(tmp_path, "--appendonly", "yes") as made:
        yield made


def checked(world: RedisWorld, name: str, *executors: str, keys: Keys | None = None) -> Check:
    [found] = [one for one in run_checks(world.client, keys or world.keys, executors) if one.name == name]
    return found


def server_check(server: RedisServer, name: str) -> Check:
    client = connect(server.url)
    try:
        [found] = [one for one in check_server(client) if one.name == name]
    finally:
        client.close()
    return found


def configure(server: RedisServer, **settings: Any) -> None:
    with server.client() as client:
        for name, value in settings.items():
            client.config_set(name.replace("_", "-"), value)


# ---- all checks


def test_every_check_runs_and_is_ok_in_a_healthy_system(server: RedisServer) -> None:
    world = RedisWorld(lambda: connect(server.url))
    one = world.coordinator()
    weid = world.begin(one, ONE)
    registered(world, "w1", QUEUE)
    with connected(world, "w1"):
        checks = run_checks(world.client, world.keys, ["orchestrator_executors.examples"])

    assert tuple(check.name for check in checks) == CHECK_NAMES
    assert [check for check in checks if check.level is not Level.OK or check.advice] == []
    assert world.status(weid) == "in_progress"
    world.close()


def test_without_info_the_other_checks_still_run(server: RedisServer) -> None:
    with server.client() as admin:
        allowed = {"keys": ["*"], "commands": ["+@all", "-info"]}
        admin.acl_setuser("lookout", enabled=True, nopass=True, **allowed)
    client = connect(f"unix://lookout:any@{server.socket}")

    checks = run_checks(client, Keys())

    assert (checks[0].name, checks[0].level) == ("redis", Level.WARNING)
    assert checks[0].advice.startswith("allow INFO for this user")
    assert [check.name for check in checks[1:]] == list(CHECK_NAMES[6:])
    client.close()


def test_the_number_of_commands_does_not_grow_with_the_data(world: RedisWorld) -> None:
    one = world.coordinator()

    def commands() -> int:
        world.client.config_resetstat()
        run_checks(world.client, world.keys)
        return sum(calls(world.client).values())

    few = commands()
    for n in range(150):
        world.start(ONE, execution_id=f"x{n}")
    one.run_once()

    # One EXISTS for each of the sampled records, and no more.
    assert commands() <= few + 110


def test_an_unreachable_redis_is_a_problem_and_not_an_error() -> None:
    client = connect("unix:///nowhere/redis.sock")

    [check] = run_checks(client, Keys())

    assert (check.name, check.level) == ("redis", Level.PROBLEM)
    assert check.found.startswith("cannot use Redis: ")


# ---- the server


def test_a_server_that_is_too_old_is_a_problem(monkeypatch: pytest.MonkeyPatch, server: RedisServer) -> None:
    monkeypatch.setattr("orchestrator.diagnosis.server.MINIMUM_REDIS", (99, 0))

    check = server_check(server, "redis")

    assert check.level is Level.PROBLEM
    assert check.advice == "upgrade to Redis 99.0 or newer"


def test_a_server_without_an_append_only_file_is_a_problem(server: RedisServer) -> None:
    configure(server, appendonly="no")

    check = server_check(server, "aof")

    assert check.level is Level.PROBLEM
    assert "appendonly yes" in check.advice


def test_a_server_that_evicts_is_a_problem(server: RedisServer) -> None:
    configure(server, maxmemory_policy="allkeys-lru")

    check = server_check(server, "eviction")

    assert (check.level, check.found) == (
        Level.PROBLEM,
        "Redis evicts keys when its memory is full (allkeys-lru), including workflows",
    )


@pytest.mark.parametrize(("share", "level"), [(1.5, "ok"), (1.2, "warning"), (1.02, "problem")])
def test_a_server_that_is_nearly_full_warns_and_then_complains(
    server: RedisServer, share: float, level: str
) -> None:
    with server.client() as client:
        client.setrange(
            "ballast", 20_000_000, "x"
        )  # written by the server itself: no client buffer is freed later
        used = int(client.info("memory")["used_memory"])
    configure(server, maxmemory=int(used * share))

    assert server_check(server, "memory").level == level


def test_a_replica_is_a_problem(server: RedisServer) -> None:
    with server.client() as client:
        client.replicaof("127.0.0.1", "1")

    check = server_check(server, "replication")

    assert check.level is Level.PROBLEM
    assert check.found == "this server is a replica of 127.0.0.1:1 and does not accept writes"


def test_a_snapshot_that_failed_is_a_warning(server: RedisServer) -> None:
    with server.client() as client:
        (server.folder / "dump.rdb").mkdir()  # where the snapshot should be written
        client.bgsave()
        wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] != "ok")

    assert server_check(server, "rdb").level is Level.WARNING


def test_an_append_only_file_that_cannot_be_rewritten_is_a_problem(server: RedisServer) -> None:
    with server.client() as client:
        folder = server.folder / "appendonlydir"
        folder.rename(server.folder / "away")
        folder.write_text("no folder any more")
        with suppress(ResponseError):
            client.bgrewriteaof()
        wait_until(lambda: client.info("persistence")["aof_last_bgrewrite_status"] != "ok")

    assert server_check(server, "aof").level is Level.PROBLEM


@pytest.mark.parametrize(
    ("ahead_s", "level", "words"),
    [
        (0, "ok", "Redis"),
        (10, "warning", "this machine is 10 s ahead of Redis"),
        (-10, "warning", "this machine is 10 s behind Redis"),
        (600, "problem", "this machine is 10 m 0 s ahead of Redis"),
    ],
)
def test_a_clock_that_differs_is_reported(server: RedisServer, ahead_s: int, level: str, words: str) -> None:
    client = connect(server.url)
    shift = ahead_s + (0.05 if ahead_s > 0 else -0.05)

    check = check_server(client, clock=lambda: time.time() + shift)[-1]

    assert (check.name, check.level.value) == ("clock", level)
    assert words in check.found
    client.close()


# ---- coordinators and streams


def test_coordinators_that_are_dead_are_a_problem(world: RedisWorld) -> None:
    assert checked(world, "coordinators").found == "no coordinator is alive: executions make no progress"

    world.client.zadd(world.keys.coordinators, {"one": world.now_ms() - 60_500})

    assert checked(world, "coordinators").found == (
        "no coordinator is alive (last heartbeat 1 m 0 s ago): executions make no progress"
    )
    world.coordinator("two")
    assert checked(world, "coordinators").level is Level.OK


@pytest.mark.parametrize(("age_s", "level"), [(1, "ok"), (20, "warning"), (120, "problem")])
@pytest.mark.parametrize("name", ["starts", "events"])
def test_unread_events_are_reported_by_their_age(
    world: RedisWorld, name: str, age_s: int, level: str
) -> None:
    world.coordinator()
    stream = world.keys.starts if name == "starts" else world.keys.events(3)
    world.client.delete(stream)
    world.send(stream, {"type": "continue"}, f"{world.now_ms() - age_s * 1000}-0")

    check = checked(world, name)

    assert check.level == level
    assert check.found.startswith("1 unread, 0 unacknowledged")
    if level != "ok":
        assert f"the oldest, in {stream}, has waited for" in check.found


def test_pending_events_are_counted_with_their_age(world: RedisWorld) -> None:
    one = world.coordinator()
    world.send(world.keys.events(0), {"type": "nonsense"}, f"{world.now_ms() - 20_000}-0")
    world.log("dead").read(10, 0)

    held = checked(world, "events")
    world.age_pending(10_000)
    one.run_once()

    assert (held.level, held.found.partition(";")[0]) == (Level.WARNING, "0 unread, 1 unacknowledged")
    assert checked(world, "events").level is Level.OK


def test_what_was_deleted_from_a_stream_is_not_counted(world: RedisWorld) -> None:
    world.coordinator()
    entries = [world.send(world.keys.events(0), {"type": "continue"}) for _ in range(3)]
    world.client.xdel(world.keys.events(0), entries[0], entries[1])

    assert checked(world, "events").found.startswith("1 unread")
    world.client.xdel(world.keys.events(0), entries[2])
    assert checked(world, "events").found == "0 unread, 0 unacknowledged"


def test_unread_events_are_counted_where_redis_reports_no_lag(world: RedisWorld) -> None:
    """Redis 6.2 never reports it, and newer versions do not after a deletion."""
    world.coordinator()
    stream = world.keys.events(0)
    entries = [world.send(stream, {"type": "continue"}) for _ in range(5)]
    world.log("one").read(1, 0)
    world.client.xdel(stream, entries[2])
    [group] = world.client.xinfo_groups(stream)

    check = checked(world, "events")

    assert group["lag"] is None
    assert check.found == "3 unread, 1 unacknowledged"


def test_a_redis_that_is_busy_is_a_problem_and_not_an_empty_one(server: RedisServer) -> None:
    configure(server, busy_reply_threshold=10)
    client = connect(server.url)
    endless = "while true do end"

    def runs_for_ever() -> None:
        with suppress(ResponseError), server.client() as other:
            other.eval(endless, 0)

    with in_thread(runs_for_ever):
        wait_until(lambda: len(run_checks(client, Keys())) == 1)
        [check] = run_checks(client, Keys())
        client.script_kill()

    assert check.level is Level.PROBLEM
    assert "BUSY" in check.found
    client.close()


def test_a_stream_that_is_not_trimmed_is_a_warning(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.diagnosis.throughput.LONG_STREAM", 3)
    one = world.coordinator(trim_every_s=1e9)
    world.client.xgroup_create(world.keys.events(0), "another group", id="0")
    for _ in range(5):
        world.send(world.keys.events(0), {"type": "nonsense"})
    one.run_once()
    world.log().trim()

    check = checked(world, "streams")

    assert (check.level, check.found) == (
        Level.WARNING,
        "acknowledged entries are not trimmed: orchestrator:events:0 (5)",
    )
    world.client.xgroup_destroy(world.keys.events(0), "another group")
    world.log().trim()
    assert checked(world, "streams").level is Level.OK


def test_events_beyond_the_partitions_that_coordinators_read_are_a_problem(world: RedisWorld) -> None:
    world.coordinator()
    world.send(world.keys.events(9), {"type": "continue"})

    check = checked(world, "partitions", keys=Keys(partitions=4))

    assert (check.level, check.found) == (
        Level.PROBLEM,
        "ORCHESTRATOR_PARTITIONS is 4 here, but events wait in orchestrator:events:9 (1)",
    )
    assert checked(world, "partitions", keys=Keys(partitions=10)).level is Level.OK


def test_a_key_of_another_type_in_place_of_a_stream_does_not_stop_the_checks(world: RedisWorld) -> None:
    world.coordinator()
    world.client.delete(world.keys.events(0))
    world.client.set(world.keys.events(0), "no stream")
    world.client.set(world.keys.events(9), "no stream")

    checks = run_checks(world.client, world.keys)

    assert [check.name for check in checks][-1] == "executors"


# ---- timers and leases


@pytest.mark.parametrize(("name", "what"), [("timers", "timers"), ("leases", "dispatch leases")])
def test_what_is_overdue_is_a_problem(world: RedisWorld, name: str, what: str) -> None:
    world.coordinator()
    key = getattr(world.keys, name)
    world.client.zadd(key, {"wake|w#x|a|0": world.now_ms() - 60_500, "later": world.now_ms() + 60_000})

    check = checked(world, name)

    assert (check.level, check.found) == (Level.PROBLEM, f"1 of 2 {what} are overdue, the first by 1 m 0 s")
    world.client.zrem(key, "wake|w#x|a|0")
    assert checked(world, name).found == f"1 {what}, none overdue"


# ---- queues and workers


def test_jobs_without_a_worker_are_a_problem(world: RedisWorld) -> None:
    one = world.coordinator()
    assert checked(world, "workers").level is Level.WARNING
    world.begin(one, document(step("a", queue="gpu", priority=1)))
    registered(world, "w1", QUEUE)

    with connected(world, "w1"):
        check = checked(world, "workers")

    assert (check.level, check.found) == (Level.PROBLEM, "no worker serves orchestrator.gpu:1 (1 waiting)")
    assert check.advice == "start one: orchestrator worker gpu"


def test_the_job_of_a_cancelled_execution_is_no_problem(world: RedisWorld) -> None:
    one = world.coordinator()
    for name in ("x1", "x2"):
        weid = world.begin(one, document(step("a", queue="gpu")), execution_id=name)
        if name == "x1":
            control(world, weid, "cancel")
            one.run_once()
    both = checked(world, "workers")
    control(world, weid, "cancel")
    one.run_once()

    check = checked(world, "workers")

    assert len(world.waiting()) == 2, "a revoked job stays in its queue until a worker takes it"
    assert both.found == "no worker serves orchestrator.gpu (1 waiting)"
    assert (check.level, check.found) == (
        Level.WARNING,
        "no worker serves any of our queues; no jobs are waiting yet",
    )
    assert checked(world, "queues").found == "no jobs are waiting"


def test_a_worker_whose_heartbeat_is_overdue_does_not_count(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ONE)
    registered(world, "w1", QUEUE, state="busy", ttl_s=90)

    with connected(world, "w1"):
        busy = checked(world, "workers")
        world.client.expire("rq:worker:w1", 30)
        late = checked(world, "workers")
        world.client.persist("rq:worker:w1")
        timeless = checked(world, "workers")
        world.client.hset("rq:worker:w1", "death", "2026-01-01")
        dead = checked(world, "workers")

    assert busy.found == timeless.found == "1 alive, 1 busy"
    assert late.level is dead.level is Level.PROBLEM


def test_old_jobs_are_a_warning(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE)
    [token] = world.waiting()
    assert checked(world, "queues").level is Level.OK
    aged = '{"dispatched_at":"2026-01-01T00:00:00.000Z"}'
    world.client.hset(world.keys.workflow(weid), "step:a", aged)

    old = checked(world, "queues")
    world.client.delete(world.keys.rq_job(token))
    revoked = checked(world, "queues")

    assert old.level is Level.WARNING
    assert old.found.startswith("1 waiting, the oldest in orchestrator.default for ")
    assert old.advice == "start more workers: orchestrator worker default"
    assert revoked.level is Level.OK


def test_failed_jobs_that_no_coordinator_handles_are_a_warning(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ONE)
    world.client.zadd(world.keys.rq_failed(QUEUE), {"some-token": 1})

    failed = checked(world, "failed_jobs")
    one.run_once()

    assert (failed.level, failed.found) == (
        Level.WARNING,
        "RQ keeps failed jobs in our queues: orchestrator.default (1)",
    )
    assert checked(world, "failed_jobs").level is Level.OK


def test_a_stream_that_takes_no_more_entries_is_a_problem_until_it_is_repaired(world: RedisWorld) -> None:
    one = world.coordinator()
    last = f"{2**64 - 1}-{2**64 - 1}"
    world.send(world.keys.starts, {"nonsense": "1"}, last)

    found = checked(world, "stream_ids")
    one.run_once()
    one.run_once()

    assert (found.level, found.numbers) == (Level.PROBLEM, {"absurd": 1})
    assert found.found == f"the last id lies far in the future: {world.keys.starts} ({last})"
    assert checked(world, "stream_ids").level is Level.OK


def test_an_execution_that_is_not_repaired_yet_is_a_warning(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE)
    world.client.sadd(world.keys.partial, weid)

    found = checked(world, "partial")
    one.run_once()

    assert (found.level, found.numbers) == (Level.WARNING, {"executions": 1})
    assert checked(world, "partial").level is Level.OK


def test_a_queue_of_another_type_counts_nothing(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ONE)
    world.client.delete(world.keys.rq_queue(QUEUE))
    world.client.set(world.keys.rq_queue(QUEUE), "no list")

    assert checked(world, "queues").found == "no jobs are waiting"


# ---- leftovers


def test_a_recent_dead_letter_is_a_warning_and_an_old_one_is_not(world: RedisWorld) -> None:
    one = world.coordinator()
    assert checked(world, "dead_letters").found == "none"
    world.send(world.keys.dead_letters, {"reason": "old\nwith details"}, f"{world.now_ms() - 7_200_500}-0")
    old = checked(world, "dead_letters")
    world.start("missing")
    one.run_once()

    recent = checked(world, "dead_letters")

    assert (old.level, old.found) == (Level.OK, "1, the newest 2 h 0 m ago: old")
    assert recent.level is Level.WARNING
    assert recent.found.endswith("ago: no workflow is registered as 'missing'")


POSTED = document(step("a"), webhook={"url": "https://hooks.example.org/orders"})


def test_a_rejected_webhook_is_a_warning_until_it_is_old(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = world.coordinator()
    kept = {**POSTED, "retention": "2h"}
    assert checked(world, "webhooks").found == "none among the last 0 executions that ended"
    for name, spec in (("x1", POSTED), ("x2", kept)):
        world.begin(one, spec, execution_id=name, inputs={"api_token": "hooks.example"})
    world.settle(one, executors={"webhook": webhook})

    check = checked(world, "webhooks")
    monkeypatch.setattr("orchestrator.diagnosis.webhooks.RECENT_MS", -1)
    old = checked(world, "webhooks")

    assert (check.level, check.numbers) == (
        Level.WARNING,
        {
            "checked": 2,
            "webhooks": 2,
            "failed": 2,
            "open": 0,
            "newest_failure_ms": check.numbers["newest_failure_ms"],
        },
    )
    assert re.match(
        r"2 of 2 webhooks of the last 2 executions that ended were not delivered; the newest, of x[12],"
        r" \d+ ms ago: .*ORCHESTRATOR_WEBHOOK_HOSTS",
        check.found,
    )
    assert "hooks.example" not in check.found
    assert re.fullmatch(r"see the cause: orchestrator explain x[12]", check.advice)
    assert (old.level, old.advice) == (Level.OK, "")


def test_a_webhook_that_waits_for_its_worker_is_no_warning(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, POSTED)
    world.client.hset(world.keys.workflow(world.begin(one, POSTED)), "item::webhook", "no JSON")
    world.work(most=2)
    decide_all(world, one)

    check = checked(world, "webhooks")

    assert world.status(weid) == "complete"
    assert (check.level, check.found) == (
        Level.OK,
        "2 among the last 2 executions that ended; 2 not posted yet",
    )


def test_counters_are_shown_and_values_that_could_not_be_shared_are_a_warning(world: RedisWorld) -> None:
    one = world.coordinator()
    assert checked(world, "counters").found == "none"
    world.start("missing")
    one.run_once()
    assert checked(world, "counters").found == "dead 1"

    world.client.hincrby(world.keys.counters, "not_shared", 2)

    check = checked(world, "counters")
    assert (check.level, check.found) == (Level.WARNING, "dead 1, not_shared 2")


def test_open_executions_without_a_record_are_a_warning(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")
    world.begin(one, ONE, execution_id="x2")
    assert checked(world, "index").found == "2 open executions; the oldest 2 all have a record"

    world.client.delete(world.keys.workflow(weid))

    check = checked(world, "index")
    assert (check.level, check.found) == (Level.WARNING, "1 of 2 open executions have no record: x1")
    assert check.advice == "repair it: orchestrator check-consistency --repair"


def test_a_worker_with_another_rq_is_a_warning(world: RedisWorld) -> None:
    registered(world, "w1", QUEUE)
    registered(world, "w2", "another team")
    world.client.hset("rq:worker:w2", "version", "1.0")
    with connected(world, "w1", "w2"):
        same = checked(world, "rq")
        world.client.hset("rq:worker:w1", "version", "1.16.2")
        other = checked(world, "rq")

    assert same.found.endswith("workers use 2.12.0")
    assert (other.level, other.found) == (Level.WARNING, "unsupported RQ version in use: 1.16.2")
    assert other.advice == "install RQ 2.0 or newer, below 3, on every host"


def test_executors_that_cannot_be_imported_are_a_warning(world: RedisWorld) -> None:
    assert checked(world, "executors").level is Level.OK
    assert checked(world, "executors", "orchestrator_executors.examples").found.startswith(
        "4 in orchestrator_executors.examples: check_order, "
    )

    check = checked(world, "executors", "nothing_of_this_name")

    assert check.level is Level.WARNING
    assert "'nothing_of_this_name' cannot be imported" in check.found


# ---- the command


def doctor(server: RedisServer, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments, "--redis-url", server.url])


def test_the_exit_code_tells_a_problem_from_a_warning(server: RedisServer) -> None:
    world = RedisWorld(lambda: connect(server.url))
    no_coordinator = doctor(server).exit_code
    world.coordinator()

    ends = [doctor(server).exit_code, doctor(server, "--strict").exit_code]

    assert no_coordinator == 1
    assert ends == [0, 1], "a missing worker is a warning"
    world.close()


def test_the_command_prints_a_line_for_each_check_and_what_to_do(server: RedisServer) -> None:
    lines = doctor(server).output.splitlines()

    assert lines[0].split() == ["ok", "redis", "Redis", *lines[0].split()[3:]]
    at = next(n for n, line in enumerate(lines) if line.startswith("problem  coordinators"))
    assert lines[at + 1].strip() == "-> start one: orchestrator coordinator"
    assert [line.split()[1] for line in lines if not line.startswith(" ")] == list(CHECK_NAMES)


def test_the_command_prints_json(server: RedisServer) -> None:
    printed = json.loads(doctor(server, "--json").output)

    assert printed["ok"] is False
    assert [check["name"] for check in printed["checks"]] == list(CHECK_NAMES)
    assert set(printed["checks"][0]) == {"name", "level", "found", "advice", "numbers"}
    numbers = {check["name"]: check["numbers"] for check in printed["checks"]}
    assert numbers["coordinators"] == {"alive": 0}
    assert numbers["workers"] == {"alive": 0, "busy": 0, "unserved_queues": 0, "unserved_jobs": 0}
    assert numbers["memory"]["used_bytes"] > 100_000
    assert all(isinstance(one, int | float) for each in numbers.values() for one in each.values())


def test_every_number_in_the_prose_is_a_number_in_the_json(server: RedisServer) -> None:
    world = RedisWorld(lambda: connect(server.url))
    one = world.coordinator()
    for n in range(3):
        world.begin(one, document(step("a", queue="gpu")), execution_id=f"x{n}")
    world.start("missing")
    one.run_once()
    configure(server, maxmemory=100 * 2**20)
    world.client.zadd(world.keys.timers, {"wake|w#x|a|0": world.now_ms() - 60_500})

    found = {check.name: check.numbers for check in run_checks(world.client, world.keys)}

    assert found["memory"]["limit_bytes"] == 100 * 2**20
    assert found["replication"] == {"replicas": 0}
    assert abs(found["clock"]["skew_ms"]) < 60_000
    assert found["coordinators"]["alive"] == 1
    assert found["coordinators"]["oldest_heartbeat_ms"] >= 0
    assert found["starts"] == {"unread": 0, "unacknowledged": 0, "oldest_ms": 0}
    assert found["streams"]["streams"] == 9
    assert found["partitions"] == {"partitions": 8, "waiting": 0}
    assert (found["timers"]["total"], found["timers"]["overdue"]) == (1, 1)
    assert found["timers"]["oldest_overdue_ms"] >= 60_500
    assert found["leases"] == {"total": 3, "overdue": 0}
    assert found["workers"] == {"alive": 0, "busy": 0, "unserved_queues": 1, "unserved_jobs": 3}
    assert found["queues"]["waiting"] == 3
    assert found["failed_jobs"] == {"failed": 0}
    assert found["dead_letters"]["total"] == 1
    assert found["counters"] == {"dead": 1}
    assert found["index"] == {"open": 3, "checked": 3, "missing": 0}
    world.close()


def test_the_command_exits_with_1_if_redis_is_unreachable() -> None:
    result = CliRunner().invoke(main, ["doctor", "--redis-url", "unix:///nowhere/redis.sock"])

    assert result.exit_code == 1
    assert result.output.startswith("problem  redis  cannot use Redis: ")


# ---- real processes


@pytest.mark.slow
def test_a_running_system_is_ok_and_a_killed_worker_is_noticed(server: RedisServer, tmp_path: Path) -> None:
    client = connect(server.url)
    world = RedisWorld(lambda: connect(server.url))
    with stack(server.url, "step_functions", tmp_path / "logs") as processes:
        processes.coordinator()
        workers = [processes.worker(), processes.rq_worker()]

        def is_ok() -> bool:
            return all(check.level is Level.OK for check in run_checks(client, world.keys))

        wait_until(lambda: checked(world, "workers").found.startswith("2 alive"), what=processes.log())
        wait_until(is_ok, what=str(run_checks(client, world.keys)))
        for worker in workers:
            processes.freeze(worker)
        world.start(document(step("nothing")), execution_id="x1")
        wait_until(lambda: checked(world, "queues").found.startswith("1 waiting"), what=processes.log())
        for worker in workers:
            processes.kill_with_horse(worker)

        try:
            wait_until(lambda: checked(world, "workers").level is Level.PROBLEM)
        except AssertionError:  # which connection is still open, or is the job gone?
            pytest.fail(f"{run_checks(client, world.keys)}\n{client.client_list()}\n{processes.log()}")
    world.close()
    client.close()
