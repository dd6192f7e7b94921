"""The logs of real processes: every line can be read, a step can be followed, and no data is in them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from processes import ROOT, PatientClient, Stack, stack

Line = dict[str, Any]
TALK = {
    "name": "talk",
    "steps": [
        {"id": "first", "fn": "talkative", "input": {"word": {"var": "input.word"}}},
        {
            "id": "second",
            "fn": "talkative",
            "retry": 1,
            "input": {"fails": True, "word": {"var": "steps.first.output.answer"}},
        },
    ],
    "outputs": {"word": {"var": "input.word"}},
}
DIE = {
    "steps": [
        {
            "id": "dies",
            "fn": "charge",
            "input": {"ledger": {"var": "input.ledger"}, "order": "SECRET-ORDER", "dies": True},
        }
    ]
}
INPUTS = {"word": "SECRET-INPUT"}
DEBUG = ("--log-level", "debug")


def lines_of(world: Stack) -> list[Line]:
    """Every line of every process, in the order of their times."""
    lines: list[Line] = [json.loads(line) for line in world.log().splitlines()]
    assert all(isinstance(line, dict) for line in lines)
    return sorted(lines, key=lambda line: str(line["time"]))


def test_a_step_can_be_followed_through_the_log_of_coordinator_and_worker(
    redis_url: str, tmp_path: Path
) -> None:
    client = PatientClient(redis_url)
    with stack(redis_url, "step_functions", tmp_path, ORCHESTRATOR_LOG_FORMAT="json") as world:
        world.coordinator(*DEBUG)
        world.worker(*DEBUG)
        started = client.start(TALK, INPUTS, reply_timeout_s=180)
        client.wait(started.execution_id, 180)
        died = client.start(DIE, {"ledger": str(tmp_path / "ledger")})
        client.wait(died.execution_id, 180)
        refused = client.send_start("unknown", {"word": "SECRET-INPUT"}, "asked-for-1")
        client.wait_for_reply(refused)
        typed = {"inputs": {"pin": {"type": "string"}}, "steps": [{"op": "nothing"}]}
        wrong = {"spec": json.dumps(typed), "inputs": '{"pin": 31415926}'}
        client.wait_for_reply(str(connect(redis_url).xadd(Keys().starts, wrong)))  # type: ignore[arg-type]
        world.end()
        lines, text = lines_of(world), world.log()

    assert "SECRET" not in text
    assert "31415926" not in text
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert {"level", "logger", "message", "process"} <= set(line)
    assert len({line["process"] for line in lines}) == 2, "one coordinator, and a worker with its horses"

    run = {"execution": started.workflow_execution_id, "step": "first", "run_id": 0, "attempt": 1}
    of_run = [line for line in lines if line.items() >= run.items()]
    moves = [line for line in of_run if line["logger"] == "orchestrator.coordinator.pending_commit"]
    assert [line["message"] for line in moves] == ["ready -> in_progress", "in_progress -> complete"]
    of_worker = [line for line in of_run if line not in moves]
    assert [(line["logger"], line["level"], line["message"]) for line in of_worker] == [
        ("orchestrator.worker.harness", "INFO", "started"),
        ("shop", "INFO", "here\nI am"),
        ("shop", "WARNING", "from a thread"),
        ("shop", "ERROR", "it broke"),
        ("orchestrator.worker.harness", "INFO", "ended"),
    ]
    _, said, _, broke, ended = of_worker
    assert said["colour"] == "red"
    assert broke["exception"].endswith("LookupError: no such order")
    assert (ended["fn"], ended["outcome"], 0 <= ended["duration_s"] < 60) == ("talkative", "complete", True)

    outcomes = [
        (line["run_id"], line["attempt"], line["outcome"])
        for line in lines
        if line.get("step") == "second" and "outcome" in line
    ]
    assert outcomes == [(0, 1, "exception"), (1, 2, "exception")]
    last = [line for line in lines if line.get("execution") == run["execution"] and "status" in line][-1]
    assert last["status"] == "failed"

    [lost] = [line for line in lines if line["message"].startswith("its work-horse died")]
    assert (lost["execution"], lost["step"]) == (died.workflow_execution_id, "dies")
    [refusal, invalid] = [line for line in lines if line["message"].startswith("rejected")]
    assert (refusal["event"], refusal["execution"]) == (refused, "asked-for-1")
    assert refusal["message"] == "rejected from orchestrator:starts: no workflow is registered as 'unknown'"
    assert invalid["message"] == "rejected from orchestrator:starts: inputs.pin [bad_type]"


def test_text_has_the_same_fields_behind_its_messages(redis_url: str, tmp_path: Path) -> None:
    client = PatientClient(redis_url)
    with stack(redis_url, "step_functions", tmp_path) as world:
        world.coordinator("--log-level", "info")
        world.worker()
        started = client.start(TALK, INPUTS, reply_timeout_s=180)
        client.wait(started.execution_id, 180)
        world.end()
        text = world.log()

    run = f"execution={started.workflow_execution_id} step=first run_id=0 attempt=1"
    moved = rf"execution={started.workflow_execution_id} event=\d+-\d+"
    when = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} "
    for line in (
        f"INFO orchestrator.worker.harness: started {run} fn=talkative",
        rf"INFO orchestrator.worker.harness: ended {run} fn=talkative outcome=complete duration_s=[\d.]+",
        rf"INFO shop: here \| I am {run} colour=red",
        rf"ERROR shop: it broke {run}\nTraceback .*\n(?: .*\n)+LookupError: no such order",
        rf"INFO orchestrator.coordinator.pending_commit: 1 events, 1 steps changed, 1 jobs {moved} "
        rf"status=in_progress",
    ):
        assert re.search(f"{when}{line}$", text, re.MULTILINE), line
    assert "SECRET" not in text
    assert "rq.worker" not in text, "RQ says nothing of its own below a warning"


def test_a_stock_worker_logs_as_rq_does(redis_url: str, tmp_path: Path) -> None:
    client = PatientClient(redis_url)
    environment = {"ORCHESTRATOR_LOG_FORMAT": "json", "PYTHONUNBUFFERED": "1"}
    with stack(redis_url, "step_functions", tmp_path, **environment) as world:
        world.coordinator("--log-format", "text")
        world.rq_worker()
        started = client.start(TALK, INPUTS, reply_timeout_s=180)
        client.wait(started.execution_id, 180)
        world.end()
        text = (tmp_path / "001.log").read_text()  # that of the worker

    assert "from a thread\n" in text, "a warning without any handler, as Python writes it"
    assert '{"time"' not in text
    assert "execution=" not in text
    assert f"{started.workflow_execution_id}|first|0|1|" in text, "the description that RQ prints"
    assert "SECRET" not in text


def test_a_run_that_logs_json_writes_nothing_else_to_the_standard_error(tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps(TALK))
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ORCHESTRATOR_")}
    command = ("run", "talk.json", "--executors", "step_functions", "--inputs", json.dumps(INPUTS), "--json")
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *command, "--log-level", "info", "--log-format", "json"],
        cwd=tmp_path,
        env=ours | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert json.loads(done.stdout)["status"] == "failed"
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["logger"] for line in lines} >= {"orchestrator.run", "orchestrator.worker.harness", "shop"}
    assert [line["message"] for line in lines if line["logger"] == "orchestrator.run" and "step" in line] == [
        "first: dispatched",
        "first: complete",
        "second: dispatched",
        "second: retry scheduled",
        "second: dispatched",
        "second: failed",
    ]
    assert "SECRET" not in done.stderr


def test_a_format_that_is_none_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "coordinator"],
        cwd=ROOT,
        env=os.environ | {"ORCHESTRATOR_LOG_FORMAT": "xml"},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 2
    assert "'xml' is not one of 'text', 'json'" in done.stderr
