"""Webhooks on Redis: the end of every execution is told at least once, and nothing is left behind."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from effort import count
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.unit_id import WEBHOOK_UNIT
from orchestrator.client import Client
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from orchestrator_executors import webhook as module
from orchestrator_executors.webhook import webhook
from processes import ROOT, PatientClient, stack, wait_until
from servers.proxy import Proxy
from servers.receiver import Answer, Receiver, receiver
from servers.redis_server import require_redis_server
from worlds.documents import Json, document, step
from worlds.families import (
    decide_all,
    left,
    serving,
    storm,
    turns_with_a_lost_reply,
)
from worlds.redis_world import RedisWorld, result_fields

SECRET = "wh-s3cret"
OUTPUTS = {"n": {"var": "steps.a.output.n"}, "api_key": "k-abc", "iban": "DE00"}


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv(module.HOSTS_VARIABLE, "127.0.0.1")
    with receiver() as made:
        yield made


def told(url: str, *steps: Json, **keys: Any) -> Json:
    """A workflow that tells this URL of its end."""
    made = steps or (step("a", input={"n": 1}),)
    return document(
        *made, outputs=OUTPUTS, redact=["iban"], **{"webhook": {"url": url}, "name": "shop", **keys}
    )


def work(world: RedisWorld, one: Coordinator, most: int = 10) -> None:
    """Work and decide, in turns, with the executor that every worker has; back-offs are not waited for."""
    for _ in range(most):
        world.work({"webhook": webhook})
        decide_all(world, one)


def unit(world: RedisWorld, weid: str) -> StepRecord:
    return world.record(weid).items[WEBHOOK_UNIT]


def lines(world: RedisWorld, weid: str) -> list[str]:
    return [entry["to"] for entry in world.history(weid) if entry.get("step") == WEBHOOK_UNIT]


def pass_time(world: RedisWorld, one: Coordinator, weid: str, ms: int) -> None:
    """As if this much time had passed for the webhook, and then everything that follows."""
    key, name = world.keys.workflow(weid), "item::webhook"
    raw = json.loads(str(world.client.hget(key, name)))
    raw |= {one: raw[one] - ms for one in ("not_before_ms", "deadline_ms") if raw.get(one)}
    world.client.hset(key, name, json.dumps(raw))
    one._backend.drop_cached_records()
    world.age_timers(ms)
    one.run_once()
    work(world, one)


# ---- told


def test_it_is_posted_and_written_down_and_the_record_goes_when_it_would_have(
    world: RedisWorld, hooks: Receiver
) -> None:
    [one] = serving(world)
    weid = world.begin(one, told(hooks.url), execution_id="x")
    work(world, one)

    [got] = hooks.posts
    assert (got.json["status"], got.delivery) == ("complete", "x#webhook#0")
    assert (unit(world, weid).status, unit(world, weid).output) == ("complete", {"status": 204})
    assert lines(world, weid) == ["in_progress", "complete"]
    assert world.is_leaving(weid)
    assert left(world) == {}


def test_a_worker_that_may_not_post_says_so_and_is_not_asked_again(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(module.HOSTS_VARIABLE, raising=False)
    [one] = serving(world)
    weid = world.begin(one, told("https://hooks.example.org"), execution_id="x")
    work(world, one)

    error = unit(world, weid).error
    assert error is not None
    assert (unit(world, weid).status, error["kind"]) == ("failed", "refused")
    assert module.HOSTS_VARIABLE in error["message"]
    assert (world.status(weid), left(world)) == ("complete", {})


# ---- what a start says


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("nowhere", "webhook.url: must be a URL that begins with"),
        ('{"url": "nowhere"}', "webhook.url: must be a URL that begins with"),
        ('{"url": "https://example.org", "on": ["ended"]}', "webhook.on[0]: must be"),
        ('{"url": ', "webhook is not JSON"),
        ("https://example.org/" + 20_000 * "x", "webhook has 20,020 characters"),
    ],
)
def test_a_start_whose_webhook_makes_no_sense_is_refused(world: RedisWorld, given: str, why: str) -> None:
    [one] = serving(world)
    entry = world.start(document(step("a")), execution_id="x", webhook=given)
    one.run_once()

    answer = world.answer(entry)
    assert (answer["ok"], why in answer["reason"]) == (False, True), answer
    assert world.client.exists(world.keys.execution("x")) == 0


# ---- whoever dies, and whatever comes twice


def test_a_coordinator_that_has_just_begun_goes_on_with_the_webhook_of_the_last_one(
    world: RedisWorld, hooks: Receiver
) -> None:
    hooks.answers = [Answer(500)]
    [one] = serving(world, "one")
    weid = world.begin(one, told(hooks.url), execution_id="x")
    work(world, one)
    world.killed("one")

    [two] = serving(world, "two")
    pass_time(world, two, weid, 1_200)

    assert (unit(world, weid).status, len(hooks.posts), left(world)) == ("complete", 2, {})


@pytest.mark.parametrize("seed", range(count(1, 3)))
def test_in_a_storm_every_end_is_told_and_counted_once(world: RedisWorld, seed: int) -> None:
    told_of: list[str] = []

    def keep(inputs: Json) -> Json:
        told_of.append(inputs["body"]["execution_id"])
        return {"status": 200}

    coordinators = serving(world, "one", "two")
    spec = told("https://hooks.example.org", step("a", input={"n": 1}), step("b"), step("c", "a b"))
    names = [f"x{n}" for n in range(6)]
    for name in names:
        world.start(spec, execution_id=name)

    def all_are_told() -> bool:
        return len(set(told_of)) == len(names)

    storm(world, coordinators, random.Random(seed), all_are_told, {"webhook": keep})

    assert sorted(told_of) == names, "nobody died: once is enough"
    for name in names:
        weid = world.record(name).workflow_execution_id
        assert (world.status(weid), lines(world, weid)) == ("complete", ["in_progress", "complete"])
    assert left(world) == {}


@pytest.mark.parametrize("nth", range(1, 4))
def test_a_reply_that_is_lost_tells_nobody_twice(
    world: RedisWorld, proxy: Proxy, proxied: RedisClient, nth: int
) -> None:
    told_of = list[str]()

    def keep(inputs: Json) -> Json:
        told_of.append(inputs["body"]["status"])
        return {"status": 200}

    one = world.coordinator("one", proxied)
    world.start(told("https://hooks.example.org"), execution_id="x")
    dropped = turns_with_a_lost_reply(proxy, one, nth, lambda: world.work({"webhook": keep}))
    world.settle(one, executors={"webhook": keep})

    assert dropped == 1
    assert (told_of, left(world)) == (["complete"], {})


@pytest.mark.parametrize("unknown", ["#webhook", "#other", "#", "a#webhook", "#webhook#webhook"])
def test_a_guess_changes_nothing(world: RedisWorld, unknown: str) -> None:
    [one] = serving(world)
    weid = world.begin(one, document(step("a")), execution_id="x")
    world.settle(one)
    before = world.record(weid)
    guess = {"execution": weid, "step": unknown, "run_id": 0, "attempt": 1, "token": "guess-0"}

    world.send(world.keys.events_of(weid), result_fields(guess, {}))
    world.settle(one)

    assert (world.record(weid).version, world.record(weid).items) == (before.version, {})
    assert world.pending() == []


def test_a_record_with_a_webhook_comes_back_as_it_was(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = world.begin(
        one, document(step("a")), execution_id="x", webhook='{"url": "https://example.org", "on": ["failed"]}'
    )

    assert world.record(weid).webhook == {"url": "https://example.org", "headers": {}, "on": ["failed"]}


# ---- real processes


@pytest.fixture
def redis(redis_url: str) -> Iterator[RedisClient]:
    client = connect(redis_url)
    yield client
    client.close()


ADD = {
    "name": "sum",
    "steps": [{"id": "a", "fn": "add", "input": {"x": 1, "y": 2}}],
    "outputs": {"sum": {"var": "steps.a.output.sum"}, "password": "hunter2"},
}


def webhook_of(client: Client, execution_id: str) -> StepRecord | None:
    return client.record(execution_id).items.get(WEBHOOK_UNIT)


def is_settled(client: Client, execution_id: str) -> bool:
    found = webhook_of(client, execution_id)
    return found is not None and found.is_final


def everything(redis: RedisClient) -> str:
    """All that Redis holds, as text."""
    found: list[Any] = []
    for key in redis.scan_iter():
        match redis.type(key):
            case "hash":
                found.append(redis.hgetall(key))
            case "list":
                found.append(redis.lrange(key, 0, -1))
            case "stream":
                found.append(redis.xrange(key))
            case "zset":
                found.append(redis.zrange(key, 0, -1))
            case "string":
                found.append(redis.get(key))
            case _:
                found.append(sorted(redis.smembers(key)))
    return repr(found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ours", "stock"])
def test_a_real_worker_delivers_signed_and_again_until_somebody_listens(
    redis: RedisClient, redis_url: str, tmp_path: Path, kind: str
) -> None:
    client = PatientClient(redis_url)
    environment = {module.HOSTS_VARIABLE: "127.0.0.1", module.SECRET_VARIABLE: SECRET}
    with receiver(500, 500) as hooks, stack(redis_url, "step_functions", tmp_path, **environment) as world:
        world.coordinator()
        world.worker() if kind == "ours" else world.rq_worker()
        client.start({**ADD, "webhook": {"url": hooks.url}}, execution_id="x")
        client.wait("x", 180)
        wait_until(lambda: is_settled(client, "x"), what="the webhook to be settled")

        found = webhook_of(client, "x")
        assert found is not None, world.log()
        assert (found.status, found.attempt) == ("complete", 3), world.log()
        assert [got.delivery for got in hooks.posts] == 3 * ["x#webhook#0"]
        for got in hooks.posts:
            assert got.json["outcome"] == {"sum": 3, "password": "<redacted>"}
            signature = re.fullmatch(r"t=(\d+),v1=([0-9a-f]{64})", got.headers["orchestrator-signature"])
            assert signature is not None
            signed = f"{signature[1]}.".encode() + got.body
            assert hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest() == signature[2]
            assert abs(time.time() - int(signature[1])) < 60
        assert SECRET not in everything(redis)
        moves = [entry["to"] for entry in client.history("x") if entry.get("step") == WEBHOOK_UNIT]
        assert moves == ["in_progress", "retry", "in_progress", "retry", "in_progress", "complete"]
        assert client.record("x").status == "complete"
        assert "hunter2" not in json.dumps(client.history("x")) + world.log()


@pytest.mark.slow
def test_a_work_horse_that_is_killed_while_it_delivers_is_followed_by_another_with_the_same_word(
    redis: RedisClient, redis_url: str, tmp_path: Path
) -> None:
    client = PatientClient(redis_url)
    with (
        receiver() as hooks,
        stack(redis_url, "step_functions", tmp_path, **{module.HOSTS_VARIABLE: "127.0.0.1"}) as world,
    ):
        hooks.hold()
        world.coordinator()
        worker = world.worker()
        client.start({**ADD, "webhook": {"url": hooks.url}}, execution_id="x")
        wait_until(lambda: hooks.posts, what="the first delivery")

        assert world.kill_horse(worker)
        wait_until(lambda: len(hooks.posts) == 2, what="the second delivery")
        hooks.release()
        wait_until(lambda: is_settled(client, "x"), what="the webhook to be settled")

        assert [got.delivery for got in hooks.posts] == 2 * ["x#webhook#0"]
        assert hooks.posts[0].body == hooks.posts[1].body
        found = webhook_of(client, "x")
        assert found is not None
        assert (found.status, found.attempt, found.lost) == ("complete", 1, 1), world.log()
        wait_until(lambda: not redis.zcard(Keys().leases), what="no lease is left")


@pytest.mark.slow
def test_where_nobody_listens_the_attempts_are_in_the_history(
    redis: RedisClient, redis_url: str, tmp_path: Path
) -> None:
    client = PatientClient(redis_url)
    with receiver() as gone:
        url = gone.url
    with stack(redis_url, "step_functions", tmp_path, **{module.HOSTS_VARIABLE: "127.0.0.1"}) as world:
        world.coordinator()
        world.worker()
        client.start({**ADD, "webhook": {"url": url}}, execution_id="x")

        def errors() -> list[str]:
            return [one["error"]["message"] for one in client.history("x") if "error" in one]

        client.wait("x", 180)
        wait_until(lambda: len(errors()) >= 2, what="two attempts that failed")

        assert all(error.startswith("127.0.0.1 cannot be reached: ConnectError") for error in errors())
        assert client.record("x").status == "complete"


@pytest.mark.slow
def test_a_run_on_a_system_of_its_own_ends_when_its_webhook_is_delivered(tmp_path: Path) -> None:
    require_redis_server()
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ORCHESTRATOR_")}
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    command = [sys.executable, "-m", "orchestrator", "run", "sum.json", "--executors", "step_functions"]
    with receiver(500) as hooks:
        (tmp_path / "sum.json").write_text(json.dumps({**ADD, "webhook": {"url": hooks.url}}))

        run = subprocess.run(
            command,
            cwd=tmp_path,
            env={**ours, "PYTHONPATH": path, module.HOSTS_VARIABLE: "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=300,
        )

    assert run.returncode == 0, run.stderr
    assert len(hooks.posts) == 2
    assert re.search(r"^  #webhook  complete .* attempt 2$", run.stdout, re.M), run.stdout
    assert "#webhook: retry scheduled (attempt 2): NotDelivered: 127.0.0.1 answered 500" in run.stderr
    assert "hunter2" not in run.stdout + run.stderr
