"""Executions on a real Redis as an operator sees them: show, history, watch, graph and completion."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from mermaid_checker import read_mermaid
from orchestrator.application.errors import RecordNotFound
from orchestrator.application.spec.validation import check_spec
from orchestrator.cli import main
from orchestrator.cli.follow import POLL_INTERVAL_S
from orchestrator.cli.options import Target
from orchestrator.client import Client
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.job_taker import JobTaker, WorkerQueues
from orchestrator.redis_rq.queries.record_queries import RecordQueries
from orchestrator_executors.webhook import webhook
from processes import start_module
from servers.redis_contents import calls
from worlds.redis_world import RedisWorld, durable_world, result_fields
from worlds.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[3]
ORDER = {
    "name": "order",
    "steps": [
        {"id": "check", "fn": "check", "input": {"sku": {"var": "input.sku"}}},
        {"id": "ship", "fn": "ship", "depends_on": ["check"], "max_attempts": 2, "on_error": "fail"},
    ],
    "outputs": {"sku": {"var": "steps.check.output.sku"}},
}


def fail(inputs: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("no such address\nanywhere")


FAILING = {"ship": fail}


def orchestrator(world: RedisWorld, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--redis-url", url_of(world), *arguments], prog_name="orchestrator")


def url_of(world: RedisWorld) -> str:
    return f"unix://{world.client.connection_pool.connection_kwargs['path']}"


def queries(world: RedisWorld) -> RecordQueries:
    return RecordQueries(world.client, world.keys)


@contextmanager
def command(
    world: RedisWorld, *arguments: str, output: int = subprocess.PIPE, errors: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """Run a command as a process, and kill it at the end of the block."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ORCHESTRATOR_")}
    process = start_module(
        ["orchestrator", "--redis-url", url_of(world), *arguments],
        ours | {"TERM": "xterm", "COLUMNS": "90", "LINES": "24"},
        ROOT,
        output,
        errors,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def lines_until(process: subprocess.Popen[str], last: str) -> list[str]:
    """Read the output of a command up to a line that contains a text."""
    assert process.stdout is not None
    found: list[str] = []
    for line in process.stdout:
        found.append(line.rstrip("\n"))
        if last in line:
            return found
    raise AssertionError(f"it ended without {last!r}: {found}")


# ---- show


def test_show_prints_a_running_and_a_failed_execution(world: RedisWorld) -> None:
    one = world.coordinator()
    name = world.begin(one, ORDER, inputs={"sku": "a1"}, execution_id="order-1", group="march")

    running = orchestrator(world, "show", "order-1")
    world.settle(one, executors=FAILING)
    failed = orchestrator(world, "show", name)

    assert running.exit_code == 0
    title, *others = running.output.splitlines()
    assert re.fullmatch(r"order order-1: in progress for .+", title)
    assert others[0] == f"  id       {name}"
    assert others[2] == "  group    march"
    assert [line.split()[:3] for line in others[3:]] == [
        ["STEP", "STATUS", "ATTEMPT"],
        ["check", "queued", "1"],
        ["ship", "ready"],
    ]
    assert failed.exit_code == 4
    assert re.search(r"^order order-1: failed in ", failed.output)
    assert re.search(r"^ship +failed +2 +1 .* tester +ValueError: no such address$", failed.output, re.M)
    assert failed.output.splitlines()[-1] == "error: ValueError: no such address"


def test_show_and_explain_have_a_line_for_a_rejected_webhook(world: RedisWorld) -> None:
    one = world.coordinator()
    posted = {**ORDER, "webhook": {"url": "https://hooks.example.org/"}}
    world.begin(one, posted, inputs={"sku": "a1"}, execution_id="order-1")
    world.settle(one, executors={"webhook": webhook})

    whole = orchestrator(world, "show", "order-1").output
    details = orchestrator(world, "show", "order-1", "--step", "#webhook").output
    why, of_it = (orchestrator(world, "explain", "order-1", *unit).output for unit in ([], ["#webhook"]))

    assert re.search(r"^#webhook +failed +1 +0 .* this worker may not post to any host", whole, re.M)
    assert details.startswith("step #webhook of order-1: failed\n")
    assert "  kind  refused\n" in details
    for text in (why, of_it):
        assert re.search(
            r"^  the webhook failed .* ago: this worker may not post to any host.* \[failed\]$", text, re.M
        )
    assert "order-1: complete\n" in why


def take_job(world: RedisWorld) -> dict[str, Any]:
    """Take the next job as `orchestrator worker` does, without running it."""
    [payload] = world.payloads()
    queues = WorkerQueues("tester", [world.keys.queue("default")], world.keys)
    with connect(url_of(world), decodes=False) as bare:
        assert JobTaker(bare, queues, lambda: world.now_ms() + 30_000).take(1)
    return payload


def statuses_of(world: RedisWorld, execution_id: str) -> list[str]:
    """The status of the step `check`, as every command shows it."""
    shown = orchestrator(world, "show", execution_id).output
    step = orchestrator(world, "show", execution_id, "--step", "check").output
    graph = orchestrator(world, "graph", execution_id).output
    found = [
        re.search(pattern, text, re.M)
        for pattern, text in [
            (r"^check +(queued|in progress|complete) ", shown),
            (r"^step check of \S+: (.*)$", step),
            (r"^ +1 +check +(queued|in progress|complete)$", graph),
        ]
    ]
    as_json = json.loads(orchestrator(world, "show", execution_id, "--json").stdout)["steps"]["check"]
    node = json.loads(orchestrator(world, "graph", execution_id, "--json").stdout)["nodes"][0]
    texts = [match[1].replace(" ", "_") if match else "" for match in found]
    return [*texts, as_json["status"], node["status"]]


def test_a_step_is_queued_until_a_worker_takes_it_in_every_command(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ORDER, inputs={"sku": "a1"}, execution_id="order-1")
    before = statuses_of(world, "order-1")
    waiting = orchestrator(world, "explain", "order-1", "ship").output
    payload = take_job(world)

    taken = statuses_of(world, "order-1")
    took = orchestrator(world, "show", "order-1", "--step", "check").output
    world.send(world.keys.events_of(weid), result_fields(payload, {"sku": "a1"}))
    one.run_once()
    after = statuses_of(world, "order-1")

    assert before == ["queued"] * 5
    assert "step ship waits for check (queued) [parents]" in waiting
    assert taken == ["in_progress"] * 5
    assert "took" not in took
    assert after == ["complete"] * 5
    assert world.status(weid) == "in_progress", "the record does not store it"


def test_a_job_that_left_its_queue_and_was_not_started_is_still_queued(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ORDER, inputs={"sku": "a1"}, execution_id="order-1")
    world.pop()
    one.run_once()

    assert statuses_of(world, "order-1") == ["queued"] * 5


def test_the_leases_of_an_execution_cost_one_command_and_none_after_its_end(world: RedisWorld) -> None:
    one = world.coordinator()
    many = {"steps": [{"id": f"s{n}", "fn": "f"} for n in range(30)]}
    world.begin(one, many, execution_id="many")
    world.begin(one, {"steps": [{"id": "w", "wait": {"signal": "go"}}]}, execution_id="waits")

    def lease_reads(execution_id: str) -> int:
        world.client.config_resetstat()
        orchestrator(world, "show", execution_id)
        return sum(count for name, count in calls(world.client).items() if name in ("zmscore", "zscore"))

    queued, waiting = lease_reads("many"), lease_reads("waits")
    world.settle(one)

    assert (queued, waiting, lease_reads("many")) == (1, 0, 0)


def test_show_of_a_step_has_the_inputs_of_its_job_while_the_job_exists(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ORDER, inputs={"sku": "a1"}, execution_id="order-1")

    out = orchestrator(world, "show", "order-1", "--step", "check")
    world.settle(one)
    done = orchestrator(world, "show", "order-1", "--step", "check")

    assert 'input:\n  {\n    "sku": "a1"\n  }\n' in out.output
    assert 'input, as written:\n  {\n    "sku": {\n      "var": "input.sku"\n' in done.output
    assert 'output:\n  {\n    "sku": "a1"\n  }\n' in done.output


def test_show_prints_outputs_and_json_whole(world: RedisWorld) -> None:
    one = world.coordinator()
    large = "x" * 100_000
    world.begin(one, ORDER, inputs={"sku": large}, execution_id="order-1")
    world.settle(one)

    outputs = orchestrator(world, "show", "order-1", "--outputs")
    of_one = orchestrator(world, "show", "order-1", "--outputs", "--step", "check")
    told = orchestrator(world, "show", "order-1", "--json")
    step = orchestrator(world, "show", "order-1", "--json", "--step", "check")
    text = orchestrator(world, "show", "order-1")

    assert json.loads(outputs.output) == {"check": {"sku": large}, "ship": {}}
    assert json.loads(of_one.output) == {"sku": large}
    assert json.loads(told.output)["steps"]["check"]["output"] == {"sku": large}
    check = json.loads(told.output)["steps"]["check"]
    whole = {"step": "check", **check, "attempts": None, "lines": []}
    assert json.loads(step.output) == whole
    assert "... (100,011 bytes in all; --json shows them)" in text.output
    assert len(text.output) < 4_000


def test_show_accepts_items_as_steps_and_suggests_a_similar_step(
    world: RedisWorld,
) -> None:
    one = world.coordinator()
    spec = {"steps": [{"id": "many", "fn": "one", "map": {"over": [1, 2]}, "input": {"n": {"var": "item"}}}]}
    world.begin(one, spec, execution_id="m")
    world.settle(one)

    item = orchestrator(world, "show", "m", "--step", "many#1")
    wrong = orchestrator(world, "show", "m", "--step", "man")

    assert item.output.startswith("step many#1 of m: complete\n")
    assert (wrong.exit_code, wrong.output) == (
        2,
        "Error: execution 'm' has no step 'man'; did you mean 'many'?\n",
    )


def test_status_is_an_alias_of_show(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ORDER, inputs={"sku": "a1"}, execution_id="order-1")
    world.settle(one)

    shown, before = (orchestrator(world, name, "order-1", "--json") for name in ("show", "status"))

    assert before.output == shown.output


# ---- history


def test_history_prints_every_entry(world: RedisWorld) -> None:
    one = world.coordinator()
    name = world.begin(one, ORDER, inputs={"sku": "a1"}, execution_id="order-1")
    world.settle(one, executors=FAILING)

    told = orchestrator(world, "history", "order-1")
    of_step = orchestrator(world, "history", "order-1", "--step", "ship")
    whole = orchestrator(world, "history", "order-1", "--json")

    assert told.exit_code == 0
    titles, *lines = told.output.splitlines()
    assert titles.split() == ["TIME", "(UTC)", "AFTER", "STEP", "RUN", "ATTEMPT", "CAUSE", "WHAT"]
    assert [(line.split()[3], line[titles.index("WHAT") :]) for line in lines] == [
        ("check", "dispatched"),
        ("workflow", "is in progress"),
        ("check", "state changed: sku"),
        ("check", "complete"),
        ("ship", "dispatched"),
        ("ship", "state changed: ok, error"),
        ("ship", "retry scheduled: ValueError: no such address"),
        ("ship", "dispatched"),
        ("ship", "failed: ValueError: no such address"),
        ("workflow", "is failed: ValueError: no such address"),
    ]
    assert {line.split()[3] for line in of_step.output.splitlines()[1:]} == {"ship"}
    assert json.loads(whole.output) == world.history(name)


def test_a_history_of_an_unknown_step_is_rejected(world: RedisWorld) -> None:
    world.begin(world.coordinator(), ORDER, inputs={"sku": 1}, execution_id="order-1")

    refused = orchestrator(world, "history", "order-1", "--step", "shop")

    assert (refused.exit_code, refused.output) == (
        2,
        "Error: execution 'order-1' has no step 'shop'; did you mean 'ship'?\n",
    )


def test_a_followed_history_continues_until_the_end(world: RedisWorld) -> None:
    one = world.coordinator()
    name = world.begin(one, ORDER, inputs={"sku": "a1"}, execution_id="order-1")
    with command(world, "history", "order-1", "--follow", "--json") as process:
        begun = lines_until(process, '"workflow": "in_progress"')
        world.settle(one)
        printed, said = process.communicate(timeout=300)

    entries = [json.loads(line) for line in [*begun, *printed.splitlines()]]
    assert entries == world.history(name)
    assert (process.returncode, said) == (0, "")


# ---- watch


def test_watch_prints_changes_to_a_pipe_and_exits_with_the_code_of_the_execution(
    world: RedisWorld,
) -> None:
    one = world.coordinator()
    world.begin(one, ORDER, inputs={"sku": "a1"}, execution_id="order-1")
    with command(world, "watch", "order-1") as process:
        begun = lines_until(process, "workflow: is in progress")
        world.settle(one, executors=FAILING)
        printed, said = process.communicate(timeout=300)

    assert [line[12:] for line in begun] == ["check: dispatched", "workflow: is in progress"]
    *changes, title, error = printed.splitlines()
    assert [line[12:] for line in changes] == [
        "check: complete",
        "ship: dispatched",
        "ship: retry scheduled: ValueError: no such address (attempt 2)",
        "ship: dispatched (attempt 2)",
        "ship: failed: ValueError: no such address (attempt 2)",
        "workflow: is failed: ValueError: no such address",
    ]
    assert re.fullmatch(r"order order-1: failed in .*", title)
    assert error == "error: ValueError: no such address"
    assert (process.returncode, said) == (4, "")


def test_watch_of_an_ended_execution_exits_at_once(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ORDER, inputs={"sku": "a1"}, execution_id="order-1")
    world.settle(one)

    shown = orchestrator(world, "watch", "order-1")

    assert shown.exit_code == 0
    assert shown.output.splitlines()[-1] == 'outcome: {"sku": "a1"}'
    assert orchestrator(world, "watch", "missing").exit_code == 2


def test_watch_with_json_prints_only_the_result(world: RedisWorld) -> None:
    one = world.coordinator()
    name = world.begin(one, ORDER, inputs={"sku": "a1"}, execution_id="order-1")
    channel = world.keys.done(name)
    with command(world, "watch", "order-1", "--json") as process:
        wait_until(lambda: dict(world.client.pubsub_numsub(channel)).get(channel))
        world.settle(one)
        printed, said = process.communicate(timeout=300)

    told = json.loads(printed)
    assert (process.returncode, said) == (0, "")
    assert (told["execution_id"], told["status"], told["outcome"]) == ("order-1", "complete", {"sku": "a1"})


def test_an_interrupted_watch_leaves_the_execution_running_and_prints_that(world: RedisWorld) -> None:
    name = world.begin(world.coordinator(), ORDER, inputs={"sku": 1}, execution_id="order-1")
    with command(world, "watch", "order-1") as process:
        lines_until(process, "workflow: is in progress")

        process.send_signal(signal.SIGINT)

        _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert said.strip() == "stopped watching; the execution continues: orchestrator watch order-1"
    assert world.status(name) == "in_progress"


INTERRUPTED: dict[str, list[str]] = {
    "run": ["run", "docs/examples/order.yaml", "--inputs", '{"sku": "a1"}'],
    "start": ["start", "docs/examples/order.yaml", "--inputs", '{"sku": "a1"}'],
    "cancel": ["cancel", "order-1"],
    "watch": ["watch", "order-1"],
    "watch --json": ["watch", "order-1", "--json"],
    "history --follow": ["history", "order-1", "--follow"],
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("what", INTERRUPTED)
def test_every_interrupted_command_has_the_exit_code_of_its_signal(
    world: RedisWorld, what: str, number: signal.Signals
) -> None:
    """There is no coordinator, so each of them waits until it is interrupted."""
    world.begin(world.coordinator(), ORDER, inputs={"sku": 1}, execution_id="order-1")

    before = requests_to(world)
    with command(world, *INTERRUPTED[what]) as process:
        wait_until(lambda: requests_to(world) > before)

        process.send_signal(number)

        _, printed = process.communicate(timeout=300)
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode  # as a shell does
    assert code == 128 + number
    assert "Traceback" not in printed


def requests_to(world: RedisWorld) -> int:
    """How many events were sent, and how many channels somebody listens to."""
    redis: Any = world.client
    streams = [world.keys.starts, *redis.keys("orchestrator:events:*")]
    return int(sum(map(redis.xlen, streams)) + len(redis.pubsub_channels()))


def test_an_interrupted_question_is_an_interrupted_command(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world.begin(world.coordinator(), ORDER, inputs={"sku": 1}, execution_id="order-1")

    def interrupt(_: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("click.termui.visible_prompt_func", interrupt)
    with pytest.raises(SystemExit) as ended:
        main.main(["--redis-url", url_of(world), "cancel", "--status", "in_progress"], "orchestrator")

    assert ended.value.code == 130
    assert "Error: interrupted by SIGINT" in capsys.readouterr().err


def test_a_question_that_is_answered_with_no_ends_the_command_as_before(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.begin(world.coordinator(), ORDER, inputs={"sku": 1}, execution_id="order-1")
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: "n")

    with pytest.raises(SystemExit) as ended:
        main.main(["--redis-url", url_of(world), "cancel", "--status", "in_progress"], "orchestrator")

    assert ended.value.code == 1


def test_watch_polls_seldom_and_loads_only_changes(world: RedisWorld) -> None:
    world.begin(world.coordinator(), ORDER, inputs={"sku": 1}, execution_id="order-1")
    world.client.config_resetstat()
    with command(world, "watch", "order-1") as process:
        lines_until(process, "workflow: is in progress")
        began, looked = time.monotonic(), calls(world.client)["hmget"]

        wait_until(lambda: calls(world.client)["hmget"] >= looked + 4)

        taken = time.monotonic() - began
        process.kill()
    assert taken > 3 * POLL_INTERVAL_S
    seen = calls(world.client)
    assert (seen["hgetall"], seen["lrange"]) == (1, 1)


def test_a_watch_survives_an_outage_of_redis_and_prints_it_once(tmp_path: Path) -> None:
    with durable_world(tmp_path) as (world, server):
        one = world.coordinator()
        world.begin(one, ORDER, inputs={"sku": "a1"}, execution_id="order-1")
        with command(world, "watch", "order-1") as process:
            lines_until(process, "workflow: is in progress")
            server.kill()
            assert process.stderr is not None
            said = process.stderr.readline()
            server.restart()
            world.client.connection_pool.disconnect()
            world.settle(world.coordinator())
            printed, more = process.communicate(timeout=300)

    assert said.startswith("Redis is unavailable; retrying: ")
    assert more == ""
    assert printed.splitlines()[-1] == 'outcome: {"sku": "a1"}'
    assert process.returncode == 0


def test_watch_draws_on_a_terminal_until_the_end(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ORDER, inputs={"sku": "a1"}, execution_id="order-1")
    ours, theirs = pty.openpty()
    with command(world, "watch", "order-1", output=theirs, errors=theirs) as process:
        os.close(theirs)
        shown = _read_until(ours, "1 queued")
        payload = take_job(world)
        shown += _read_until(ours, "1 in progress")
        world.send(world.keys.events_of(payload["execution"]), result_fields(payload, {"sku": "a1"}))
        world.settle(one, executors={"ship": _speak})
        shown += _read_until(ours, "outcome")
        assert process.wait(180) == 0
    os.close(ours)

    plain = click.unstyle(shown)
    assert "░░░░░░░░░░░░ 0 of 2 steps, 1 queued" in plain
    assert "░░░░░░░░░░░░ 0 of 2 steps, 1 in progress" in plain
    assert "████████████████████████ 2 of 2 steps" in plain
    assert "\x1b[1A" in shown, "it draws over what it drew"
    assert re.search(r"check +complete +1 +0 ", plain)
    assert "ship: packing \\x1b[2J\r\n" in plain, "log lines stand above it"


def test_watch_prints_the_timeline_of_an_ended_execution_to_a_pipe(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ORDER, inputs={"sku": "a1"}, execution_id="order-1")
    with command(world, "watch", "order-1", "--timeline") as process:
        world.settle(one, executors=FAILING)
        printed, said = process.communicate(timeout=300)

    title, axis, check, ship, legend, error = printed.splitlines()
    assert re.fullmatch(r"order order-1: failed in .*", title)
    assert axis.split()[0] == "0"
    assert re.fullmatch(r"check  .*[█·].*  complete.*", check)
    assert re.fullmatch(r"ship   .*x.*  failed.* attempt 2", ship)
    assert legend.startswith("█ running")
    assert error == "error: ValueError: no such address"
    assert (process.returncode, said) == (4, "")


def test_watch_draws_the_timeline_on_a_terminal_until_the_end(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ORDER, inputs={"sku": "a1"}, execution_id="order-1")
    ours, theirs = pty.openpty()
    with command(world, "watch", "order-1", "--timeline", output=theirs, errors=theirs) as process:
        os.close(theirs)
        shown = _read_until(ours, "queued  ─ waiting")
        world.settle(one)
        shown += _read_until(ours, "outcome")
        assert process.wait(180) == 0
    os.close(ours)

    plain = click.unstyle(shown)
    assert re.search(r"check +·+ +queued\r?\n", plain)
    assert re.search(r"ship .*complete", plain)
    assert "\x1b[1A" in shown, "it draws over what it drew"


def test_a_timeline_is_not_json(world: RedisWorld) -> None:
    refused = orchestrator(world, "watch", "order-1", "--timeline", "--json")

    assert refused.exit_code == 2
    assert "--timeline and --json exclude each other" in refused.output


def _speak(inputs: dict[str, Any], log: Any) -> dict[str, Any]:
    log("packing \x1b[2J")
    return inputs


def test_show_on_a_terminal_is_cut_to_it(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ORDER, inputs={"sku": "a1"}, execution_id="order-1")
    world.settle(one, executors={"ship": _fail_at_length})
    ours, theirs = pty.openpty()
    with command(world, "show", "order-1", output=theirs, errors=theirs) as process:
        os.close(theirs)
        shown = click.unstyle(_read_until(ours, "error: "))
        assert process.wait(180) == 4
    os.close(ours)

    (row,) = [line for line in shown.splitlines() if line.startswith("ship ")]
    assert len(row.rstrip()) <= 90
    assert row.rstrip().endswith("…")


def _fail_at_length(inputs: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("no such address " * 20)


def _read_until(terminal: int, text: str) -> str:
    found = ""
    with suppress(OSError):  # Linux says EIO when the other side is closed
        while text not in found:
            found += os.read(terminal, 65_536).decode(errors="replace")
    assert text in found
    return found


# ---- graph


def test_graph_of_a_file_of_a_name_and_of_an_execution(world: RedisWorld, tmp_path: Path) -> None:
    one = world.coordinator()
    Client(world.client).register("order", ORDER)
    world.begin(one, "order", inputs={"sku": "a1"}, execution_id="order-1")
    world.settle(one, executors=FAILING)
    (tmp_path / "order.json").write_text(json.dumps(ORDER))

    by_file, by_name, by_id = (
        orchestrator(world, "graph", what) for what in (str(tmp_path / "order.json"), "order", "order-1")
    )

    assert by_file.output == by_name.output
    assert by_name.output.splitlines() == [
        "order: 2 steps in 2 layers",
        "LAYER  STEP   HOW",
        "    1  check",
        "    2  ship   after check",
    ]
    assert by_id.output.splitlines()[2:] == ["    1  check  complete", "    2  ship   failed    after check"]
    read = read_mermaid(orchestrator(world, "graph", "order-1", "--format", "mermaid").output.rstrip("\n"))
    assert read.classes == {"s0": "complete", "s1": "failed"}
    told = json.loads(orchestrator(world, "graph", "order-1", "--json").output)
    assert [node["status"] for node in told["nodes"]] == ["complete", "failed"]


def test_the_graph_of_an_execution_as_a_picture(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ORDER, inputs={"sku": "a1"}, execution_id="order-1")
    world.settle(one, executors=FAILING)

    whole = orchestrator(world, "graph", "order-1", "--format", "svg")
    collapsed = orchestrator(world, "graph", "order-1", "--format", "svg", "--max-nodes", "1")

    assert re.findall(r'class="(node[^"]*)" data-(\w+="[^"]*")', whole.output) == [
        ("node k-task s-complete", 'step="check"'),
        ("node k-task s-failed", 'step="ship"'),
    ]
    assert whole.output.startswith('<?xml version="1.0" encoding="UTF-8"?>')
    assert whole.output.endswith("</svg>\n")
    assert "2 steps, 0 edges, drawn as 1 node" in collapsed.output


def test_a_limit_of_nodes_is_for_pictures_only(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("steps: [{op: a}]")

    refused = CliRunner().invoke(main, ["graph", str(tmp_path / "a.yaml"), "--max-nodes", "3"])

    assert refused.exit_code == 2
    assert "--max-nodes needs --format svg" in refused.output


def test_a_graph_of_an_unknown_name_is_rejected(world: RedisWorld, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("steps: []")

    unknown = orchestrator(world, "graph", "missing")
    mixed = orchestrator(world, "graph", "missing", str(tmp_path / "a.yaml"))

    assert unknown.exit_code == 2
    assert "there is no file, no execution and no registered workflow 'missing'" in unknown.output
    assert mixed.exit_code == 2
    assert "'missing' is not a file; give files, or one id or name" in mixed.output


def test_a_graph_of_a_file_needs_no_redis(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("steps: [{op: a}]")
    (tmp_path / "b.yaml").write_text("name: both")

    drawn = CliRunner().invoke(main, ["graph", "--merge", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")])

    assert drawn.output.splitlines()[0] == "both: 1 step in 1 layer"


# ---- completion


COMPLETE = """
eval "$(orchestrator completion bash)"
complete_it() {
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _orchestrator_completion orchestrator 2>/dev/null
    echo "${COMPREPLY[*]}"
}
compopt() { :; }  # there is no line being edited here
"""


def completed(folder: Path, url: str, *words: str) -> list[str]:
    """The completions of bash for the last of these words."""
    (folder / "orchestrator").write_text(f'#!/bin/sh\nexec {sys.executable} -m orchestrator "$@"\n')
    (folder / "orchestrator").chmod(0o755)
    bash = shutil.which("bash")
    assert bash is not None
    asked = " ".join(f"'{word}'" for word in ("orchestrator", *words))
    run = subprocess.run(
        [bash, "--norc", "-c", f"{COMPLETE}\ncomplete_it {asked}"],
        cwd=ROOT,
        env={
            "PATH": f"{folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "ORCHESTRATOR_REDIS_URL": url,
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_bash_completes_commands_options_ids_and_names(world: RedisWorld, tmp_path: Path) -> None:
    one = world.coordinator()
    for number in range(3):
        world.begin(one, ORDER, inputs={"sku": number}, execution_id=f"order-{number}")
    world.settle(one)
    Client(world.client).register("ordering", ORDER)
    url = url_of(world)

    assert completed(tmp_path, url, "wat") == ["watch"]
    assert completed(tmp_path, url, "graph", "--form") == ["--format"]

    def offers(*words: str) -> Callable[[], set[str]]:
        """What is offered after these words; on a busy machine it takes a query too long at times."""
        return lambda: set(completed(tmp_path, url, *words))

    ids = {"order-0", "order-1", "order-2"}
    assert wait_until(offers("show", "order-")) == ids
    assert wait_until(offers("history", "order-2")) == {"order-2"}
    assert wait_until(offers("start", "ord")) == {"ordering"}
    wait_until(lambda: offers("graph", "ord")() == {"ordering", *ids})  # these are two queries
    assert completed(tmp_path, url, "--redis-url", "unix:///nowhere", "show", "order-") == []


TAKE_AN_ID = (
    "show history watch why what-if verify graph cancel pause unpause retry rerun delete hold release signal"
)
TAKE_A_NAME = ("start", "definitions show", "definitions remove", "schedules pause", "schedules unpause")


def test_every_command_completes_the_ids_and_names_that_it_takes(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.cli.completers.REPLY_TIMEOUT_S", PATIENCE_S)
    world.begin(world.coordinator(), ORDER, inputs={"sku": 1}, execution_id="order-0")
    Client(world.client).register("ordering", ORDER)
    known = {"redis_url": url_of(world)}

    taken = {**dict.fromkeys(TAKE_AN_ID.split(), "order-0"), **dict.fromkeys(TAKE_A_NAME, "ordering")}
    for words, offered in taken.items():
        asked = ShellComplete(main, {"obj": Target(**known)}, "orchestrator", "_COMPLETE")
        found = [item.value for item in asked.get_completions(words.split(), "ord") if item.type == "plain"]
        assert offered in found, words


def test_completion_does_not_wait_for_a_redis_that_does_not_reply(redis_url: str, tmp_path: Path) -> None:
    silent = tmp_path / "silent.sock"
    with _listening(silent):  # a query without a limit would wait longer than the test
        offered = completed(tmp_path, f"unix://{silent}?socket_timeout=6000", "show", "")

    assert offered == []


@contextmanager
def _listening(path: Path) -> Iterator[None]:
    """A server that accepts connections and never replies."""
    import socket

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_runs_the_command(shell: str) -> None:
    printed = CliRunner().invoke(main, ["completion", shell], prog_name="orchestrator")

    assert printed.exit_code == 0
    assert f"_ORCHESTRATOR_COMPLETE={shell}_complete" in printed.output


# ---- glances


def test_the_newest_executions_come_first(world: RedisWorld) -> None:
    store = Client(world.client, world.keys).store
    store.register("a", check_spec(ORDER))
    for at, (status, name) in enumerate(
        [("complete", "x#old"), ("failed", "x#mid"), ("in_progress", "x#new")]
    ):
        world.client.zadd(world.keys.index(status), {name: at})

    assert queries(world).recent_executions(2) == [("new", "in_progress"), ("mid", "failed")]
    assert queries(world).names() == ["a"]


def test_an_execution_that_is_gone_has_no_version(world: RedisWorld) -> None:
    with pytest.raises(RecordNotFound):
        queries(world).version("spec#missing")


def test_a_job_that_is_gone_has_no_inputs(world: RedisWorld) -> None:
    assert queries(world).inputs_of("missing") is None
