"""Large values on Redis: what a worker loads and leaves, what a client sends and gives, what goes wrong."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.errors import PayloadMissing, StartRejected
from orchestrator.application.values.payload_refs import PAYLOAD_KEY, is_payload_reference
from orchestrator.client import Client
from orchestrator.invocation.executors import Executors
from orchestrator.redis_rq.payloads import RedisPayloads
from orchestrator.settings import Settings
from orchestrator.worker.harness import Harness
from processes import PatientClient, stack
from servers.redis_contents import calls
from servers.s3_server import CREDENTIALS, s3_server
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld, durable_world, running
from worlds.waiting import in_thread, wait_until

LIMITS = {"max_output_bytes": 2_000}
ROWS = [{"id": n, "name": f"row {n}"} for n in range(1_000)]
CHAIN = document(
    step("a"),
    step("b", input={"rows": {"var": "steps.a.output.rows"}, "count": {"var": "steps.a.output.count"}}),
    limits=LIMITS,
    outputs={"b": {"var": "steps.b.output"}, "rows": {"var": "steps.a.output.rows"}},
)


def rows(inputs: Json) -> Json:
    return {"rows": ROWS, "count": len(ROWS)}


def count(inputs: Json) -> Json:
    return {"counted": len(inputs["rows"]), "count": inputs["count"]}


EXECUTORS = {"a": rows, "b": count}


def client_of(world: RedisWorld) -> Client:
    return PatientClient(world.client, world.keys)


def payload_keys(world: RedisWorld) -> list[str]:
    return sorted(world.client.scan_iter(world.keys.payload("*")))


def first_done(world: RedisWorld, spec: Json = CHAIN, **start: Any) -> tuple[str, Json]:
    """An execution whose first step is over, and the job of the second."""
    weid = world.begin(one := world.coordinator(), spec, **start)
    world.work(EXECUTORS, most=1)
    one.run_once()
    [job] = world.payloads()
    return weid, job


def ran(world: RedisWorld) -> Any:
    """The second step, after its job was run."""
    world.settle(world.coordinator(), executors=EXECUTORS)
    [weid] = {key.partition(":workflow:")[2] for key in world.client.scan_iter(world.keys.workflow("*"))}
    return world.record(weid)


# ---- by the harness


def test_a_large_value_is_loaded_for_the_executor_and_nobody_else_carries_it(world: RedisWorld) -> None:
    weid, job = first_done(world)

    reference = job["inputs"]["rows"]
    assert is_payload_reference(reference)
    assert job["inputs"]["count"] == 1_000
    assert payload_keys(world) == [world.keys.payload(reference[PAYLOAD_KEY])]
    assert reference["bytes"] == len(json.dumps(ROWS, separators=(",", ":")))
    assert ran(world).outcome == {"b": {"counted": 1_000, "count": 1_000}, "rows": reference}
    assert client_of(world).result(weid) == {"b": {"counted": 1_000, "count": 1_000}, "rows": ROWS}
    assert client_of(world).outputs(weid)["a"] == {"rows": ROWS, "count": 1_000}
    assert client_of(world).wait(weid).outcome["rows"] == ROWS


def test_a_payload_expires_and_every_use_gives_it_a_full_term(world: RedisWorld) -> None:
    _, job = first_done(world)
    [key] = payload_keys(world)
    assert Settings().payload_ttl_s - 3_600 <= world.client.ttl(key) <= Settings().payload_ttl_s

    world.client.expire(key, 100)
    ran(world)
    assert world.client.ttl(key) > Settings().payload_ttl_s - 3_600

    world.client.expire(key, 100)
    RedisPayloads(world.client, world.keys).put(job["inputs"]["rows"][PAYLOAD_KEY], b"[]")
    assert world.client.ttl(key) > Settings().payload_ttl_s - 3_600


def test_the_term_is_a_setting(world: RedisWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_RETENTION_S", "1000")
    first_done(world)
    [key] = payload_keys(world)
    assert 86_400 <= world.client.ttl(key) <= 1_000 + 86_400

    monkeypatch.setenv("ORCHESTRATOR_PAYLOAD_TTL_S", "500")
    ran(world)
    assert 100 < world.client.ttl(key) <= 500


def test_a_payload_is_what_zlib_makes_of_its_json(world: RedisWorld) -> None:
    first_done(world)
    [key] = payload_keys(world)

    data: Any = world.client.execute_command(  # type: ignore[no-untyped-call]
        "GET", key, NEVER_DECODE=True
    )

    assert json.loads(zlib.decompress(data)) == ROWS


def test_two_executions_with_the_same_content_share_it(world: RedisWorld) -> None:
    one = world.coordinator()
    for execution_id in ("x1", "x2"):
        world.begin(one, CHAIN, execution_id=execution_id)
    world.settle(one, executors=EXECUTORS)

    assert len(payload_keys(world)) == 1
    client = client_of(world)
    client_result = client.result("x1")
    assert client_result == client.result("x2")


def test_who_is_deleted_leaves_its_payloads_to_their_term(world: RedisWorld) -> None:
    weid = world.begin(one := world.coordinator(), CHAIN)
    world.settle(one, executors=EXECUTORS)
    client = client_of(world)

    with running(one):
        client.delete(weid)

    assert len(payload_keys(world)) == 1


def test_a_result_that_comes_twice_has_the_same_reference(world: RedisWorld) -> None:
    world.begin(one := world.coordinator(), CHAIN)
    job = world.pop()
    assert job is not None
    harness = Harness(world.client, Executors(mapping=EXECUTORS), worker="host:1")

    assert harness.run(job)
    assert harness.run(job)

    outputs = [fields["output"] for _, fields in world.events() if fields["type"] == "result"]
    assert len(outputs) == 2
    assert outputs[0] == outputs[1]
    one.run_once()
    assert world.counter("stale") == 1
    assert len(payload_keys(world)) == 1


def test_a_payload_that_expired_fails_the_step_and_says_which(world: RedisWorld) -> None:
    _, job = first_done(world)
    world.client.delete(*payload_keys(world))

    error = ran(world).steps["b"].error

    assert error["kind"] == "payload_missing"
    payload_id = job["inputs"]["rows"][PAYLOAD_KEY]
    assert (
        f"inputs.rows is kept by reference (27,781 bytes), and its payload {payload_id}" in error["message"]
    )
    assert "ORCHESTRATOR_PAYLOAD_TTL_S" in error["message"]


def test_a_result_that_expired_is_an_error_of_the_client_and_not_of_the_record(world: RedisWorld) -> None:
    weid = world.begin(one := world.coordinator(), CHAIN)
    world.settle(one, executors=EXECUTORS)
    world.client.delete(*payload_keys(world))
    client = client_of(world)

    for ask in (client.result, client.outputs, client.wait):
        with pytest.raises(PayloadMissing, match="is kept by reference"):
            ask(weid)
    assert is_payload_reference(client.record(weid).outcome["rows"])


def test_a_forged_reference_fails_its_own_step_alone(world: RedisWorld) -> None:
    forged = {"$payload": "0" * 64, "bytes": 7}
    spec = document(
        step("a", on_error="continue", input={"x": {"var": "input.x"}}),
        step("b", input={"count": 1, "rows": []}),
    )
    world.begin(one := world.coordinator(), spec, inputs={"x": forged})
    world.settle(one, executors=EXECUTORS)

    record = ran(world)
    assert record.steps["a"].error["kind"] == "payload_missing"
    assert record.steps["b"].status == "complete"


def test_a_bad_setting_of_a_worker_fails_the_steps_that_need_it_and_no_others(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHESTRATOR_PAYLOADS", "ftp://nowhere")
    spec = document(step("a", on_error="continue"), step("b", input={"rows": [], "count": 0}), limits=LIMITS)
    world.begin(one := world.coordinator(), spec)
    world.settle(one, executors=EXECUTORS)

    record = ran(world)
    error = record.steps["a"].error
    assert error["kind"] == "exception"
    assert "its output cannot be stored: ORCHESTRATOR_PAYLOADS must be redis, file:///" in error["message"]
    assert record.steps["b"].status == "complete"


def test_inputs_that_cannot_be_loaded_here_fail_the_step(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_done(world)
    monkeypatch.setenv("ORCHESTRATOR_PAYLOADS", "ftp://nowhere")

    error = ran(world).steps["b"].error

    assert error["kind"] == "exception"
    assert "its inputs cannot be loaded: ORCHESTRATOR_PAYLOADS must be" in error["message"]


def test_too_much_at_once_fails_the_step(world: RedisWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [{"var": "steps.a.output.rows"}] * 5
    first_done(world, document(step("a"), step("b", input={"rows": many}), limits=LIMITS))
    monkeypatch.setenv("ORCHESTRATOR_PAYLOAD_MAX_BYTES", "30000")

    error = ran(world).steps["b"].error

    assert error["kind"] == "expression"
    assert "have more than 120,000 bytes in all" in error["message"]


def test_small_outputs_cost_no_command_more(world: RedisWorld) -> None:
    spec = document(step("a"), step("b", after="a"))
    world.begin(one := world.coordinator(), spec)
    world.client.config_resetstat()

    world.settle(one)

    made = calls(world.client)
    assert not {"getex", "set"} & set(made), made
    assert payload_keys(world) == []


def test_a_large_output_costs_one_command_and_so_does_a_large_input(world: RedisWorld) -> None:
    world.begin(one := world.coordinator(), CHAIN)
    world.client.config_resetstat()

    world.settle(one, executors=EXECUTORS)

    made = calls(world.client)
    assert made["getex"] == 1
    assert made["set"] == 1


# ---- by processes that die, and a Redis that is away


def test_a_redis_that_is_full_is_waited_for(world: RedisWorld, caplog: pytest.LogCaptureFixture) -> None:
    weid = world.begin(one := world.coordinator(), CHAIN)
    watcher = world.connect()

    def filling(inputs: Json) -> Json:
        watcher.config_set("maxmemory", "1")
        return rows(inputs)

    try:
        with in_thread(lambda: world.work({**EXECUTORS, "a": filling}, most=1)):
            wait_until(lambda: "the payload store is unavailable" in caplog.text)
            watcher.config_set("maxmemory", "0")
    finally:
        watcher.config_set("maxmemory", "0")
    one.run_once()

    assert is_payload_reference(world.record(weid).steps["a"].output["rows"])


def test_a_redis_that_dies_during_the_put_is_waited_for(tmp_path: Path) -> None:
    with durable_world(tmp_path) as (world, server):
        weid = world.begin(one := world.coordinator(), CHAIN)

        def dying(inputs: Json) -> Json:
            server.kill()
            return rows(inputs)

        with in_thread(lambda: world.work({**EXECUTORS, "a": dying}, most=1)):
            wait_until(lambda: not server.is_running)
            server.start()
        one.run_once()

        assert is_payload_reference(world.record(weid).steps["a"].output["rows"])
        world.settle(one, executors=EXECUTORS)
        assert client_of(world).result(weid)["rows"] == ROWS


def test_a_worker_that_dies_after_the_put_leaves_a_payload_that_expires(world: RedisWorld) -> None:
    weid = world.begin(one := world.coordinator(), CHAIN)

    class Dies(RedisPayloads):
        def put(self, payload_id: str, data: bytes) -> None:
            super().put(payload_id, data)
            raise KeyboardInterrupt

    job = world.pop()
    assert job is not None
    harness = Harness(
        world.client, Executors(mapping=EXECUTORS), payloads=Dies(world.client, world.keys), lease_s=0.1
    )
    with pytest.raises(KeyboardInterrupt):
        harness.run(job)

    [key] = payload_keys(world)
    assert world.client.ttl(key) > 0
    world.age_leases(60_000)
    world.settle(one, executors=EXECUTORS)
    record = world.record(weid)
    assert record.status == "complete"
    assert record.steps["a"].lost == 1
    assert payload_keys(world) == [key]


# ---- by a client


BIG = "x" * 3_000_000
LENGTH = {
    "name": "length",
    "inputs": {"text": {"type": "string"}, "n": {"type": "integer", "default": 7}},
    "steps": [{"id": "a", "fn": "length", "input": {"text": {"var": "input.text"}}}],
    "outputs": {"length": {"var": "steps.a.output.length"}, "n": {"var": "input.n"}},
}


def length(inputs: Json) -> Json:
    return {"length": len(inputs["text"])}


@pytest.mark.parametrize("by_name", [False, True])
def test_large_inputs_of_a_start_go_by_reference(world: RedisWorld, by_name: bool) -> None:
    client = client_of(world)
    client.register("length", LENGTH)
    one = world.coordinator()

    entry = client.send_start("length" if by_name else LENGTH, {"text": BIG}, "x1")
    [other] = client.start_many(["length" if by_name else LENGTH], [{"text": BIG}], ["x2"])
    world.settle(one, executors={"length": length})

    assert client.wait_for_reply(entry)["ok"]
    assert client.wait_for_reply(other)["ok"]
    assert is_payload_reference(client.record("x1").inputs["text"])
    assert client.result("x1") == client.result("x2") == {"length": 3_000_000, "n": 7}
    assert len(payload_keys(world)) == 1


@pytest.mark.parametrize("by_name", [False, True])
def test_the_type_of_a_large_input_is_checked_before_it_is_put_away(world: RedisWorld, by_name: bool) -> None:
    client = client_of(world)
    client.register("length", LENGTH)

    with pytest.raises(StartRejected, match=r"inputs.text: must be of type string, not a list"):
        client.send_start("length" if by_name else LENGTH, {"text": [BIG]})

    assert payload_keys(world) == []


def test_large_inputs_for_a_name_that_nobody_knows_are_refused_by_the_coordinator(world: RedisWorld) -> None:
    client, one = client_of(world), world.coordinator()

    entry = client.send_start("unheard of", {"text": BIG})
    world.settle(one)

    assert "unheard of" in client.wait_for_reply(entry)["reason"]


def test_inputs_that_are_too_large_altogether_are_refused_with_their_size(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(world)

    with pytest.raises(StartRejected, match=r"the object of inputs has 1,\d{3},\d{3} bytes; a start allows"):
        client.send_start(LENGTH, {str(n): "x" * 50 for n in range(30_000)})
    monkeypatch.setenv("ORCHESTRATOR_PAYLOAD_MAX_BYTES", "2000000")  # a client reads it when it is created
    with pytest.raises(StartRejected, match="'text' of the object of inputs has 3,000,002 bytes"):
        client_of(world).send_start(LENGTH, {"text": BIG})


def test_a_plain_start_is_limited_and_told_its_size_and_what_to_do(world: RedisWorld) -> None:
    one = world.coordinator()
    entry = world.start(LENGTH, {"text": BIG})

    one.run_once()

    reason = world.answer(entry)["reason"]
    assert "inputs have 3,000,012 characters; at most 1,048,576 are accepted" in reason
    assert "start it by a client, which passes large values by reference" in reason


def test_corrected_inputs_may_be_large(world: RedisWorld) -> None:
    client, one = client_of(world), world.coordinator()
    client.send_start(LENGTH, {"text": "short"}, "x1")
    world.settle(one, executors={"length": lambda inputs: 1 / 0})

    with running(one):
        client.retry("x1", inputs={"text": BIG})
    world.settle(one, executors={"length": length})

    assert client.result("x1") == {"length": 3_000_000, "n": 7}


def test_the_outcome_of_an_execution_that_was_there_before_is_whole(world: RedisWorld) -> None:
    client, one = client_of(world), world.coordinator()
    world.begin(one, CHAIN, execution_id="x1")
    world.settle(one, executors=EXECUTORS)

    with running(one):
        started = client.start(CHAIN, execution_id="x1", conflict_policy="use_existing")

    assert started.existing
    assert started.outcome["rows"] == ROWS


# ---- on real processes

BIG_CHAIN = {
    "steps": [
        {"id": "a", "fn": "many_rows"},
        {"id": "b", "fn": "sum_of_rows", "input": {"rows": {"var": "steps.a.output.rows"}}},
    ],
    "outputs": {
        "sum": {"var": "steps.b.output.sum"},
        "count": {"var": "steps.a.output.count"},
        "rows": {"var": "steps.a.output.rows"},
    },
}


def outcome_on(redis_url: str, tmp_path: Path, kind: str, **environment: str) -> Json:
    """What the chain comes to with real processes; the client reads the same environment."""
    client = PatientClient(redis_url)
    with stack(redis_url, "step_functions", tmp_path / "logs", **environment) as world:
        world.coordinator()
        if kind == "rq worker":
            world.rq_worker()
        else:
            world.worker(*(("--concurrency", "2") if kind == "crew" else ()))
        started = client.start(BIG_CHAIN, reply_timeout_s=180)
        found: Json = client.result(started.execution_id, 180)
        return found


@pytest.mark.parametrize("kind", ["rq worker", "worker", "crew"])
def test_five_megabytes_go_from_worker_to_worker(redis_url: str, tmp_path: Path, kind: str) -> None:
    found = outcome_on(redis_url, tmp_path, kind)

    assert (found["count"], found["sum"]) == (120_000, sum(range(120_000)))
    assert len(found["rows"]) == 120_000
    assert len(json.dumps(found["rows"])) > 5_000_000


def test_they_go_by_a_folder(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_PAYLOADS", f"file://{tmp_path}/large values".replace(" ", "%20"))

    found = outcome_on(redis_url, tmp_path, "worker")

    assert (found["count"], len(found["rows"])) == (120_000, 120_000)
    [file] = [path for path in (tmp_path / "large values").rglob("*") if path.is_file()]
    assert file.parent.name == file.name[:2]


def test_they_go_by_a_bucket(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server("large") as s3:
        for name, value in {
            **CREDENTIALS,
            "ORCHESTRATOR_PAYLOADS": "s3://large/of/team",
            "ORCHESTRATOR_S3_ENDPOINT": s3.url,
        }.items():
            monkeypatch.setenv(name, value)

        found = outcome_on(redis_url, tmp_path, "worker")

    assert (found["count"], len(found["rows"])) == (120_000, 120_000)
    [key] = s3.objects
    assert key.startswith("of/team/")
