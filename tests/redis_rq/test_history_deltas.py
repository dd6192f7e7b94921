"""On a real Redis the deltas in a history lead to the record, after every commit, whatever happens."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from effort import count
from language.random_specs import quiet_case, racing_case
from language.redis_play import RedisPlay
from orchestrator.application.audit.deltas import check_deltas
from orchestrator.application.errors import RecordNotFound
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.delta import DeltaMark
from orchestrator.application.records.events import ControlEvent
from orchestrator.application.records.replay import is_delta, list_attempts
from orchestrator.backend.ports import Commit, Committed
from orchestrator.client import AsyncClient, Client
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.event_codec import event_fields
from orchestrator.redis_rq.json_codec import dumps
from orchestrator.redis_rq.keys import Keys, OwnStreams
from orchestrator.redis_rq.store import RedisStore
from orchestrator.redis_rq.verify.verifier import Verifier
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld

PLAYS = count(20, 200)
SEEDS_OF_ONE_TEST = 10


class CheckedStore(RedisStore):
    """After every commit, the record that is stored must be that of its deltas."""

    counts: Counter[str]

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        results = super().commit(commits)
        for commit, result in zip(commits, results, strict=True):
            if result is Committed.YES and (commit.creates or not commit.changes.is_empty):
                self._check(commit.record.workflow_execution_id)
        return results

    def _check(self, weid: str) -> None:
        try:
            record = self.load(weid)
        except RecordNotFound:
            return
        deltas = [entry for entry in self.history(weid) if is_delta(entry)]
        assert list(check_deltas(record, deltas, dumps)) == []
        assert DeltaMark.parse(record.delta).version == record.version, "the commit left no delta"
        assert sum(len(dumps(delta).encode()) for delta in deltas) == DeltaMark.parse(record.delta).size
        self.counts[weid] += 1


class CheckedWorld(RedisWorld):
    def __init__(self, *args: Any, **keys: Any) -> None:
        self.counts: Counter[str] = Counter()
        super().__init__(*args, **keys)

    def store_on(self, client: RedisClient, own_streams: OwnStreams | None = None) -> RedisStore:
        store = CheckedStore(client, self.keys, self.retention_s, self.routes, own_streams)
        store.counts = self.counts
        return store


@pytest.fixture
def world(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckedWorld]:
    monkeypatch.setenv("ORCHESTRATOR_HISTORY", "full")
    found = CheckedWorld(lambda: connect(redis_url), Keys(partitions=2))
    yield found
    found.close()


@pytest.mark.parametrize("first", range(0, PLAYS, SEEDS_OF_ONE_TEST))
def test_after_every_commit_of_a_random_workflow_the_deltas_are_the_record(
    world: CheckedWorld, first: int
) -> None:
    for seed in range(first, first + SEEDS_OF_ONE_TEST):
        make = racing_case if seed % 2 else quiet_case
        RedisPlay(make(seed), Random(seed), world).play()
        world.client.flushdb()

    assert len(world.counts) >= SEEDS_OF_ONE_TEST
    assert sum(world.counts.values()) > 3 * len(world.counts)


STORY = document(
    step("load", retry=1, input={"n": {"var": "input.n"}}),
    step("each", "load", map={"over": {"var": "steps.load.output.xs"}}, input={"x": {"var": "item"}}),
    {"id": "child", "workflow": document(step("inner")), "depends_on": ["each"]},
    {"id": "answer", "wait": {"signal": "answer"}, "depends_on": ["child"]},
    step("last", "answer", input={"n": {"var": "input.n"}}, on_error="fail"),
)
EXECUTORS = {
    "load": lambda inputs: {"xs": [1, 2], "api_token": "open-sesame"},
    "each": lambda inputs: {"y": inputs["x"]},
    "inner": lambda inputs: {"z": 1},
}


def control(
    world: RedisWorld, one: Coordinator, weid: str, action: Any, step_id: str = "", **keys: Any
) -> None:
    event = ControlEvent(weid, action, step_id, **keys)
    world.send(world.keys.events_of(weid), event_fields(event))
    one.run_once()


def fail(inputs: Json) -> Json:
    raise ValueError(f"no {inputs.get('n')} with open-sesame")


def play_story(world: RedisWorld, one: Coordinator) -> str:
    """Operators pause, hold and release an execution; it fails, and is amended, retried and rerun."""
    weid = world.begin(one, STORY, inputs={"n": 1}, execution_id="story")
    control(world, one, weid, "pause", reason="lunch")
    control(world, one, weid, "unpause")
    control(world, one, weid, "hold", "last")
    world.settle(one, executors=EXECUTORS)
    world.send(
        world.keys.events_of(weid), {"type": "signal", "execution": weid, "name": "answer", "payload": "42"}
    )
    world.settle(one, executors=EXECUTORS)
    control(world, one, weid, "release", "last")
    world.settle(one, executors={**EXECUTORS, "last": fail})
    assert world.status(weid) == "failed"
    control(world, one, weid, "retry", inputs={"n": 2})
    executors = {**EXECUTORS, "last": lambda inputs: {"done": inputs["n"]}}
    world.settle(one, executors=executors)
    control(world, one, weid, "rerun", "each")
    world.settle(one, executors=executors)
    return weid


def test_the_history_of_a_long_story_has_every_input_output_and_amendment(world: CheckedWorld) -> None:
    weid = play_story(world, world.coordinator())

    entries: list[Json] = world.store.history(weid)
    found = {(one.step, one.run_id): one for one in list_attempts(entries) or []}
    tried = [one for one in found.values() if one.step == "last"]
    assert [one.inputs for one in tried][:1] == [{"n": 1}]
    assert tried[0].error["message"] == "no 1 with <redacted>"
    assert tried[-1].inputs == {"n": 2}
    assert found["each#1", 0].inputs == {"x": 2}
    named = [*(entry.get("set", {}) for entry in entries), *(entry.get("drop", ()) for entry in entries)]
    assert {"inputs", "paused", "step:child", "item:each:1"} <= {name for names in named for name in names}
    assert "open-sesame" not in "".join(map(json.dumps, filter(is_delta, entries)))
    assert Verifier(world.client, world.keys).verify_all().found == []


def test_a_compensation_is_in_the_history_with_its_inputs(world: CheckedWorld) -> None:
    undo = {"fn": "unload", "input": {"n": {"var": "steps.load.output.n"}}}
    one = world.coordinator()
    spec = document(step("load", compensate=undo), step("last", "load", on_error="fail"))
    weid = world.begin(one, spec)
    world.settle(one, executors={"load": lambda inputs: {"n": 4}, "last": fail, "unload": lambda inputs: {}})

    [undone] = list_attempts(world.store.history(weid), "load#undo") or []

    assert (world.status(weid), undone.inputs, undone.error) == ("failed", {"n": 4}, None)


def test_a_verification_notices_a_delta_that_is_wrong(world: CheckedWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a")))
    world.settle(one)
    key = world.keys.history(weid)
    last = json.loads(world.client.lindex(key, -1))  # type: ignore[arg-type]
    world.client.lset(key, -1, dumps({**last, "set": {**last["set"], "status": "failed"}}))

    [finding] = Verifier(world.client, world.keys).verify_all().found

    assert "the deltas in the history lead to another value" in str(finding)


def test_a_failed_write_of_the_record_leaves_no_delta(world: CheckedWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a")))
    record, before = world.record(weid), world.store.history(weid)
    world.client.rename(world.keys.workflow(weid), "moved")
    world.client.set(world.keys.workflow(weid), "a wrong type")

    commit = Commit(record, Changes(state={"n": 1}, history=[{"n": 1}]), has_delta=True)
    mark = record.delta
    [result] = RedisStore.commit(world.store, [commit])

    assert result is Committed.FAILED
    assert world.store.history(weid) == before
    assert record.delta == mark


def test_an_execution_of_the_last_release_begins_with_a_snapshot(
    world: CheckedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHESTRATOR_HISTORY", "moves")
    world.counts.clear()
    old = RedisWorld(lambda: world.client, world.keys)
    weid = old.begin(old.coordinator("old"), document(step("a"), step("b", "a")))
    assert not any(map(is_delta, world.store.history(weid)))
    assert not world.client.hexists(world.keys.workflow(weid), "delta")
    monkeypatch.setenv("ORCHESTRATOR_HISTORY", "full")
    world.killed("old")  # so that the new one has all streams

    world.settle(world.coordinator("new"))

    deltas = [entry for entry in world.store.history(weid) if is_delta(entry)]
    assert [entry.get("snapshot", False) for entry in deltas] == [True, False]
    assert world.counts[weid] == 2


@pytest.mark.parametrize(
    ("setting", "key", "has_deltas"), [("moves", "full", True), ("full", "moves", False)]
)
def test_the_key_of_the_document_wins_over_the_setting(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, setting: str, key: str, has_deltas: bool
) -> None:
    monkeypatch.setenv("ORCHESTRATOR_HISTORY", setting)
    world = RedisWorld(lambda: connect(redis_url))
    one = world.coordinator()
    weid = world.begin(one, document(step("a"), history=key))
    world.settle(one)

    assert any(map(is_delta, world.store.history(weid))) is has_deltas
    assert (world.record(weid).delta is not None) is has_deltas
    world.close()


def test_clients_read_attempts_and_the_record_after_a_commit(world: CheckedWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a", input={"n": {"var": "input.n"}})), inputs={"n": 1})
    world.settle(one)
    client = Client(world.client, world.keys)

    [attempt] = client.attempts(weid, "a") or []
    assert (attempt.inputs, attempt.error) == ({"n": 1}, None)
    assert client.fields_at(weid, 1)["status"] == "in_progress"
    assert client.fields_at(weid, 2)["status"] == "complete"
    assert client.history(weid)[0]["inputs"] == {"n": 1}

    async def read() -> tuple[Any, Json]:
        async with AsyncClient(world.client, world.keys) as remote:
            return await remote.attempts(weid), await remote.fields_at(weid, 2)

    assert asyncio.run(read()) == ([attempt], client.fields_at(weid, 2))
