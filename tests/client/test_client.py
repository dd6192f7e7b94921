"""The client: every start gets a reply or an error, and an end is never missed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.application.errors import InvalidSpec, RecordNotFound, StartRejected
from orchestrator.application.records.decisions import Complete, Failed, Halt
from orchestrator.client import Client, NoReply, RequestLost, StartResult, StillRunning
from orchestrator.coordinator.loop import Coordinator
from processes import PatientClient
from servers.redis_contents import calls
from worlds.documents import document, step, when
from worlds.redis_world import RedisWorld, running
from worlds.waiting import in_thread, wait_until

ONE = document(step("a", input={"n": {"var": "input.n"}}), outputs={"n": {"var": "steps.a.output.n"}})


def client(world: RedisWorld) -> Client:
    return PatientClient(world.connect(), world.keys)


def loop(world: RedisWorld, name: str = "one") -> Coordinator:
    return world.coordinator(name, world.connect(), block_ms=20, sweep_every_s=0.1)


# ---- starting


def test_the_reply_to_a_start_has_both_ids(world: RedisWorld) -> None:
    with running(loop(world)):
        started = client(world).start(ONE, {"n": 1}, execution_id="order-42")
    assert started.execution_id == "order-42"
    assert started.workflow_execution_id.endswith("#order-42")


def test_a_registered_workflow_is_started_by_its_name(world: RedisWorld) -> None:
    client(world).register("order", ONE)
    with running(loop(world)):
        assert isinstance(client(world).start("order", {"n": 1}), StartResult)


def test_a_workflow_can_be_registered_as_yaml(world: RedisWorld) -> None:
    workflow_id = client(world).register("order", "steps:\n  - op: a\n")
    assert client(world).store.definitions() == {"order": workflow_id}


def test_a_rejection_is_raised_with_its_reason(world: RedisWorld) -> None:
    with running(loop(world)):
        client(world).start(ONE, {"n": 1}, execution_id="order-42")
        with pytest.raises(StartRejected, match="already exists"):
            client(world).start(ONE, {"n": 1}, execution_id="order-42")
        with pytest.raises(StartRejected, match="'ordr'"):
            client(world).start("ordr")


def test_an_invalid_spec_is_rejected_by_the_client_and_nothing_is_sent(world: RedisWorld) -> None:
    with pytest.raises(InvalidSpec):
        client(world).start(document(step("a", after="missing")))
    assert not world.client.exists(world.keys.starts)


def test_invalid_inputs_are_rejected_by_the_client_with_their_paths(world: RedisWorld) -> None:
    spec = document(step("a"), inputs={"n": {"type": "integer", "required": True}})
    with pytest.raises(StartRejected) as caught:
        client(world).start(spec, {"n": "1"})
    assert caught.value.problems[0]["path"] == "inputs.n"
    assert not world.client.exists(world.keys.starts)


def test_without_a_coordinator_there_is_no_reply_and_the_start_is_handled_later(
    world: RedisWorld,
) -> None:
    with pytest.raises(NoReply) as caught:
        client(world).start(ONE, {"n": 1}, reply_timeout_s=0.05)
    assert "orchestrator coordinator" in str(caught.value)

    world.settle(world.coordinator())

    assert client(world).wait_for_reply(caught.value.entry_id)["ok"] is True


def test_many_starts_are_sent_without_waiting(world: RedisWorld) -> None:
    entries = client(world).start_many([ONE] * 50, [{"n": n} for n in range(50)])
    assert len(set(entries)) == 50
    world.settle(world.coordinator())
    replies = [client(world).wait_for_reply(entry) for entry in entries]
    outcomes = [client(world).wait(reply["execution_id"]) for reply in replies]
    assert outcomes == [Complete({"n": n}) for n in range(50)]


def test_as_many_inputs_as_workflows_are_needed(world: RedisWorld) -> None:
    with pytest.raises(ValueError, match="zip"):
        client(world).start_many([ONE] * 2, [{}])
    assert not world.client.exists(world.keys.starts)


@pytest.mark.parametrize("when_asked", ["before", "after"])
def test_a_reply_can_be_read_twice_and_still_expires(world: RedisWorld, when_asked: str) -> None:
    one = world.coordinator()
    [entry] = client(world).start_many([ONE], [{"n": 1}])
    found: list[Any] = []
    if when_asked == "before":
        with in_thread(lambda: found.append(client(world).wait_for_reply(entry))):
            wait_until(lambda: any(row["cmd"] == "blmove" for row in world.client.client_list()))
            one.run_once()
    else:
        one.run_once()
        found.append(client(world).wait_for_reply(entry))
    assert found == [client(world).wait_for_reply(entry)]
    assert 0 < world.client.ttl(world.keys.reply(entry)) <= 3_600


# ---- following


def test_what_is_known_of_an_execution_is_found_by_either_id(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, inputs={"n": 1}, execution_id="order-42")
    for execution_id in ("order-42", weid):
        assert client(world).status(execution_id) == "in_progress"
        assert client(world).record(execution_id).workflow_execution_id == weid
        assert client(world).history(execution_id)[0]["step"] == "a"


def test_an_unknown_execution_is_not_found(world: RedisWorld) -> None:
    for ask in (client(world).status, client(world).record, client(world).history, client(world).wait):
        with pytest.raises(RecordNotFound):
            ask("missing")


def test_an_end_that_was_there_before_is_seen_at_once(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, inputs={"n": 1})
    world.settle(one)
    assert client(world).wait(weid, timeout_s=5) == Complete({"n": 1})


def test_every_kind_of_end_is_returned(world: RedisWorld) -> None:
    one = world.coordinator()

    def fail(inputs: Any) -> None:
        raise ValueError("no")

    halting = document(step("a", branch=[when(True, "halt", result={"why": "enough"})]))
    halted, failed = world.begin(one, halting), world.begin(one, document(step("b")))
    world.settle(one, executors={"b": fail})
    assert client(world).wait(halted) == Halt({"why": "enough"})
    end = client(world).wait(failed)
    assert isinstance(end, Failed)
    assert end.error["message"] == "no"


class Interrupted:
    """A channel that runs a function right after it has subscribed."""

    def __init__(self, channel: Any, happens: Callable[[], None]) -> None:
        self._channel, self._happens = channel, happens

    def subscribe(self, name: str) -> None:
        self._channel.subscribe(name)
        self._happens()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)


def test_an_end_between_subscribing_and_reading_is_seen(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, inputs={"n": 1})
    waiting = client(world)
    channel = waiting._ends._channel
    monkeypatch.setattr(waiting._ends, "_channel", lambda: Interrupted(channel(), lambda: world.settle(one)))

    assert waiting.wait(weid, timeout_s=5) == Complete({"n": 1})


def test_an_end_wakes_a_waiting_client(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, inputs={"n": 1})
    channel = world.keys.done(weid)
    found: list[Any] = []
    with in_thread(lambda: found.append(client(world).wait(weid))):
        wait_until(lambda: dict(world.client.pubsub_numsub(channel)).get(channel))
        world.settle(one)
    assert found == [Complete({"n": 1})]


def test_what_does_not_end_in_time_is_still_running(world: RedisWorld) -> None:
    weid = world.begin(world.coordinator(), ONE, inputs={"n": 1})
    with pytest.raises(StillRunning, match=r"0\.05 s"):
        client(world).wait(weid, timeout_s=0.05)


def test_waiting_for_a_missing_or_deleted_execution_raises(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, inputs={"n": 1})
    with pytest.raises(RecordNotFound, match="no execution has the id 'cafe#gone'"):
        client(world).wait("cafe#gone")

    channel = world.keys.done(weid)
    found: list[Exception] = []

    def wait() -> None:
        try:
            client(world).wait(weid)
        except RecordNotFound as error:
            found.append(error)

    with in_thread(wait):
        wait_until(lambda: dict(world.client.pubsub_numsub(channel)).get(channel))
        world.client.delete(world.keys.workflow(weid))
    assert [str(error) for error in found] == [f"no execution has the id {weid!r}"]


def test_waiting_asks_redis_about_once_a_second(world: RedisWorld) -> None:
    weid = world.begin(world.coordinator(), ONE, inputs={"n": 1})
    waiting = client(world)
    world.client.config_resetstat()

    with pytest.raises(StillRunning):
        waiting.wait(weid, timeout_s=1.5)
    with pytest.raises(NoReply):
        waiting.wait_for_reply("0-1", timeout_s=1.5)

    made = calls(world.client)
    # One HGET, after the timeout, looks for the start among the held ones.
    assert (made["hget"] <= 4 + 1, made["blmove"] <= 4) == (True, True), made


def test_waiting_for_a_reply_does_not_spin(world: RedisWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = client(world)
    redis = waiting._redis
    asked: list[int] = []
    blmove = redis.blmove

    def counted(*args: Any) -> Any:
        asked.append(1)
        return blmove(*args)

    monkeypatch.setattr(redis, "blmove", counted)

    with pytest.raises(NoReply):
        waiting.wait_for_reply("0-1", timeout_s=0.3)

    assert len(asked) <= 3


# ---- lost writes


def test_a_start_that_redis_has_lost_is_not_waited_for(world: RedisWorld) -> None:
    entry = client(world).send_start(ONE, {"n": 1})
    world.client.flushall()

    with pytest.raises(RequestLost, match="send the request again") as raised:
        client(world).wait_for_reply(entry, timeout_s=0.05)

    assert raised.value.entry_id == entry


def test_a_start_that_waits_in_its_stream_is_not_called_lost(world: RedisWorld) -> None:
    entry = client(world).send_start(ONE, {"n": 1})

    with pytest.raises(NoReply, match=f"waits in the stream as {entry}") as raised:
        client(world).wait_for_reply(entry, timeout_s=0.05)

    assert not isinstance(raised.value, RequestLost)


def test_waiting_ends_when_the_execution_is_deleted(world: RedisWorld) -> None:
    one = world.coordinator("one")
    weid = world.begin(one, ONE, inputs={"n": 1})
    world.client.delete(world.keys.workflow(weid))

    with pytest.raises(RecordNotFound):
        client(world).wait(weid, timeout_s=5)
