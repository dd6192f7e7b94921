"""sweep.lua: what is due becomes an event once, what only waits is left alone, and rubbish harms nothing."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import pytest

from orchestrator.redis_rq import event_log as events
from orchestrator.redis_rq.keys import lease_member, timer_member
from orchestrator.settings import GRACE_MS, LEASE_S
from servers.redis_contents import calls
from worlds.commits import creation, written
from worlds.documents import document, step
from worlds.redis_world import RedisWorld
from worlds.waiting import at_some_pace, wait_until

ONE = document(step("a"))
GRACE = GRACE_MS


def sweep(world: RedisWorld) -> int:
    return world.log().sweep()


def ready(world: RedisWorld) -> RedisWorld:
    world.log().open()
    return world


def reasons(world: RedisWorld) -> list[str]:
    return [fields["reason"] for _, fields in world.events() if fields["type"] == "lost"]


# ---- dispatches that were not started


QUEUE = "rq:queue:orchestrator.default"


def dispatched(world: RedisWorld, count: int) -> list[str]:
    """Executions with one job each, in the order of the queue; returns their leases."""
    ready(world)
    for n in range(count):
        written(world.store, creation(ONE, f"x{n}"))
    return sorted(world.dispatched(), key=world.dispatched().__getitem__)


def lost_executions(world: RedisWorld) -> list[str]:
    return [one["execution"].partition("#")[2] for _, one in world.events() if one["type"] == "lost"]


def test_a_job_that_waits_is_never_due_however_deep_the_queue(world: RedisWorld) -> None:
    members = dispatched(world, 30)
    for _ in range(5):
        world.age_leases(10 * GRACE)
        assert sweep(world) == 0
    assert world.leases() == dict.fromkeys(members, math.inf)
    assert len(world.dispatched()) == 30


def test_a_job_that_left_its_queue_has_the_grace_by_redis_own_clock(world: RedisWorld) -> None:
    [first, second] = dispatched(world, 2)
    world.client.lpop(QUEUE)

    before = world.now_ms()
    assert sweep(world) == 0
    after = world.now_ms()

    scores = world.leases()
    assert before + GRACE + 0.5 <= scores[first] <= after + GRACE + 0.5
    assert scores[first] % 1 == 0.5, "which marks it as not started"
    assert scores[second] == math.inf
    assert list(world.dispatched()) == [second]
    for _ in range(3):
        assert sweep(world) == 0
    assert world.leases() == scores, "its term does not move with every sweep"


def test_a_job_that_was_popped_and_never_started_is_lost_the_grace_after_it_was_missed(
    world: RedisWorld,
) -> None:
    record = written(ready(world).store, creation(ONE))
    world.client.lpop(QUEUE)

    assert sweep(world) == 0, "a worker may have popped it a moment ago"
    world.age_leases(GRACE - 2_000)
    assert sweep(world) == 0
    world.age_leases(2_000)
    assert sweep(world) == 1

    [(_, event)] = world.events()
    assert (event["type"], event["step"], event["token"]) == ("lost", "a", record.steps["a"].token)
    assert event["reason"] == "its job left the queue and no worker started it"
    assert (world.leases(), world.dispatched()) == ({}, {})
    assert sweep(world) == 0


def test_popped_jobs_are_lost_though_others_wait_behind_them(world: RedisWorld) -> None:
    members = dispatched(world, 5)
    world.client.lpop(QUEUE, 2)

    assert sweep(world) == 0
    world.age_leases(GRACE)
    assert sweep(world) == 2

    assert sorted(lost_executions(world)) == ["x0", "x1"]
    assert world.leases() == dict.fromkeys(members[2:], math.inf)


def test_of_popped_jobs_only_those_that_were_not_started_are_lost(world: RedisWorld) -> None:
    members = dispatched(world, 4)
    world.client.lpop(QUEUE, 3)
    beat = {members[1]: world.now_ms() + 3 * GRACE}
    world.client.zadd(world.keys.leases, beat, xx=True)  # its harness was quicker than the sweep

    assert sweep(world) == 0
    world.age_leases(GRACE)
    assert sweep(world) == 2

    assert sorted(lost_executions(world)) == ["x0", "x2"]
    assert list(world.leases()) == [members[1], members[3]]
    assert reasons(world) == ["its job left the queue and no worker started it"] * 2


def test_every_queue_has_its_own_head(world: RedisWorld) -> None:
    ready(world)
    written(world.store, creation(document(step("a", queue="q"), step("b"), step("c", queue="q")), "x1"))
    world.client.lpop("rq:queue:orchestrator.q")

    sweep(world)
    world.age_leases(GRACE)
    sweep(world)

    [(_, event)] = world.events()
    assert event["step"] == "a"
    assert list(world.leases().values()) == [math.inf, math.inf]


def test_thousands_that_left_at_once_are_all_lost_in_portions(world: RedisWorld) -> None:
    world = ready(world)
    spec = document(*(step(f"s{n}") for n in range(6_000)))
    written(world.store, creation(spec))
    world.client.delete(QUEUE)

    sweep(world)
    assert len(world.dispatched()) == 1_000, "5,000 in one sweep"
    sweep(world)
    assert world.dispatched() == {}
    world.age_leases(GRACE)

    assert [sweep(world) for _ in range(13)] == [500] * 12 + [0]
    assert len({fields["token"] for _, fields in world.events()}) == 6_000


@pytest.mark.parametrize(("behind", "seen_in_the_queue"), [(0, []), (1, ["x0"])])
def test_a_job_whose_hash_is_gone_is_lost_at_the_latest_when_it_was_popped(
    world: RedisWorld, behind: int, seen_in_the_queue: list[str]
) -> None:
    """No worker can run it. The sweep skips it and finds the head of the jobs that can be run. If there is
    none, no worker was free to pop it either, and it waits until RQ has skipped it too."""
    members = dispatched(world, 1 + behind)
    world.client.delete(f"rq:job:{members[0].rpartition('|')[2]}")
    for _ in range(3):
        sweep(world)
        world.age_leases(GRACE)
    assert lost_executions(world) == seen_in_the_queue

    world.client.lpop(QUEUE)
    for _ in range(2):
        sweep(world)
        world.age_leases(GRACE)

    assert lost_executions(world) == ["x0"]
    assert world.leases() == dict.fromkeys(members[1:], math.inf)


def test_a_worker_that_starts_at_the_last_moment_keeps_its_job(world: RedisWorld) -> None:
    [member] = dispatched(world, 1)
    world.client.lpop(QUEUE)
    sweep(world)
    world.age_leases(GRACE)
    assert world.leases()[member] < world.now_ms(), "the next sweep would find it due"
    world.client.zadd(world.keys.leases, {member: world.now_ms() + 30_000}, xx=True)  # its first beat

    assert sweep(world) == 0
    assert list(world.leases()) == [member]


def test_a_worker_that_took_its_job_and_died_is_a_worker_that_stopped_beating(world: RedisWorld) -> None:
    [member] = dispatched(world, 1)
    world.client.lpop(QUEUE)
    sweep(world)
    world.client.zadd(world.keys.leases, {member: world.now_ms() + 30_000}, xx=True)
    sweep(world)
    world.age_leases(30_000)

    assert sweep(world) == 1
    assert reasons(world) == ["its worker stopped beating"]


def test_a_revoked_job_at_the_head_does_not_make_those_behind_it_lost(world: RedisWorld) -> None:
    [first, second] = dispatched(world, 2)
    world.client.delete(f"rq:job:{first.rpartition('|')[2]}")
    world.client.zrem(world.keys.leases, first)
    for _ in range(3):
        assert sweep(world) == 0
        world.age_leases(GRACE)
    assert world.leases() == {second: math.inf}


def test_a_revoked_job_that_left_its_queue_is_forgotten_without_an_event(world: RedisWorld) -> None:
    [first, second] = dispatched(world, 2)
    world.client.zrem(world.keys.leases, first)
    world.client.lpop(QUEUE)
    assert sweep(world) == 0
    assert (list(world.dispatched()), world.leases()) == ([second], {second: math.inf})


@pytest.mark.parametrize("revoked", [1, 9, 10, 1_000])
def test_whatever_stands_at_the_head_nothing_that_waits_is_lost(world: RedisWorld, revoked: int) -> None:
    """Beyond ten jobs without a hash the sweep says nothing, until a worker has passed over them."""
    [first, *others] = dispatched(world, 2)
    tokens = [f"revoked-{n}" for n in range(revoked)]
    world.client.lpop(QUEUE)
    world.client.lpush(QUEUE, *tokens)

    sweep(world)
    is_seen = world.leases()[first] < math.inf
    assert is_seen == (revoked < 10)
    world.client.ltrim(QUEUE, revoked, -1)
    sweep(world)
    world.age_leases(GRACE)
    sweep(world)

    assert lost_executions(world) == ["x0"]
    assert world.leases() == dict.fromkeys(others, math.inf)


def test_what_a_sweep_costs_does_not_depend_on_how_many_jobs_wait(world: RedisWorld) -> None:
    spent = {}
    for depth in (1, 100, 3_000):
        world.client.flushall()
        ready(world)
        written(world.store, creation(document(*(step(f"s{n}") for n in range(depth)))))
        sweep(world)
        world.age_leases(10 * GRACE)
        world.client.config_resetstat()
        for _ in range(10):
            assert sweep(world) == 0
        spent[depth] = calls(world.client)
        assert len(world.waiting()) == len(world.leases()) == depth
    for made in spent.values():
        for name in ("config|resetstat", "config"):  # before Redis 7, a subcommand counts as its command
            made.pop(name, None)
    assert spent[1] == spent[100] == spent[3_000]
    assert sum(spent[3_000].values()) <= 10 * 18, f"Redis calls of ten sweeps of one queue: {spent[3_000]}"


# ---- after a start or an outage


def test_leases_are_not_judged_before_their_holders_had_time_to_beat(world: RedisWorld) -> None:
    """An hour without Redis: every lease is due, and every worker beats again in a moment."""

    def scene(pace: int) -> None:
        world.client.flushall()
        [popped, _] = dispatched(world, 2)
        world.client.lpop(QUEUE)
        running = lease_member("w#x", "a", 0, 1, "t")
        world.client.zadd(world.keys.leases, {running: 1})
        log = world.log(lease_recovery_s=0.2 * pace)
        log.open()

        assert log.sweep() == 0
        assert running in world.leases()
        assert world.leases()[popped] < math.inf, "that it left its queue is noted all the same"
        opened = time.monotonic()
        wait_until(lambda: log.sweep() == 1)
        assert time.monotonic() - opened > 0.1 * pace

        assert reasons(world) == ["its worker stopped beating"]

    at_some_pace(scene)


def test_a_coordinator_waits_eight_seconds_unless_told_otherwise(world: RedisWorld) -> None:
    """Longer than a quarter of a lease, which is how often a worker beats."""
    assert LEASE_S / 4 < events.LEASE_RECOVERY_S == 8 < GRACE_MS / 1000
    log = events.RedisEventLog(world.client, "one", world.keys)
    log.open()
    world.client.zadd(world.keys.leases, {lease_member("w#x", "a", 0, 1, "t"): 1})
    assert log.sweep() == 0
    assert len(world.leases()) == 1


def test_timers_and_dead_work_horses_are_raised_while_leases_are_not_judged(world: RedisWorld) -> None:
    log = world.log(lease_recovery_s=60)
    log.open()
    world.client.zadd(world.keys.timers, {timer_member("deadline", "w#x", "a", "t"): 1})
    failed_job(world, "t", lease_member("w#x", "b", 0, 1, "t"))
    assert log.sweep() == 2


# ---- dispatches that were started


def test_a_started_dispatch_that_is_not_beaten_is_lost(world: RedisWorld) -> None:
    world = ready(world)
    member = lease_member("w#x", "a", 3, 2, "token-0")
    world.client.zadd(world.keys.leases, {member: world.now_ms() - 1})

    assert sweep(world) == 1

    [(_, event)] = world.events()
    assert event == {
        "type": "lost",
        "execution": "w#x",
        "step": "a",
        "run_id": "3",
        "attempt": "2",
        "token": "token-0",
        "reason": "its worker stopped beating",
    }
    assert world.leases() == {}


def test_a_started_dispatch_that_is_beaten_stays(world: RedisWorld) -> None:
    world.client.zadd(ready(world).keys.leases, {lease_member("w#x", "a", 0, 1, "t"): world.now_ms() + 5_000})
    assert sweep(world) == 0
    assert len(world.leases()) == 1


def test_many_losses_at_once_are_all_raised_in_portions(world: RedisWorld) -> None:
    world = ready(world)
    due = {lease_member("w#x", f"s{n}", 0, 1, f"t{n}"): 1_000 + n for n in range(1_200)}
    world.client.zadd(world.keys.leases, due)
    assert [sweep(world) for _ in range(4)] == [500, 500, 200, 0]


# ---- what RQ calls failed


def failed_job(
    world: RedisWorld,
    token: str,
    lease: str | bytes | None,
    queue: str = "orchestrator.default",
) -> None:
    """A job in RQ's registry of failed jobs, as a worker leaves it there: RQ has compressed its data."""
    world.client.hset(world.keys.sequences, queue, 1)
    world.client.hset(f"rq:job:{token}", mapping={"data": b"x\x9c", "status": "failed"})
    if lease is not None:
        world.client.hset(f"rq:job:{token}", "description", lease)
    world.client.xadd(f"rq:results:{token}", {"type": "2"})
    world.client.zadd(world.keys.rq_failed(queue), {token: 1})


