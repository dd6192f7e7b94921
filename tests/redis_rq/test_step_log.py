"""The step log on Redis: readable while a step runs and after a kill, deleted with its execution."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.commands.test_views import command, lines_until, orchestrator
from orchestrator.application.explain.history_text import describe_entry
from orchestrator.application.records.step_log import LINES_OMITTED, MAX_LINES_PER_RUN, LogLine
from orchestrator.client import Client
from orchestrator.invocation.exceptions import NON_RETRYABLE_VARIABLE
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.step_log import read_log_lines
from orchestrator.redis_rq.verify.verifier import Verifier
from orchestrator.worker import step_log as writing
from processes import PatientClient, Stack, stack
from processes import wait_until as wait_for
from servers.proxy import Proxy
from servers.redis_contents import calls
from worker.test_harness import dispatched, harness, published
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld, durable_world
from worlds.waiting import in_thread, wait_until

ONE = document(step("a"))
NEVER_S = 1_000.0


def said(world: RedisWorld, execution_id: str) -> list[str]:
    return [line.text for line in world.store.log_lines(execution_id)]


def run(world: RedisWorld, payload: Json, executor: Any, **options: Any) -> bool:
    return harness(world, executor, **options).run(payload)


# ---- writing


def test_log_lines_are_sent_with_the_result(world: RedisWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "FLUSH_EVERY_S", NEVER_S)
    payload = dispatched(world)

    def executor(inputs: Json, log: Any, heartbeat: Any) -> Json:
        log("one")
        heartbeat(0.5, "two")
        heartbeat(0.7)
        log("three\nfour")
        assert said(world, payload["execution"]) == []
        return {}

    assert run(world, payload, executor) is True

    assert said(world, payload["execution"]) == ["one", "0.5: two", "three", "four"]
    [line] = world.store.log_lines(payload["execution"])[:1]
    assert line == LogLine("a", 0, 1, line.at, "one")
    assert len(published(world)) == 1


def test_the_time_of_a_log_line_is_that_of_redis(world: RedisWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "FLUSH_EVERY_S", NEVER_S)
    payload = dispatched(world)
    pause = threading.Event()

    def executor(inputs: Json, log: Any) -> None:
        log("early")
        pause.wait(0.2)
        log("late")

    run(world, payload, executor)

    history = world.history(payload["execution"])
    early, late = world.store.log_lines(payload["execution"])
    [(entry_id, _)] = world.events()
    assert history[0]["at"] <= early.at < late.at
    result_ms = int(entry_id.partition("-")[0])
    [first, last] = read_log_lines(world.client, world.keys, payload["execution"])
    assert int(first[0].partition("-")[0]) <= int(last[0].partition("-")[0]) <= result_ms


def test_log_lines_can_be_read_while_the_step_runs(world: RedisWorld) -> None:
    payload = dispatched(world)

    def executor(inputs: Json, log: Any) -> None:
        log("one")
        wait_until(lambda: said(world, payload["execution"]) == ["one"])
        log("two")
        wait_until(lambda: said(world, payload["execution"]) == ["one", "two"])

    run(world, payload, executor)

    assert said(world, payload["execution"]) == ["one", "two"]


def test_many_log_lines_are_written_at_once(world: RedisWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "FLUSH_EVERY_S", NEVER_S)
    payload = dispatched(world)

    def executor(inputs: Json, log: Any) -> None:
        for n in range(writing.FLUSH_AT_LINES):
            log(n)
        wait_until(lambda: said(world, payload["execution"]))

    run(world, payload, executor)

    assert said(world, payload["execution"]) == [str(n) for n in range(writing.FLUSH_AT_LINES)]


def test_the_log_lines_of_a_run_are_limited(world: RedisWorld) -> None:
    payload = dispatched(world)

    def executor(inputs: Json, log: Any) -> None:
        for n in range(3 * MAX_LINES_PER_RUN):
            log(n)

    run(world, payload, executor)

    assert said(world, payload["execution"]) == [*map(str, range(MAX_LINES_PER_RUN)), LINES_OMITTED]


def test_log_lines_cost_no_extra_round_trip(world: RedisWorld) -> None:
    def costs(executor: Any) -> dict[str, int]:
        payload = dispatched(world)
        world.client.config_resetstat()
        run(world, payload, executor)
        return calls(world.client)

    silent, speaking = costs(lambda inputs: {}), costs(lambda inputs, log: log("hello"))

    assert "eval" not in silent
    extra = {name: count - silent.get(name, 0) for name, count in speaking.items()}
    assert {name: count for name, count in extra.items() if count} == {"eval": 1, "pttl": 1, "xadd": 1}


def test_a_line_logged_after_the_executor_has_returned_is_dropped(world: RedisWorld) -> None:
    payload = dispatched(world)
    kept: list[Any] = []

    def executor(inputs: Json, log: Any) -> None:
        kept.append(log)
        log("in time")

    run(world, payload, executor)
    kept[0]("too late")

    assert said(world, payload["execution"]) == ["in time"]


def test_the_log_lines_of_a_superseded_run_are_kept(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "FLUSH_EVERY_S", NEVER_S)
    monkeypatch.setattr("orchestrator.worker.lease.FIRST_RENEWAL_S", 0.01)
    payload = dispatched(world)

    def executor(inputs: Json, log: Any, cancelled: Any) -> None:
        log("hello")
        world.client.delete(world.keys.leases)
        wait_until(cancelled)

    assert run(world, payload, executor) is False

    assert said(world, payload["execution"]) == ["hello"]
    assert published(world) == []


def test_a_secret_in_a_log_line_is_redacted(world: RedisWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "hunter2")
    monkeypatch.setenv("ORCHESTRATOR_ENV_VARIABLES", "SHOP_TOKEN")
    sources = {
        "secrets": {"type": "env", "configuration": {"vars": ["SHOP_TOKEN"]}},
        "shop": {"type": "a", "configuration": {"token": {"var": "sources.secrets.SHOP_TOKEN"}}},
    }
    payload = dispatched(world, {"sources": sources, "steps": [{"id": "a", "source": "shop"}]})

    def executor(inputs: Json, configuration: Json, log: Any, heartbeat: Any) -> None:
        log(f"the token is {configuration['token']}")
        heartbeat(note=f"still {configuration['token']}")

    run(world, payload, executor)

    [logged, noted] = said(world, payload["execution"])
    assert (logged[:13], noted[:6]) == ("the token is ", "still ")
    assert "hunter2" not in logged + noted


# ---- failures


def test_log_lines_that_cannot_be_stored_fail_no_step(
    world: RedisWorld, caplog: pytest.LogCaptureFixture
) -> None:
    for at_end in (True, False):
        payload = dispatched(world)
        world.client.set(world.keys.step_log(payload["execution"]), "not a stream")

        def executor(inputs: Json, log: Any, at_end: bool = at_end) -> None:
            caplog.clear()
            log("hello")
            if not at_end:
                wait_until(lambda: "cannot be stored" in caplog.text)

        assert run(world, payload, executor) is True
        assert "log lines of step a cannot be stored: " in caplog.text

    assert len(published(world)) == 2


def test_log_lines_wait_while_redis_is_unavailable(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with durable_world(tmp_path) as (world, server):
        payload = dispatched(world)
        go = threading.Event()

        def executor(inputs: Json, log: Any) -> None:
            log("before")
            wait_until(lambda: said(world, payload["execution"]))
            server.kill()
            log("meanwhile")
            assert go.wait(180)

        with in_thread(lambda: run(world, payload, executor, client=world.connect())):
            wait_until(lambda: "meanwhile" in caplog.messages)
            go.set()
            wait_until(lambda: "cannot publish" in caplog.text)
            server.start()

        assert said(world, payload["execution"]) == ["before", "meanwhile"]
        assert len(published(world)) == 1


def test_a_result_whose_reply_was_lost_is_sent_again_with_its_log_lines(
    world: RedisWorld, proxy: Proxy, proxied: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that is stored twice is better than a lost one."""
    monkeypatch.setattr(writing, "FLUSH_EVERY_S", NEVER_S)
    payload = dispatched(world)

    def executor(inputs: Json, log: Any) -> None:
        log("hello")
        proxy.drop_reply_of("EVAL")

    run(world, payload, executor, client=proxied)

    assert set(said(world, payload["execution"])) == {"hello"}
    world.coordinator().run_once()
    assert world.status(payload["execution"]) == "complete"


