"""What is broken by hand is found, put right, and the execution then runs to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from orchestrator.application.errors import RecordNotFound
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.verify import verifier as inspector
from orchestrator.redis_rq.verify.verifier import ReportedFinding, Verifier, VerifyReport
from orchestrator.settings import RETENTION_MARGIN_S
from servers.redis_contents import snapshot
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld

CHILD = {"name": "child", "steps": [{"op": "c"}]}


@dataclass
class Scene:
    """Executions under way: one that runs, one that waits, one with a child, two under a concurrency key."""

    world: RedisWorld
    one: Coordinator
    ids: dict[str, str] = field(default_factory=dict)

    def begin(self, name: str, spec: Json, **start: Any) -> str:
        self.ids[name] = self.world.begin(self.one, spec, execution_id=name, **start)
        return self.ids[name]

    def finish(self) -> None:
        """Signals are sent, time passes, workers work; everything comes to its end."""
        world = self.world
        for weid in self.ids.values():
            fields = {"type": "signal", "execution": weid, "name": "go"}
            world.send(world.keys.events_of(weid), fields)
        for _ in range(6):
            world.settle(self.one)
            world.age_timers(3_600_000)
            world.age_leases(3_600_000)

    @property
    def statuses(self) -> dict[str, str]:
        return {name: self.world.status(weid) for name, weid in self.ids.items()}

    def verify(self, name: str | None = None, repairs: bool = False) -> VerifyReport:
        inspector = Verifier(self.world.client, self.world.keys, self.world.retention_s, repairs=repairs)
        return inspector.verify_all() if name is None else inspector.verify(name)


@pytest.fixture
def scene(world: RedisWorld) -> Scene:
    scene = Scene(world, world.coordinator())
    scene.begin("runs", document(step("a"), step("b", "a"), timeout="1h"), group="g")
    scene.begin("plain", document(step("a")))
    scene.begin("waits", document({"id": "w", "wait": {"signal": "go", "timeout": "1h"}}))
    scene.begin("parent", document({"id": "kid", "workflow": CHILD}))
    for name in ("first", "second"):
        scene.begin(name, document(step("a", concurrency={"key": "k", "limit": 1})))
    scene.one.run_once()
    scene.one.run_once()
    return scene


def codes(found: list[ReportedFinding]) -> set[tuple[str, str]]:
    return {(one.execution.partition("#")[2], one.finding.code) for one in found}


def test_a_healthy_system_has_nothing_to_find(scene: Scene) -> None:
    for name in (None, *scene.ids):
        report = scene.verify(name)
        assert report.found == [], name
        assert report.busy == []
    scene.finish()

    assert set(scene.statuses.values()) == {"complete"}
    report = scene.verify()
    assert (report.found, report.statuses) == ([], {"complete": 7})


def test_a_missing_execution_is_not_found(scene: Scene) -> None:
    with pytest.raises(RecordNotFound):
        scene.verify("missing")


# ---- damages that can be put right


def out_of_its_index(scene: Scene) -> None:
    scene.world.client.zrem(scene.world.keys.index("in_progress"), scene.ids["runs"])


def into_another_index(scene: Scene) -> None:
    scene.world.client.zadd(scene.world.keys.index("failed"), {scene.ids["runs"]: scene.world.now_ms()})


def without_its_pointer(scene: Scene) -> None:
    scene.world.client.delete(scene.world.keys.execution("runs"))


def a_record_that_expires(scene: Scene) -> None:
    scene.world.client.expire(scene.world.keys.workflow(scene.ids["runs"]), 1_000)


def a_history_that_expires(scene: Scene) -> None:
    scene.world.client.expire(scene.world.keys.history(scene.ids["runs"]), 1_000)


def a_spec_that_expires(scene: Scene) -> None:
    scene.world.client.expire(scene.world.keys.spec(scene.ids["runs"].partition("#")[0]), 1_000)


def without_timers(scene: Scene) -> None:
    scene.world.client.delete(scene.world.keys.timers)


def with_timers_that_never_come(scene: Scene) -> None:
    scene.world.client.zadd(scene.world.keys.timers, dict.fromkeys(scene.world.timers(), float("inf")))


def with_a_stray_timer(scene: Scene) -> None:
    member = f"wake|{scene.ids['runs']}|a|7"
    scene.world.client.zadd(scene.world.keys.timers, {member: scene.world.now_ms() + 10**9})


def without_a_lease(scene: Scene) -> None:
    """Its worker took it and died, and that will never be detected."""
    world, keys, member = scene.world, scene.world.keys, lease(scene)
    token = member.rpartition("|")[2]
    world.client.lrem(keys.rq_queue(keys.queue("default")), 0, token)
    world.client.delete(keys.rq_job(token))
    world.client.zrem(keys.leases, member)


def in_no_queue(scene: Scene) -> None:
    scene.world.client.zadd(scene.world.keys.leases, {lease(scene): float("inf")})


def with_a_stray_lease(scene: Scene) -> None:
    scene.world.client.zadd(scene.world.keys.leases, {f"{scene.ids['runs']}|a|0|1|other": float("inf")})


def with_a_slot_that_is_not_held(scene: Scene) -> None:
    scene.world.client.delete(scene.world.keys.slot_holders("k"))


def that_is_not_among_the_waiters(scene: Scene) -> None:
    scene.world.client.delete(scene.world.keys.slot_waiters("k"))


def with_a_grant_without_event(scene: Scene) -> None:
    """The first of two leaves, and the word that the second one has a place now is lost."""
    world, keys = scene.world, scene.world.keys
    world.work()
    scene.one.run_once()
    [slot] = [entry for entry, fields in world.events() if fields["type"] == "slot" and second(scene, fields)]
    world.client.xdel(keys.events_of(scene.ids["second"]), slot)
    assert world.record(scene.ids["first"]).is_final
    assert world.client.zcard(keys.slot_holders("k")) == 1


def second(scene: Scene, fields: dict[str, str]) -> bool:
    return fields["execution"] == scene.ids["second"]


def that_waits_for_nothing(scene: Scene) -> None:
    """As if a step had never been dispatched, and the event that would do it were lost."""
    world, keys, weid = scene.world, scene.world.keys, scene.ids["plain"]
    token = world.record(weid).steps["a"].token
    world.client.delete(keys.rq_job(str(token)))
    world.client.zrem(keys.leases, *(one for one in world.leases() if one.startswith(weid)))
    ready: dict[Any, Any] = {"step:a": '{"status":"ready","run_id":0,"attempt":1}', "version": "7-other"}
    world.client.hset(keys.workflow(weid), mapping=ready)
    world.client.lpop(keys.history(weid))


def lease(scene: Scene) -> str:
    return next(one for one in scene.world.leases() if one.startswith(scene.ids["runs"]))


DAMAGES: list[tuple[Callable[[Scene], None], str, set[tuple[str, str]]]] = [
    (out_of_its_index, "runs", {("runs", "index")}),
    (into_another_index, "runs", {("runs", "index")}),
    (without_its_pointer, "runs", {("runs", "pointer")}),
    (a_record_that_expires, "runs", {("runs", "term")}),
    (a_history_that_expires, "runs", {("runs", "term")}),
    (a_spec_that_expires, "runs", {("runs", "term")}),
    (without_timers, "runs", {("runs", "timer"), ("waits", "timer")}),
    (with_timers_that_never_come, "waits", {("runs", "timer"), ("waits", "timer")}),
    (with_a_stray_timer, "runs", {("runs", "stray")}),
    (without_a_lease, "runs", {("runs", "lease")}),
    (in_no_queue, "runs", {("runs", "lease")}),
    (with_a_stray_lease, "runs", {("runs", "stray")}),
    (with_a_slot_that_is_not_held, "first", {("first", "place"), ("second", "place")}),
    (that_is_not_among_the_waiters, "second", {("second", "place")}),
    (with_a_grant_without_event, "second", {("second", "place")}),
    (that_waits_for_nothing, "plain", {("plain", "stuck")}),
]


@pytest.mark.parametrize(("damage", "name", "expected"), DAMAGES, ids=[one.__name__ for one, _, _ in DAMAGES])
def test_a_damage_is_found_and_put_right(
    scene: Scene, damage: Callable[[Scene], None], name: str, expected: set[tuple[str, str]]
) -> None:
    damage(scene)
    records = snapshot(scene.world.client)

    assert codes(scene.verify().found) == expected
    assert codes(scene.verify(name).found) == {one for one in expected if one[0] == name}
    assert snapshot(scene.world.client) == records, "a check without repair changes nothing"
    repaired = scene.verify(repairs=True)

    assert (codes(repaired.found), repaired.unrepaired) == (expected, [])
    assert whole_records(snapshot(scene.world.client)) == whole_records(records)
    assert scene.verify(repairs=True).found == []
    scene.finish()
    assert set(scene.statuses.values()) == {"complete"}
    assert scene.verify().found == []


@pytest.mark.parametrize(("damage", "name", "expected"), DAMAGES, ids=[one.__name__ for one, _, _ in DAMAGES])
def test_one_execution_is_put_right_alone(
    scene: Scene, damage: Callable[[Scene], None], name: str, expected: set[tuple[str, str]]
) -> None:
    damage(scene)

    repaired = scene.verify(name, repairs=True)

    assert repaired.found
    assert repaired.unrepaired == []
    assert scene.verify(name).found == []


def whole_records(found: Json) -> Json:
    return {key: value for key, value in found.items() if ":workflow:" in key}


# ---- stray members


def test_stray_members_are_removed(scene: Scene) -> None:
    world, keys, now = scene.world, scene.world.keys, scene.world.now_ms()
    gone = "0123#gone"
    world.client.zadd(keys.timers, {f"wake|{gone}|a|0": now + 10**9, "nonsense": now + 10**9})
    world.client.zadd(keys.leases, {f"{gone}|a|0|1|t": float("inf"), "nonsense": float("inf")})
    world.client.zadd(keys.index("in_progress"), {gone: now})
    world.client.zadd(keys.index("complete"), {gone: now})
    world.client.set(keys.execution("gone"), gone)
    world.client.zadd(keys.slot_holders("k"), {f"2|{keys.events(0)}|{gone}|a|t": now})
    world.client.zadd(keys.slot_waiters("other"), {f"1|{keys.events(0)}|{gone}|a|t": 1, "nonsense": 2})

    repaired = scene.verify(repairs=True)

    assert len(repaired.found) == 10
    assert {one.finding.code for one in repaired.found} == {"stray"}
    assert repaired.unrepaired == []
    assert scene.verify().found == []
    scene.finish()
    assert set(scene.statuses.values()) == {"complete"}


def test_a_stray_slot_is_granted_to_the_next_waiter(scene: Scene) -> None:
    world, keys = scene.world, scene.world.keys
    world.client.zadd(keys.slot_holders("k"), {f"1|{keys.events(0)}|0123#gone|a|t": 1})
    scene.finish()
    assert scene.statuses["second"] == "pending", "a place too few: it waits for ever"

    repaired = scene.verify(repairs=True)

    assert codes(repaired.found) == {("gone", "stray")}
    scene.finish()
    assert scene.statuses["second"] == "complete"


def test_an_execution_that_has_expired_is_removed_from_its_indexes(scene: Scene) -> None:
    keys, client = scene.world.keys, scene.world.client
    for key in (keys.index("complete"), keys.index_of_name("order")):
        client.zadd(key, {"0123#old": 1})
    client.zadd(keys.ended, {"0123#old|[]": scene.world.now_ms()})

    assert scene.verify(repairs=True).unrepaired == []

    assert client.exists(keys.index_of_name("order")) == 0
    assert client.zscore(keys.index("complete"), "0123#old") is None
    assert scene.verify().found == []


# ---- executions that have ended


def test_an_execution_that_ended_gets_its_places_in_the_indexes_and_its_pointer_again(scene: Scene) -> None:
    scene.finish()
    world, keys, weid = scene.world, scene.world.keys, scene.ids["runs"]
    began = world.client.zscore(keys.index("complete"), weid)
    [member] = [one for one in world.client.zrange(keys.ended, 0, -1) if str(one).startswith(f"{weid}|")]
    world.client.zrem(keys.ended, str(member))
    world.client.zadd(keys.index("complete"), {weid: 1})
    world.client.delete(keys.execution("runs"))
    assert codes(scene.verify(weid).found) == {("runs", "index"), ("runs", "pointer")}

    repaired = scene.verify(repairs=True)

    assert (len(repaired.found), repaired.unrepaired) == (3, [])
    assert world.is_leaving(weid)
    assert world.client.zscore(keys.index("complete"), weid) == began
    assert world.client.get(keys.execution("runs")) == weid


# ---- counters


def test_counters_that_are_wrong_are_set_right(scene: Scene) -> None:
    world, keys = scene.world, scene.world.keys
    spec = keys.spec(scene.ids["runs"].partition("#")[0])
    world.client.hset(keys.groups, "g", 7)
    world.client.hset(keys.groups, "other", 1)
    world.client.hset(spec, "executions", 0)
    world.client.expire(spec, 1_000)
    ended = keys.spec("ended")
    world.client.hset(ended, mapping={"document": "{}", "executions": 3})

    found = scene.verify().found
    repaired = scene.verify(repairs=True)

    counts = {
        (one.finding.where, one.finding.words.split()[1]) for one in found if one.finding.code == "count"
    }
    assert {where for where, _ in counts} == {keys.groups, spec, ended}
    assert repaired.unrepaired == []
    assert world.client.hgetall(keys.groups) == {"g": "1"}
    assert (world.client.hget(spec, "executions"), world.client.ttl(spec)) == ("1", -1)
    assert world.client.hget(ended, "executions") == "0"
    term_s = world.retention_s + RETENTION_MARGIN_S
    assert term_s - 600 < int(str(world.client.ttl(ended))) <= term_s
    assert scene.verify().found == []


# ---- what cannot be put right


def test_what_is_wrong_with_a_record_is_told_and_left(scene: Scene) -> None:
    world, keys = scene.world, scene.world.keys
    world.client.hset(
        keys.workflow(scene.ids["plain"]), "step:a", '{"status":"complete","run_id":0,"attempt":1}'
    )
    world.client.hset(keys.workflow(scene.ids["waits"]), "step:w", "no JSON")
    world.client.rpush(keys.history(scene.ids["first"]), "no JSON")
    world.client.set(keys.execution("second"), scene.ids["first"])

    report = scene.verify(repairs=True)

    left = codes(report.unrepaired)
    assert left == {
        ("plain", "status"),
        ("waits", "unreadable"),
        ("first", "unreadable_entry"),
        ("second", "pointer"),
    }
    assert report.statuses["unreadable"] == 1


def test_a_record_that_is_no_record_is_unreadable(scene: Scene) -> None:
    key = scene.world.keys.workflow(scene.ids["plain"])
    scene.world.client.delete(key)
    scene.world.client.set(key, "no hash")

    assert codes(scene.verify().found) >= {("plain", "unreadable")}


def test_a_child_that_no_parent_waits_for_is_reported(scene: Scene) -> None:
    world, keys = scene.world, scene.world.keys
    parent = keys.workflow(scene.ids["parent"])
    kid = str(world.client.hget(parent, "step:kid"))
    world.client.hset(parent, "step:kid", kid.replace('"token":"', '"token":"other-'))

    assert codes(scene.verify().found) == {("parent:kid:0", "orphan")}


def test_a_child_that_is_gone_is_told(scene: Scene) -> None:
    world, keys = scene.world, scene.world.keys
    child = str(world.client.get(keys.execution("parent:kid:0")))
    world.client.delete(keys.workflow(child), keys.execution("parent:kid:0"))

    assert ("parent", "child") in codes(scene.verify().found)


ENDED = ("result", "kid")


def test_a_child_whose_end_did_not_reach_its_parent_is_reported(scene: Scene) -> None:
    world, keys = scene.world, scene.world.keys
    world.work()
    scene.one.run_once()
    assert scene.verify().found == [], "its result is under way"
    [result] = [entry for entry, fields in world.events() if (fields["type"], fields.get("step")) == ENDED]
    world.client.xdel(keys.events_of(scene.ids["parent"]), result)

    assert codes(scene.verify().found) == {("parent", "child")}


def test_counters_are_not_compared_when_too_many_executions_are_open(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector, "MAX_COUNTED", 3)
    assert scene.verify().has_compared_counts, "what was seen agrees with the counters"
    scene.world.client.hset(scene.world.keys.groups, "g", 7)

    report = scene.verify()

    assert (report.found, report.has_compared_counts) == ([], False)


# ---- what is under way


def test_what_an_event_under_way_will_put_right_is_no_finding(scene: Scene) -> None:
    world = scene.world
    world.work(most=0)
    while world.pop() is not None:
        pass
    log = world.log("one")
    world.settle(scene.one)
    world.age_leases(3_600_000)
    world.age_timers(7_200_000)

    assert log.sweep() > 4

    assert (world.leases(), world.timers()) == ({}, {})
    assert scene.verify().found == [], "losses and timers are in the streams"
    assert scene.verify("runs").found == []
    log.read(100, 0)
    assert scene.verify().found == [], "they are read and not answered"