def test_a_failed_job_is_a_lost_step_and_is_cleaned_up(world: RedisWorld) -> None:
    world = ready(world)
    failed_job(world, "t", lease_member("w#x", "a", 2, 1, "t"))

    assert sweep(world) == 1

    [(_, event)] = world.events()
    assert (event["type"], event["execution"], event["step"]) == ("lost", "w#x", "a")
    assert (event["run_id"], event["attempt"], event["token"]) == ("2", "1", "t")
    assert list(world.client.scan_iter("rq:*")) == []
    assert sweep(world) == 0


def test_the_error_that_rq_stored_for_a_failed_job_is_passed_on(world: RedisWorld) -> None:
    ready(world)
    failed_job(world, "t", lease_member("w#x", "a", 2, 1, "t"))
    world.client.xadd("rq:results:t", {"type": "2", "exc_string": "of an earlier run"})
    world.client.xadd("rq:results:t", {"type": "2", "exc_string": "eJwDAAAAAAE="})

    assert sweep(world) == 1
    [(_, lost)] = world.events()
    assert (lost["reason"], lost["rq_error"]) == ("its work-horse died", "eJwDAAAAAAE=")
    assert not world.client.exists("rq:results:t")


@pytest.mark.parametrize("what", ["another type", "no error", "too large"])
def test_a_result_that_says_nothing_adds_nothing(world: RedisWorld, what: str) -> None:
    ready(world)
    failed_job(world, "t", lease_member("w#x", "a", 2, 1, "t"))
    match what:
        case "another type":
            world.client.set("rq:results:t", "x")
        case "no error":
            world.client.xadd("rq:results:t", {"type": "2"})
        case "too large":
            world.client.xadd("rq:results:t", {"exc_string": 20_000 * "x"})

    assert sweep(world) == 1
    [(_, lost)] = world.events()
    assert (lost["reason"], "rq_error" in lost) == ("its work-horse died", False)
    assert not world.client.exists("rq:results:t", "rq:job:t")


