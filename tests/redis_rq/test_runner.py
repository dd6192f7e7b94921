"""RqRunner: the queues of RQ as a Runner."""

from __future__ import annotations

import pytest

from orchestrator.application.errors import RecordNotFound
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.redis_rq.runner import RqRunner
from worlds.commits import creation, written
from worlds.documents import document, step
from worlds.redis_world import RedisWorld
from worlds.waiting import wait_until

TWO = document(step("a", fn="make", input={"n": 1}), step("b", queue="slow"))


def runner(world: RedisWorld) -> RqRunner:
    return RqRunner(world.client, world.keys)


def test_dispatch_and_gather_have_nothing_to_do(world: RedisWorld) -> None:
    job = DispatchJob("w#x", "a", "a", {}, 0)
    assert runner(world).dispatch("w#x", [job]) == []
    assert runner(world).gather("w#x") == []
    assert list(world.client.scan_iter()) == []


def test_pending_jobs_are_listed_with_all_that_a_worker_needs_and_stay(world: RedisWorld) -> None:
    record = written(world.store, creation(TWO))
    for _ in range(2):
        jobs = {job.step_id: job for job in runner(world).list_pending_jobs()}
        assert sorted(jobs) == ["a", "b"]
        assert (jobs["a"].fn, jobs["a"].inputs, jobs["a"].queue) == ("make", {"n": 1}, "default")
        assert (jobs["b"].queue, jobs["b"].token) == ("slow", record.steps["b"].token)


def test_pending_jobs_are_taken_once(world: RedisWorld) -> None:
    written(world.store, creation(TWO))
    assert len(runner(world).take_pending_jobs()) == 2
    assert runner(world).take_pending_jobs() == []
    assert runner(world).list_pending_jobs() == []


def test_many_pending_jobs_are_taken_in_order(world: RedisWorld) -> None:
    written(world.store, creation(document(*(step(f"s{n}") for n in range(250)))))
    assert [job.step_id for job in runner(world).take_pending_jobs()] == [f"s{n}" for n in range(250)]


def test_revoked_and_foreign_jobs_are_passed_over(world: RedisWorld) -> None:
    record = written(world.store, creation(TWO))
    world.client.delete(f"rq:job:{record.steps['a'].token}")
    world.client.hset("rq:job:foreign", "data", '["os.system",null,["true"],{}]')
    world.client.rpush("rq:queue:orchestrator.default", "foreign")
    assert [job.step_id for job in runner(world).take_pending_jobs()] == ["b"]


@pytest.mark.parametrize("with_job", [True, False])
def test_a_result_that_is_handed_in_reaches_the_coordinator(world: RedisWorld, with_job: bool) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a")))
    [job] = runner(world).take_pending_jobs()
    runner(world).submit_work_result(weid, "a", {"n": 1}, job if with_job else None)
    one.run_once()
    assert world.record(weid).state == {"n": 1}


def test_a_result_for_a_missing_execution_is_rejected(world: RedisWorld) -> None:
    with pytest.raises(RecordNotFound):
        runner(world).submit_work_result("w#x", "a", {})


def test_a_result_of_an_old_job_is_stale(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a")))
    [job] = runner(world).take_pending_jobs()
    for n in range(2):
        runner(world).submit_work_result(weid, "a", {"n": n}, job)
    one.run_once()
    assert world.record(weid).state == {"n": 0}


def test_jobs_that_were_taken_leave_nothing_in_rqs_place(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a")))
    [job] = runner(world).take_pending_jobs()
    runner(world).submit_work_result(weid, "a", {}, job)
    one.run_once()
    assert world.status(weid) == "complete"
    assert set(world.client.scan_iter("rq:*")) <= {"rq:queues"}


@pytest.mark.parametrize(("timeout", "has_s"), [("90s", 90), ("2h", 7_200), ("none", 86_400)])
def test_a_job_that_was_taken_is_lost_when_it_brings_nothing(
    world: RedisWorld, timeout: str, has_s: int
) -> None:
    """A worker that takes jobs by hand sends no heartbeats: it has the timeout of the job, or a day."""
    one = world.coordinator()
    weid = world.begin(one, document(step("a", timeout=timeout)))
    runner(world).take_pending_jobs()

    for passed in (0, has_s * 1_000 - 5_000):
        world.age_leases(passed)
        one.run_once()
        one.run_once()
        assert world.record(weid).steps["a"].lost == 0
    world.age_leases(5_000)
    one.run_once()
    one.run_once()

    assert world.record(weid).steps["a"].lost == 1
    assert len(runner(world).list_pending_jobs()) == 1


def test_a_job_that_was_taken_has_all_of_its_time(world: RedisWorld) -> None:
    written(world.store, creation(document(step("a", timeout="500ms"))))
    wait_until(lambda: 600 < world.now_ms() % 1_000 < 900)
    before = world.now_ms()

    runner(world).take_pending_jobs()

    [due] = world.leases().values()
    assert due >= before + 500
