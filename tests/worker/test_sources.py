"""Sources on Redis: executors get their configuration, and what a worker's environment holds stays there."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from orchestrator.invocation.source_config import ENV_ALLOWLIST_VARIABLE
from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import Keys
from processes import stack, wait_until
from servers.redis_contents import snapshot
from worker.test_harness import dispatched, harness, published
from worker.test_timeouts import start_worker
from worlds.documents import Json, document
from worlds.redis_world import RedisWorld

KEYS = Keys()
SECRET = 's3cret/tok"en'
WORKERS = ["rq worker", "orchestrator worker"]
FLOW = """
name: people
sources:
  secrets: {type: env, configuration: {vars: [API_TOKEN]}}
  api:
    type: call_api
    configuration:
      url: https://example.org
      headers: {accept: json, authorization: {cat: ["Bearer ", {var: sources.secrets.API_TOKEN}]}}
runner: {max_workers: 2, on_error: skip}
flow:
  - name: people
    source: api
    input: {kind: people}
    output:
      - {name: names, type: jmespath, value: "people[*].name"}
      - {name: answer, type: raw}
  - name: places
    source: {base: api, override: {url: https://example.net, headers: {accept: text}}}
    input: {kind: places}
    depends_on: [people]
  - name: refused
    source: {base: api, override: {url: null}}
  - name: first
    source: {type: pick}
    input: {list: {var: flows.people.names}, at: 0}
outputs:
  first: {var: flows.first.picked}
  urls: [{var: flows.people.answer.url}, {var: flows.places.url}]
  accept: {var: flows.places.accept}
  signed: {var: flows.places.signed}
"""
OUTCOME = {
    "first": "ada",
    "urls": ["https://example.org", "https://example.net"],
    "accept": "text",
    "signed": len("Bearer ") + len(SECRET),
}


@pytest.fixture
def redis(redis_url: str) -> Client:
    return connect(redis_url)


def record(redis: Client, execution_id: str = "run") -> Any:
    return redis.hgetall(KEYS.workflow(str(redis.get(KEYS.execution(execution_id)))))


@pytest.mark.slow
@pytest.mark.parametrize("worker", WORKERS)
def test_a_flow_runs_on_redis_and_the_secret_stays_with_the_worker(
    worker: str, redis: Client, redis_url: str, tmp_path: Path
) -> None:
    with stack(redis_url, "step_functions", tmp_path) as world:
        world.coordinator()
        world.environment |= {"API_TOKEN": SECRET, ENV_ALLOWLIST_VARIABLE: "API_TOKEN"}  # of the worker alone
        start_worker(world, worker)
        redis.xadd(KEYS.starts, {"spec": FLOW, "execution_id": "run"})
        wait_until(lambda: redis.zcard(KEYS.index("complete")) == 1, what=world.log())

        found = record(redis)
        assert json.loads(found["outcome"]) == OUTCOME
        refused = json.loads(found["step:refused"])
        assert refused["error"]["message"] == "no url for <redacted>"
        everything = json.dumps(snapshot(redis), default=str) + world.log()
        assert SECRET not in everything
        assert json.dumps(SECRET)[1:-1] not in everything
        assert "API_TOKEN" in everything, "its name is no secret"


@pytest.mark.slow
def test_the_work_horse_loads_expressions_only_for_a_configuration_that_has_some(
    redis: Client, redis_url: str, tmp_path: Path
) -> None:
    source = {"type": "loaded", "configuration": {"token": {"var": "sources.secrets.HOME"}}}
    spec = {
        "sources": {"secrets": {"type": "env", "configuration": {"vars": ["HOME"]}}},
        "steps": [
            {"id": "plain", "fn": "loaded"},
            {"id": "fixed", "source": {"type": "loaded", "configuration": {"a": [1]}}},
            {"id": "evaluated", "source": source},
        ],
    }
    with stack(redis_url, "step_functions", tmp_path) as world:
        world.coordinator()
        world.environment[ENV_ALLOWLIST_VARIABLE] = "HOME"
        world.is_warm = False
        world.rq_worker()  # it has loaded nothing of ours before it forks
        redis.xadd(KEYS.starts, {"spec": json.dumps(spec), "execution_id": "run"})
        wait_until(lambda: redis.zcard(KEYS.index("complete")) == 1, what=world.log())

        found = record(redis)
        modules = {
            step: set(json.loads(found[f"step:{step}"])["output"]["modules"])
            for step in ("plain", "fixed", "evaluated")
        }
        heavy = {"orchestrator.application.expressions.evaluation", "pydantic", "yaml"}
        assert "orchestrator.worker.harness" in modules["plain"]
        assert not heavy & (modules["plain"] | modules["fixed"])
        assert heavy & modules["evaluated"] == {"orchestrator.application.expressions.evaluation"}


# ---- errors


def configured(world: RedisWorld, **configuration: Any) -> Json:
    secrets = {"type": "env", "configuration": {"vars": ["API_TOKEN"]}}
    source = {"type": "a", "configuration": configuration}
    return dispatched(world, document({"id": "s", "source": source}, sources={"secrets": secrets}))


TOKEN = {"var": "sources.secrets.API_TOKEN"}


def test_a_job_carries_names_and_no_values(world: RedisWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", SECRET)

    payload = configured(world, token=TOKEN)

    assert payload["source"] == {
        "type": "a",
        "configuration": {"token": TOKEN},
        "sources": {"secrets": ["API_TOKEN"]},
    }


def test_whatever_an_executor_says_in_an_error_is_without_the_secret(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("API_TOKEN", SECRET)
    monkeypatch.setenv(ENV_ALLOWLIST_VARIABLE, "API_TOKEN")
    payload = configured(world, token=TOKEN)

    def executor(inputs: Json, configuration: Json, heartbeat: Any) -> None:
        heartbeat(note=f"asking with {configuration['token']}")
        raise LookupError("x" * 9_995 + configuration["token"], repr(configuration))

    assert harness(world, executor).run(payload) is True

    [fields] = published(world)
    assert json.loads(fields["error"])["type"] == "LookupError"
    for text in (fields["error"], caplog.text, str(snapshot(world.client))):
        assert "s3cret" not in text
    assert "asking with <redacted>" in caplog.text


def test_a_variable_that_the_worker_keeps_to_itself_is_a_failure_that_is_not_retried(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", SECRET)
    monkeypatch.setenv(ENV_ALLOWLIST_VARIABLE, "OTHER_*")
    payload = configured(world, token=TOKEN)

    harness(world, lambda inputs, configuration: {}).run(payload)

    error = json.loads(published(world)[0]["error"])
    assert (error["kind"], error["type"]) == ("refused", "VariableRefused")
    assert "'API_TOKEN'" in error["message"]
    assert ENV_ALLOWLIST_VARIABLE in error["message"]
    assert "s3cret" not in json.dumps(error)
