"""A control is applied once and gets one reply, which is kept for an hour under the name its sender chose."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from orchestrator.application.errors import RecordNotFound, Unavailable
from orchestrator.client import Client, ControlRejected, ControlResult, NoReply
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.connection import Client as RedisClient
from processes import PatientClient
from servers.proxy import Proxy
from servers.redis_server import RedisServer, find_redis_cli
from worlds.documents import document, step
from worlds.families import control, serving, taken
from worlds.redis_world import RedisWorld, running
from worlds.waiting import wait_until

TWO = document(step("a"), step("b", after="a"))
WAIT = document({"id": "w", "wait": {"signal": "go"}}, step("a", after="w"))


def client(world: RedisWorld) -> Client:
    return PatientClient(world.connect(), world.keys)


def loop(world: RedisWorld, name: str = "one") -> Coordinator:
    return world.coordinator(name, world.connect(), block_ms=20, sweep_every_s=0.1)


def replies(world: RedisWorld, name: str = "me") -> list[dict[str, Any]]:
    found: Any = world.client.lrange(world.keys.reply(name), 0, -1)
    return [json.loads(one) for one in found]


def controls(world: RedisWorld, execution_id: str = "x") -> list[str]:
    return [one["control"] for one in world.history(execution_id) if "control" in one]


# ---- unknown executions


def test_an_unknown_execution_is_not_found_and_nothing_is_sent(world: RedisWorld) -> None:
    one = client(world)
    for send in (one.cancel, one.pause, one.unpause, one.retry, one.delete):
        with pytest.raises(RecordNotFound, match="no execution has the id 'missing'"):
            send("missing")
    for send_to_step in (one.hold, one.release, one.rerun):
        with pytest.raises(RecordNotFound, match="no execution has the id 'missing'"):
            send_to_step("missing", "a")
    assert world.events() == []


def test_an_unknown_full_id_is_rejected_without_a_dead_letter(world: RedisWorld) -> None:
    with running(loop(world)):
        for send in (client(world).cancel, client(world).delete, lambda one: client(world).signal(one, "go")):
            with pytest.raises(ControlRejected, match="no execution has the id 'w1#missing'"):
                send("w1#missing")
    assert world.dead() == []


def test_a_control_to_an_execution_deleted_meanwhile_is_rejected(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = world.begin(one, TWO, execution_id="x")
    control(world, weid, "cancel")
    one.run_once()
    control(world, weid, "delete", reply="first")
    control(world, weid, "delete", reply="second")
    control(world, weid, "retry", reply="third")

    one.run_once()
    control(world, weid, "retry", reply="fourth")
    one.run_once()

    assert replies(world, "first") == [{"ok": True, "changed": True, "status": "deleted"}]
    gone = f"workflow {weid!r} cannot be controlled: it is deleted"
    assert replies(world, "second") == replies(world, "third") == [{"ok": False, "reason": gone}]
    assert replies(world, "fourth") == [{"ok": False, "reason": f"no execution has the id {weid!r}"}]
    assert world.dead() == []


def test_without_a_coordinator_there_is_no_reply_and_the_control_is_applied_later(world: RedisWorld) -> None:
    weid = world.begin(world.coordinator(), TWO, execution_id="x")

    with pytest.raises(NoReply) as caught:
        client(world).cancel("x", "too late", "ada", reply_timeout_s=0.05)

    assert "no coordinator replied within 0.05 s; check that one is running" in str(caught.value)
    assert caught.value.entry_id in [entry for entry, _ in world.events()]
    assert world.status(weid) == "in_progress"
    world.settle(world.coordinator("two"))
    assert world.status(weid) == "cancelled"
    assert world.history(weid)[-1] | {"at": "", "cause": ""} == {
        "at": "",
        "cause": "",
        "control": "cancel",
        "by": "ada",
        "reason": "too late",
    }


# ---- once


def test_a_control_that_is_delivered_twice_is_applied_once_and_gets_one_reply(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two")
    world.begin(one, TWO, execution_id="x")
    control(world, "x", "pause", reply="me")
    deliveries = taken(world)

    one.handle(deliveries)
    two.handle(deliveries)

    assert replies(world) == [{"ok": True, "changed": True, "status": "paused"}]
    assert controls(world) == ["pause"]


def test_a_rejected_control_that_is_delivered_twice_gets_one_reply(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two")
    weid = world.begin(one, TWO, execution_id="x")
    control(world, "x", "unpause", reply="me")
    deliveries = taken(world)

    one.handle(deliveries)
    world.client.delete(world.keys.reply("me"))  # it was read
    two.handle(deliveries)

    assert replies(world) == []
    assert (world.status(weid), world.dead()) == ("in_progress", [])


@pytest.mark.parametrize("action", ["pause", "unpause"])
def test_a_lost_acknowledgement_of_redis_applies_nothing_twice(
    world: RedisWorld, proxy: Proxy, proxied: RedisClient, action: str
) -> None:
    """The commit or the rejection is written, but its coordinator does not learn of it."""
    one = world.coordinator("one", proxied, trim_every_s=1e9, sweep_every_s=1e9, reclaim_every_s=1e9)
    one.run_once()
    world.begin(one, TWO, execution_id="x")
    control(world, "x", action, reply="me")
    deliveries = taken(world, "one")
    proxy.drop_reply_of("XACK" if action == "pause" else "RPUSH")

    with pytest.raises(Unavailable):
        one.handle(deliveries)
    assert proxy.dropped == 1
    one.resume_unfinished()
    world.settle(one)

    assert len(replies(world)) == 1
    assert replies(world)[0]["ok"] == (action == "pause")
    assert controls(world) == (["pause"] if action == "pause" else [])
    assert (world.pending(), world.dead()) == ([], [])


# ---- names of replies


def test_a_rejected_control_becomes_a_dead_letter_unless_it_requests_a_reply(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = world.begin(one, TWO, execution_id="x")
    control(world, "x", "unpause", reply="me")
    one.run_once()
    assert world.dead() == []
    reason = f"workflow {weid!r} cannot be unpaused: it is in_progress"
    assert replies(world) == [{"ok": False, "reason": reason}]

    control(world, "x", "unpause")
    one.run_once()

    assert [letter["reason"] for letter in world.dead()] == [reason]


def test_a_reply_expires(world: RedisWorld) -> None:
    [one] = serving(world)
    world.begin(one, TWO, execution_id="x")
    for action in ("pause", "retry"):  # a commit, and a rejection
        control(world, "x", action, reply=action)
        one.run_once()
        assert 0 < int(world.client.ttl(world.keys.reply(action))) <= 3_600


def test_a_name_that_is_used_again_has_only_the_last_reply(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = world.begin(one, TWO, execution_id="x")
    for action, reply in (
        ("pause", {"ok": True, "changed": True, "status": "paused"}),
        ("pause", {"ok": True, "changed": False, "status": "paused"}),
        ("retry", {"ok": False, "reason": f"workflow {weid!r} cannot be retried: it is paused"}),
        ("unpause", {"ok": True, "changed": True, "status": "in_progress"}),
    ):
        control(world, "x", action, reply="me")
        one.run_once()
        assert replies(world) == [reply]


@pytest.mark.parametrize("execution", ["x", "missing"])
def test_a_reply_name_whose_key_has_another_type_breaks_nothing(world: RedisWorld, execution: str) -> None:
    [one] = serving(world)
    weid = world.begin(one, TWO, execution_id="x")
    world.client.set(world.keys.reply("me"), "something else")

    control(world, execution, "cancel", reply="me")
    one.run_once()

    assert replies(world)[0]["ok"] == (execution == "x")
    assert world.status(weid) == ("cancelled" if execution == "x" else "in_progress")
    assert (world.pending(), world.dead()) == ([], [])


@pytest.mark.parametrize("reply", ["", "a" * 257, "a b", "a/b", "../x", "é", "a\n", "{x}", "*", "\0"])
@pytest.mark.parametrize("kind", ["control", "signal"])
def test_a_reply_name_with_invalid_characters_or_too_many_is_rejected(
    world: RedisWorld, kind: str, reply: str
) -> None:
    [one] = serving(world)
    weid = world.begin(one, TWO, execution_id="x")
    known = list(world.client.scan_iter(f"{world.keys.reply('')}*"))  # that of the start
    fields = {"action": "cancel"} if kind == "control" else {"name": "go"}
    world.send(world.keys.events(0), {"type": kind, "execution": "x", **fields, "reply": reply})

    one.run_once()

    [letter] = world.dead()
    assert letter["reason"] == "reply: 1 to 256 letters, digits, '_', '-', '.' or ':'"
    assert world.status(weid) == "in_progress"
    assert list(world.client.scan_iter(f"{world.keys.reply('')}*")) == known


@pytest.mark.parametrize(("count", "shown"), [(1_001, "1,001"), (9_000_000, "9,000,")])
def test_a_reason_that_is_too_long_is_rejected_with_a_reply(
    world: RedisWorld, count: int, shown: str
) -> None:
    with running(loop(world)):
        client(world).start(TWO, execution_id="x")
        with pytest.raises(ControlRejected, match=f"{shown}.* characters; at most"):
            client(world).cancel("x", "?" * count)
        assert client(world).status("x") == "in_progress"
        assert client(world).cancel("x", "?" * 1_000).status == "cancelled"
    assert max(len(str(letter)) for letter in world.dead()) < 100_000


# ---- by hand


def test_redis_cli_sends_a_control_and_reads_its_reply(world: RedisWorld, redis_server: RedisServer) -> None:

    def redis_cli(*arguments: str) -> str:
        done = subprocess.run(
            [find_redis_cli(), "-s", str(redis_server.socket), *arguments],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with running(loop(world)):
        client(world).start(TWO, execution_id="x")
        fields = ("type", "control", "execution", "x", "reply", "desk-7")
        redis_cli("XADD", "orchestrator:events:0", "*", *fields, "action", "pause", "by", "ada")
        key, reply = redis_cli("BLPOP", "orchestrator:answer:desk-7", "180").splitlines()
        assert (key, json.loads(reply)) == (
            "orchestrator:answer:desk-7",
            {"ok": True, "changed": True, "status": "paused"},
        )

        redis_cli("XADD", "orchestrator:events:3", "*", *fields, "action", "rerun", "step", "b")
        _, reply = redis_cli("BLPOP", "orchestrator:answer:desk-7", "180").splitlines()

    assert json.loads(reply)["ok"] is False
    assert json.loads(reply)["reason"].endswith("cannot be rerun: it is paused")
    assert world.dead() == []


# ---- signals


def test_a_signal_returns_whether_a_step_waited_for_it(world: RedisWorld) -> None:
    with running(loop(world)):
        one = client(world)
        one.start(WAIT, execution_id="x")
        assert one.signal("x", "other") is False
        assert one.signal("x", "go", {"n": 1}) is True
        assert one.record("x").steps["w"].output == {"n": 1}
        assert one.signal("x", "go", reply_timeout_s=None) is False
        wait_until(lambda: len(one.record("x").signals) == 2)


def test_a_signal_to_an_execution_that_does_not_exist_yet_is_kept(world: RedisWorld) -> None:
    with running(loop(world)):
        one = client(world)
        assert one.signal("x", "go", 7, reply_timeout_s=180) is False
        one.start(WAIT, execution_id="x")
        assert one.record("x").steps["w"].output == {"value": 7}


# ---- many at once


def test_one_client_may_be_used_by_many_threads(world: RedisWorld) -> None:
    shared = client(world)

    def life(n: int) -> list[Any]:
        name = f"x{n}"
        shared.start(TWO, execution_id=name)
        return [shared.pause(name), shared.unpause(name), shared.cancel(name), shared.delete(name)]

    with running(loop(world)), running(loop(world, "two")), ThreadPoolExecutor(8) as pool:
        found = list(pool.map(life, range(40)))

    every = [
        ControlResult("paused"),
        ControlResult("in_progress"),
        ControlResult("cancelled"),
        ControlResult("deleted"),
    ]
    assert found == [every] * 40
    assert (world.dead(), list(world.client.scan_iter(f"{world.keys.workflow('')}*"))) == ([], [])