def test_failed_jobs_of_every_queue_of_ours_are_seen_and_of_no_other(world: RedisWorld) -> None:
    world = ready(world)
    failed_job(world, "t1", lease_member("w#x", "a", 0, 1, "t1"), "orchestrator.one")
    failed_job(world, "t2", lease_member("w#x", "b", 0, 1, "t2"), "orchestrator.two")
    world.client.zadd("rq:failed:default", {"of-another-team": 1})
    assert sweep(world) == 2
    assert list(world.client.scan_iter("rq:*")) == ["rq:failed:default"]


FOREIGN = {
    "no lease": None,
    "empty": "",
    "a word": "x",
    "too short": "a|b|c|d",
    "no text": b"\xff\xfe|",
    "a line": "\n",
}


@pytest.mark.parametrize("lease", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_or_corrupt_job_among_the_failed_harms_nothing(
    world: RedisWorld, lease: str | bytes | None
) -> None:
    ready(world)
    failed_job(world, "foreign", lease)
    assert [sweep(world), sweep(world)] == [0, 0]
    assert world.events() == []
    assert not world.client.exists("rq:failed:orchestrator.default", "rq:job:foreign")


def test_a_failed_job_whose_hash_is_gone_harms_nothing(world: RedisWorld) -> None:
    ready(world)
    failed_job(world, "gone", None)
    world.client.delete("rq:job:gone")
    assert sweep(world) == 0
    assert not world.client.exists("rq:failed:orchestrator.default")


def test_a_failed_job_with_a_forged_lease_is_an_event_like_any_other(world: RedisWorld) -> None:
    """Any client of Redis can write events: the record decides whether they count."""
    one = world.coordinator()
    weid = world.begin(one, ONE)
    failed_job(world, "guess", f"{weid}|a|none|1|guess")
    world.settle(one)
    assert world.status(weid) == "complete"
    assert len(world.dead()) == 1


@pytest.mark.parametrize("key", ["rq:job:odd", "rq:failed:orchestrator.default"])
def test_a_key_of_another_type_in_rqs_place_does_not_stop_the_timers(world: RedisWorld, key: str) -> None:
    world = ready(world)
    failed_job(world, "odd", lease_member("w#x", "a", 0, 1, "odd"))
    world.client.delete(key)
    world.client.set(key, "a string")
    world.client.zadd(world.keys.timers, {timer_member("deadline", "w#x", "a", "t"): 1})
    sweep(world)
    assert "deadline" in [fields["type"] for _, fields in world.events()]


# ---- timers


def test_a_timer_fires_when_it_is_due_and_not_before(world: RedisWorld) -> None:
    world = ready(world)
    member = timer_member("deadline", "w#x", "a", "t")
    world.client.zadd(world.keys.timers, {member: world.now_ms() + 60_000})
    assert sweep(world) == 0

    world.age_timers(60_000)
    assert sweep(world) == 1

    [(_, event)] = world.events()
    assert event == {"type": "deadline", "execution": "w#x", "step": "a", "token": "t"}
    assert world.timers() == {}


def test_a_thousand_timers_and_three_sweepers_make_a_thousand_events(world: RedisWorld) -> None:
    world = ready(world)
    due = {timer_member("deadline", "w#x", f"s{n}", f"t{n}"): 1 for n in range(1_000)}
    world.client.zadd(world.keys.timers, due)
    logs = [world.log(f"c{n}", world.connect()) for n in range(3)]
    raised: list[int] = []
    threads = [
        threading.Thread(target=lambda log=log: raised.extend(log.sweep() for _ in range(5))) for log in logs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(raised) == 1_000
    assert len({fields["token"] for _, fields in world.events()}) == len(world.events()) == 1_000


@pytest.mark.parametrize("member", ["", "x", "|", "a|b|c", "a|b|c|d", "ünicode", "\n"])
def test_malformed_leases_are_dropped(world: RedisWorld, member: str) -> None:
    world.client.zadd(ready(world).keys.leases, {member: 1})
    assert sweep(world) == 0
    assert world.leases() == {}


@pytest.mark.parametrize("member", ["", "x", "|", "a|b|c", "deadline", "\n"])
def test_malformed_timers_are_dropped(world: RedisWorld, member: str) -> None:
    world.client.zadd(ready(world).keys.timers, {member: 1})
    assert sweep(world) == 0
    assert world.timers() == {}


def test_a_timer_of_an_unknown_kind_becomes_a_dead_letter(world: RedisWorld) -> None:
    one = world.coordinator()
    world.client.zadd(world.keys.timers, {"boom|w#x|a|t": 1})
    world.settle(one)
    [letter] = world.dead()
    assert "boom" in letter["reason"]


def test_a_lease_with_empty_parts_becomes_a_dead_letter_and_no_loop(world: RedisWorld) -> None:
    one = world.coordinator()
    world.client.zadd(world.keys.leases, {"||||": 1})
    world.settle(one)
    assert len(world.dead()) == 1
    assert world.leases() == {}


# ---- coordinators


def test_a_sweep_is_the_beat_of_its_coordinator(world: RedisWorld) -> None:
    before = ready(world).now_ms()
    sweep(world)
    beats: Any = world.client.zrange(world.keys.coordinators, 0, -1, withscores=True)
    assert [name for name, _ in beats] == ["one"]
    assert before <= int(beats[0][1]) <= world.now_ms()


def test_a_coordinator_without_a_beat_is_forgotten(world: RedisWorld) -> None:
    ready(world)
    world.log("gone").sweep()
    world.client.zincrby(world.keys.coordinators, -5_001, "gone")
    sweep(world)
    assert world.client.zrange(world.keys.coordinators, 0, -1) == ["one"]


def test_losses_do_not_wait_behind_a_long_queue(world: RedisWorld) -> None:
    """A worker that died is noticed by the next sweep, whatever waits in the queues."""
    world = ready(world)
    for n in range(6):
        written(world.store, creation(document(*(step(f"s{i}") for i in range(1_000))), f"x{n}"))
    world.age_leases(GRACE + 1_000)
    world.client.zadd(world.keys.leases, {lease_member("w#x", "a", 0, 1, "t"): world.now_ms() - 500})

    assert sweep(world) == 1
    assert lost_executions(world) == ["x"]