# ---- retention


def speak(inputs: Json, log: Any) -> Json:
    log("hello")
    return {}


def test_lines_logged_after_the_end_are_kept_until_the_execution_is_dropped(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x")
    world.settle(one)
    late = LogLine("a", 0, 1, "2026-01-01T00:00:00.000Z", "late")

    world.store.add_log_lines(weid, [late])
    assert said(world, weid) == ["late"]
    world.client.delete(world.keys.workflow(weid), world.keys.step_log(weid))
    world.store.add_log_lines(weid, [late])

    assert not world.client.exists(world.keys.step_log(weid))


def test_log_lines_expire_with_their_execution(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE)
    world.settle(one, executors={"a": speak})
    assert world.client.exists(world.keys.step_log(weid))

    for member in world.client.zrange(world.keys.ended, 0, -1):
        world.client.zadd(world.keys.ended, {str(member): 1})
    one.run_once()

    assert not world.client.exists(world.keys.workflow(weid), world.keys.step_log(weid))


def test_verify_finds_log_lines_that_expire_before_their_execution_has_ended(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a"), step("b", after="a")))
    inspector = Verifier(world.client, world.keys, world.retention_s)
    assert world.work({"a": speak})
    one.run_once()
    assert inspector.verify_all().found == []

    world.client.expire(world.keys.step_log(weid), 60)

    [found] = inspector.verify_all().found
    assert (found.finding.code, found.finding.where) == ("term", world.keys.step_log(weid))


def test_malformed_entries_among_the_log_lines_are_ignored(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE)
    line = {"step": "a", "run_id": "0", "attempt": "1", "at": "2026-01-01T00:00:00.000Z", "text": "hello"}

    world.client.xadd(world.keys.step_log(weid), {"other": "fields"})
    for field, value in {"run_id": "x", "at": "yesterday"}.items():
        world.client.xadd(world.keys.step_log(weid), {**line, field: value})  # type: ignore[dict-item]
    world.client.xadd(world.keys.step_log(weid), line)  # type: ignore[arg-type]

    assert said(world, weid) == ["hello"]


def test_the_client_reads_the_log_lines_of_an_execution_or_of_a_step(world: RedisWorld) -> None:
    one = world.coordinator()
    spec = document(step("a", map={"over": [1, 2]}), step("b", after="a"))
    world.begin(one, spec, execution_id="x")
    world.settle(one, executors={"a": speak, "b": speak})
    client = Client(world.client)

    assert sorted(line.step for line in client.step_log("x")) == ["a#0", "a#1", "b"]
    assert sorted(line.step for line in client.step_log("x", "a")) == ["a#0", "a#1"]
    assert [line.text for line in client.step_log("x", "a#1")] == ["hello"]


# ---- output


EVIL = "\x1b[2Jall is well\r\x9b31m\u202e"
HARMLESS = "\\x1b[2Jall is well \\x9b31m\\u202e"


def evil(inputs: Json, log: Any) -> Json:
    log(EVIL.replace("\r", "\t"))
    raise ValueError("no")


def test_show_and_history_show_log_lines_with_control_characters_escaped(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ONE, execution_id="x")
    world.settle(one, executors={"a": evil})

    shown = orchestrator(world, "show", "x")
    step_shown = orchestrator(world, "show", "x", "--step", "a")
    told = orchestrator(world, "history", "x")

    for output in (shown.output, step_shown.output, told.output):
        assert HARMLESS in output
        assert "\x1b" not in output
    assert "log of a:\n" in shown.output
    assert "\nlog:\n" in step_shown.output
    assert told.output.index("dispatched") < told.output.index("log: ") < told.output.index(" failed: ")


def test_history_can_leave_them_out_and_json_has_them(world: RedisWorld) -> None:
    one = world.coordinator()
    name = world.begin(one, ONE, execution_id="x")
    world.settle(one, executors={"a": evil})

    whole = json.loads(orchestrator(world, "history", "x", "--json").output)
    bare = json.loads(orchestrator(world, "history", "x", "--json", "--no-lines").output)
    shown = json.loads(orchestrator(world, "show", "x", "--json").output)
    of_step = json.loads(orchestrator(world, "show", "x", "--step", "a", "--json").output)

    assert bare == world.history(name)
    [line] = [entry for entry in whole if "line" in entry]
    assert line == {**line, "step": "a", "run_id": 0, "attempt": 1, "line": EVIL.replace("\r", "\t")}
    assert [entry for entry in whole if "line" not in entry] == bare
    assert shown["lines"] == of_step["lines"] == [line]


def test_watch_and_a_followed_history_show_log_lines_as_they_come(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x")
    line = LogLine("a", 0, 1, "2026-01-01T00:00:00.000Z", "so far so good")

    for arguments in (["watch", "x"], ["history", "x", "--follow"]):
        with command(world, *arguments) as process:
            lines_until(process, "is in progress")
            line = replace(line, text=f"{line.text}, {arguments[0]}")
            world.store.add_log_lines(weid, [line])
            assert lines_until(process, f"log: {line.text}")
            process.kill()
            process.communicate()


# ---- under real workers, which are killed


WORKERS: dict[str, Callable[[Stack], Any]] = {
    "rq worker": lambda processes: processes.rq_worker(),
    "orchestrator worker": lambda processes: processes.worker(),
    "several at once": lambda processes: processes.worker("default", "--concurrency", "4"),
}


@pytest.mark.slow
@pytest.mark.parametrize("worker", WORKERS)
def test_log_lines_from_before_a_kill_are_kept(worker: str, redis_url: str, tmp_path: Path) -> None:
    redis = connect(redis_url)
    client, pid_file, go = PatientClient(redis), tmp_path / "pid", tmp_path / "go"
    given = {"pid_file": str(pid_file), "go": str(go), "mood": "good"}
    with stack(redis_url, "step_functions", tmp_path / "logs") as processes:
        processes.coordinator()
        WORKERS[worker](processes)
        client.start({"steps": [{"op": "speaks", "input": given}]}, execution_id="x")
        wait_for(lambda: len(client.step_log("x")) == 2 and pid_file.exists(), what=processes.log())
        assert client.status("x") == "in_progress"

        processes.kill_pid(int(pid_file.read_text()))
        wait_for(lambda: len(client.step_log("x")) == 4, what="another run of it")
        go.touch()
        client.wait("x", 180)

    texts = ["begins, in good mood", "0.5: half of it"]
    runs = {(line.run_id, line.attempt) for line in client.step_log("x")}
    assert [line.text for line in client.step_log("x")] == [*texts, *texts, "ends"]
    assert len(runs) == 2
    redis.close()


@pytest.mark.slow
@pytest.mark.parametrize("worker", WORKERS)
def test_log_lines_from_before_a_timeout_are_kept(worker: str, redis_url: str, tmp_path: Path) -> None:
    redis = connect(redis_url)
    client = PatientClient(redis)
    given = {"pid_file": str(tmp_path / "pid"), "go": str(tmp_path / "go"), "mood": "bad"}
    with stack(redis_url, "step_functions", tmp_path / "logs") as processes:
        processes.coordinator()
        WORKERS[worker](processes)
        client.start({"steps": [{"op": "speaks", "timeout": "2s", "input": given}]}, execution_id="x")
        client.wait("x", 180)
        (tmp_path / "go").touch()

        assert (client.record("x").error or {})["kind"] == "timeout"
        assert [line.text for line in client.step_log("x")][:2] == ["begins, in bad mood", "0.5: half of it"]
    redis.close()


@pytest.mark.slow
@pytest.mark.parametrize("worker", WORKERS)
def test_a_type_that_the_worker_lists_is_not_retried(worker: str, redis_url: str, tmp_path: Path) -> None:
    redis = connect(redis_url)
    client = PatientClient(redis)
    with stack(
        redis_url, "step_functions", tmp_path / "logs", **{NON_RETRYABLE_VARIABLE: "KeyError, ValueError"}
    ) as processes:
        processes.coordinator()
        WORKERS[worker](processes)
        client.start({"steps": [{"op": "fail", "retry": 5}]}, execution_id="x")
        client.wait("x", 180)

    found = client.record("x").steps["fail"]
    assert found.attempt == 1
    assert (found.error or {})["not_retried"] == f"{NON_RETRYABLE_VARIABLE} of its worker names ValueError"
    redis.close()


def test_the_document_decides_by_the_types_that_the_worker_reports(world: RedisWorld) -> None:
    one = world.coordinator()

    def executor(inputs: Json) -> None:
        raise json.JSONDecodeError("no JSON", "", 0)

    names = ("ValueError", "json.decoder.JSONDecodeError", "JSONDecodeError")
    ids = [
        world.begin(
            one, document(step("a", max_attempts=3, retry={"max_retries": 2, "non_retryable": [name]}))
        )
        for name in names
    ]
    world.settle(one, executors={"a": executor})

    for weid, name in zip(ids, names, strict=True):
        assert world.record(weid).steps["a"].attempt == 1
        assert (world.record(weid).error or {})["not_retried"] == f"retry.non_retryable names {name}"
        [entry] = [one for one in world.history(weid) if one.get("to") == "failed"]
        assert entry["error"]["not_retried"] == f"retry.non_retryable names {name}"
        assert describe_entry(entry).endswith(f"; not retried: retry.non_retryable names {name}")
