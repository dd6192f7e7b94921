"""Maps on Redis: items as fields of the record, as jobs, leases and timers of their own."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from effort import count
from orchestrator.application.spec.model import LoopSpec, RetrySpec
from orchestrator.application.values.dispatch_tokens import dispatch_id
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.runner import RqRunner
from servers.redis_contents import calls
from worlds.redis_world import RedisWorld, result_fields
from worlds.spec_executions import IT, begun, coordinators, ends, raised, serve
from worlds.specs import branch, map_step, resets, task

XS = {"var": "input.xs"}


def fields(world: RedisWorld, weid: str, prefix: str = "item:") -> dict[str, Any]:
    stored: Any = world.client.hgetall(world.keys.workflow(weid))
    return {name: json.loads(value) for name, value in stored.items() if name.startswith(prefix)}


def items(world: RedisWorld, weid: str, step_id: str = "m") -> list[Any]:
    output = world.record(weid).steps[step_id].output
    assert output["count"] == len(output["items"])
    return list(output["items"])


def answer(world: RedisWorld, payload: dict[str, Any], output: Any = None) -> str:
    return world.send(payload["events"], result_fields(payload, output))


def of_step(world: RedisWorld, step_id: str) -> dict[str, Any]:
    [found] = [payload for payload in world.payloads() if payload["step"] == step_id]
    return found


# ---- the whole way


def test_items_are_fields_of_the_record_that_an_operator_can_read(world: RedisWorld) -> None:
    one, weid = begun(world, map_step("m", XS, max_parallel=2), inputs={"xs": ["a", "b", "c"]})

    stored = fields(world, weid)
    assert sorted(stored) == ["item:m:0", "item:m:1", "item:m:2"]
    assert stored["item:m:2"] == {"status": "ready", "run_id": 0, "attempt": 1, "value": "c"}
    assert stored["item:m:0"]["status"] == "in_progress"
    counts = fields(world, weid, "step:m")["step:m"]["items"]
    assert (counts["count"], counts["next"], counts["out"], counts["most"]) == (3, 2, 2, 2)

    world.work(most=1)
    one.run_once()
    assert fields(world, weid)["item:m:0"]["output"] == {"v": "a"}


def test_every_item_has_a_job_and_a_lease_of_its_own(world: RedisWorld) -> None:
    _, weid = begun(world, map_step("m", [1, 2, 3], max_parallel=2, queue="fast"))

    payloads = world.payloads()

    assert [payload["step"] for payload in payloads] == ["m#0", "m#1"]
    assert {member.rpartition("|")[2] for member in world.leases()} == {
        dispatch_id(one["token"]) for one in payloads
    }
    assert sorted(member.split("|")[1] for member in world.leases()) == ["m#0", "m#1"]
    assert [payload["key"] for payload in payloads] == [f"{weid.partition('#')[2]}#m#0#{n}" for n in (0, 1)]
    assert world.queues() == ["orchestrator.fast"]


def test_a_large_map_goes_out_in_several_commits(world: RedisWorld) -> None:
    [one] = coordinators(world, map_step("m", XS), pace={"jobs_per_commit": 10})
    weid = world.begin(one, IT, inputs={"xs": list(range(35))})
    assert len(world.waiting()) == 10

    serve(world, one, until=lambda: len(world.waiting()) == 35, works=False)
    world.settle(one)

    assert len(items(world, weid)) == 35
    assert Counter(world.moves(weid, "in_progress")) == {"m": 1, **{f"m#{n}": 1 for n in range(35)}}


# ---- attempts, losses and duplicates


def test_an_item_that_was_lost_is_dispatched_again(world: RedisWorld) -> None:
    one, weid = begun(world, map_step("m", [1, 2]))
    lost = world.pop()
    assert lost is not None
    for _ in range(3):
        one.run_once()
        world.age_leases(world.grace_ms)

    serve(world, one, until=lambda: raised(world, "lost"), works=False)
    one.run_once()

    assert raised(world, "lost") == [("lost", lost["step"])]
    again = of_step(world, lost["step"])
    assert (again["run_id"], again["attempt"], again["key"]) == (1, 1, lost["key"])
    answer(world, lost, {"v": "too late"})
    world.settle(one)
    assert items(world, weid) == [{"v": 1}, {"v": 2}]
    assert world.counter("stale") == 1
    assert world.counter("lost") == 1


def test_a_result_of_an_item_that_comes_twice_counts_once(world: RedisWorld) -> None:
    one, weid = begun(world, map_step("m", [1, 2]))
    payload = of_step(world, "m#0")
    for _ in range(3):
        answer(world, payload, {"r": 1})
    one.run_once()
    answer(world, payload, {"r": 2})
    one.run_once()

    assert world.counter("stale") == 3
    assert fields(world, weid)["item:m:0"]["output"] == {"r": 1}
    assert fields(world, weid, "step:m")["step:m"]["items"]["settled"] == 1


def test_a_result_of_an_item_that_never_was_is_dropped(world: RedisWorld) -> None:
    one, _ = begun(world, map_step("m", [1]), task("a"))
    payload = of_step(world, "m#0")
    for step_id in ("m#7", "m#", "m#x", "a#0", "m"):
        answer(world, {**payload, "step": step_id})
    one.run_once()

    assert world.counter("stale") == 5
    assert world.pending() == []


def test_an_item_of_a_step_that_never_was_is_refused(world: RedisWorld) -> None:
    one, _ = begun(world, map_step("m", [1]))
    answer(world, {**of_step(world, "m#0"), "step": "z#0"})
    one.run_once()

    assert "has no step 'z#0'" in world.dead()[0]["reason"]


# ---- set and the end


def test_a_set_drops_the_fields_and_the_jobs_of_all_items(world: RedisWorld) -> None:
    again = task("s", branch=(resets({"!": {"var": "state.n"}}, "a"),))
    listed = task("a", input={"n": {"var": ["state.n", 4]}}, skip_output_mapping=True)
    one, weid = begun(world, listed, map_step("m", {"var": "steps.a.output.xs"}, "a"), again)
    world.work({"a": lambda inputs: {"xs": list(range(inputs["n"]))}, "s": _never}, most=1)
    one.run_once()
    old = [of_step(world, f"m#{n}") for n in range(4)]
    answer(world, of_step(world, "s"), {"n": 2})
    one.run_once()

    assert fields(world, weid) == {}
    assert not [payload for payload in world.payloads() if payload["token"] in {one["token"] for one in old}]

    _drop_answered(world, "s")
    world.work({"a": lambda inputs: {"xs": ["new"] * inputs["n"]}, "s": lambda _: {"n": 2}}, most=1)
    one.run_once()
    assert sorted(fields(world, weid)) == ["item:m:0", "item:m:1"]
    for payload in old:
        answer(world, payload, {"v": "old"})
    world.settle(one)
    assert world.counter("stale") == 4
    assert items(world, weid) == [{"v": "new"}] * 2
    assert world.leases() == {}


def _never(_: Any) -> Any:
    raise AssertionError("not now")


def _drop_answered(world: RedisWorld, step_id: str) -> None:
    """Take jobs off the queue whose results were published by hand: their tokens are settled."""
    for job_id in world.waiting():
        lease = str(world.client.hget(world.keys.rq_job(job_id), "description"))
        if f"|{step_id}|" in lease and lease not in world.leases():
            world.client.delete(world.keys.rq_job(job_id))


def test_a_halt_takes_the_jobs_of_items_from_their_queue(world: RedisWorld) -> None:
    stop = task("s", branch=(branch(True, "halt", result={"why": "enough"}),))
    one, weid = begun(world, map_step("m", list(range(5)), max_parallel=3), stop)
    running = world.pop()
    assert running is not None
    answer(world, of_step(world, "s"), {})
    one.run_once()

    assert world.status(weid) == "halted"
    assert [payload["step"] for payload in world.payloads() if payload["step"] != "s"] == []
    assert world.leases() == {}
    statuses = [fields(world, weid)[f"item:m:{n}"]["status"] for n in range(5)]
    assert statuses == ["cancelled"] * 3 + ["skipped"] * 2
    answer(world, running, {})
    one.run_once()
    assert world.counter("late") == 1


# ---- several coordinators, and ones that forget


@pytest.mark.parametrize("seed", range(count(2, 4)))
def test_in_any_order_and_with_any_coordinator_every_item_counts_once(world: RedisWorld, seed: int) -> None:
    chance = random.Random(seed)
    serving = coordinators(
        world,
        map_step("m", XS, max_parallel=4, retry=RetrySpec(3, 1), fn="a", on_error="continue"),
        map_step("k", XS, fn="b"),
        task("n", "m k"),
        names=("one", "two", "three"),
        max_workers=7,
    )
    weid = world.begin(serving[0], IT, inputs={"xs": list(range(12))})

    def fails_often(inputs: Any) -> Any:
        if chance.random() < 0.3:
            raise ValueError("bad luck")
        return {"r": inputs["v"]}

    for _ in range(4_000):
        if world.status(weid) == "complete":
            break
        if chance.random() < 0.1:
            chance.choice(serving)._backend.drop_cached_records()
        if chance.random() < 0.5:
            world.work({"a": fails_often, "b": lambda inputs: {"r": inputs["v"]}}, most=chance.randint(1, 4))
        chance.choice(serving).run_once()
        assert sum(1 for payload in world.payloads() if payload["step"].startswith("m#")) <= 4
        assert len(world.leases()) <= 7

    assert world.status(weid) == "complete"
    assert items(world, weid, "k") == [{"r": n} for n in range(12)]
    bad = {"ok": False, "error": "bad luck"}
    assert all(found in ({"r": n}, bad) for n, found in enumerate(items(world, weid)))
    ended = Counter(world.moves(weid, "complete") + world.moves(weid, "failed"))
    assert set(ended.values()) == {1}
    assert len(ended) == 27
    assert (world.leases(), world.timers(), world.pending(), world.dead()) == ({}, {}, [], [])


# ---- what it costs


def test_an_item_costs_as_many_commands_in_a_short_as_in_a_long_list(world: RedisWorld) -> None:
    assert _commands_per_item(world, 100) == pytest.approx(_commands_per_item(world, 1_000), rel=0.05)


def _commands_per_item(world: RedisWorld, n: int) -> float:
    """Redis commands for the twenty items in the middle, those inside scripts too."""
    world.client.flushall()
    one, _ = begun(world, map_step("m", XS, max_parallel=10), inputs={"xs": list(range(n))})
    _answer_items(world, one, n // 2 - 10)
    world.client.config_resetstat()
    _answer_items(world, one, 20)
    counted = {name: count for name, count in calls(world.client).items() if not name.startswith("config")}
    return sum(counted.values()) / 20


def _answer_items(world: RedisWorld, one: Coordinator, count: int) -> None:
    for _ in range(count):
        payload = world.pop()
        assert payload is not None
        answer(world, payload, {"r": 1})
        one.run_once()


# ---- the runner


def test_a_worker_of_another_kind_sees_the_idempotency_key_of_a_loop(world: RedisWorld) -> None:
    begun(world, task("l", loop=LoopSpec()))
    [payload] = world.payloads()

    [job] = RqRunner(world.client, world.keys).list_pending_jobs()

    assert job.idempotency_key == payload["key"]


def test_a_worker_of_another_kind_may_take_items(world: RedisWorld) -> None:
    one, weid = begun(world, map_step("m", [1, 2]))
    runner = RqRunner(world.client, world.keys)

    for job in runner.take_pending_jobs():
        runner.submit_work_result(weid, job.step_id, {"r": job.inputs["v"]}, job)
    one.run_once()

    assert items(world, weid) == [{"r": 1}, {"r": 2}]


def test_the_result_of_an_item_may_be_given_by_its_name_alone(world: RedisWorld) -> None:
    one, weid = begun(world, map_step("m", [1]))

    RqRunner(world.client, world.keys).submit_work_result(weid, "m#0", {"r": 1})
    one.run_once()

    assert ends(world, weid, "complete")()
