"""docs/producers.md is correct, and so is the producer that it shows, for any input."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.pages import blocks, reading
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from processes import PatientClient, Stack, stack, wait_until
from servers.redis_server import own_redis, require_redis_server

ROOT = Path(__file__).parents[2]
PAGE = "docs/producers.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
PRODUCER = ROOT / "docs" / "examples" / "producer.sh"
ECHO = """
steps: [{id: say, fn: add, input: {n: 1, text: {var: input.text}}}]
outputs: {text: {var: input.text}}
"""
WAIT = "steps: [{id: ask, wait: {signal: go}}]\noutputs: {said: {var: steps.ask.output}}"
HALT = "steps: [{op: add, branch: [{condition: true, action: halt, result: {why: closed}}]}]"
STRANGE = [
    "it's",
    'say "so"',
    "$(touch /tmp/never) `id` ${HOME} $$",
    "back\\slash \\n \\\"",
    "two\nlines\r\n\ttab",
    "* ? [a] {b,c} ~ ! # ; & | < > ( )",
    "ünïcödé 💥",
    "-x",
    '"ok":true,"workflow_execution_id":"missing"',
    "%s %d",
    "",
]  # fmt: skip


# ---- the page


@pytest.mark.slow
def test_everything_on_the_page_about_producers_works(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        shutil.copy(PRODUCER, tmp_path / "bin" / "producer.sh")
        python = tmp_path / "bin" / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        for block in blocks(TEXT):
            reader.do(block)

        assert [service.poll() for service in reader.services] == [None, None], "a service has ended"


def test_every_block_of_it_is_tested_and_every_link_leads_somewhere() -> None:
    reference = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    anchors = {title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.*)$", reference, re.M)}

    assert len(blocks(TEXT)) == TEXT.count("\n```") / 2
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        page, _, anchor = target.partition("#")
        assert (ROOT / "docs" / page).exists(), target
        assert not anchor or anchor in anchors, target


# ---- the script


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    require_redis_server()
    for name, text in {"echo.yaml": ECHO, "wait.yaml": WAIT, "halt.yaml": HALT}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


KEYS = Keys()


@contextmanager
def serving(url: str, folder: Path) -> Iterator[Stack]:
    with stack(url, "step_functions", folder / "logs") as world:
        world.coordinator()
        world.worker()
        with connect(url) as redis:
            wait_until(lambda: redis.zcard(KEYS.coordinators), what=world.log())
        yield world


def run(url: str, folder: Path, *arguments: str, given: str = "") -> tuple[int, str, str]:
    done = subprocess.run(
        ["bash", str(PRODUCER), *arguments],
        cwd=folder,
        env=os.environ | {"ORCHESTRATOR_REDIS_URL": url},
        input=given,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr


def test_any_json_goes_through_the_shell_and_comes_back(redis_url: str, folder: Path) -> None:
    with serving(redis_url, folder):
        for text in STRANGE:
            inputs = json.dumps({"text": text}, ensure_ascii=False)
            code, printed, error = run(redis_url, folder, "start", "echo.yaml", inputs)
            assert (code, json.loads(printed or "null")) == (0, {"text": text}), error

        large = {"text": "long " * 150_000}  # longer than an argument may be
        code, printed, error = run(redis_url, folder, "start", "echo.yaml", "-", given=json.dumps(large))
        assert (code, json.loads(printed or "null")) == (0, large), error

        sent: Any = {"quote": "'\"", "deep": [None, {"$": "`"}]}
        assert run(redis_url, folder, "signal", "w-1", "go", json.dumps(sent)) == (0, "", "")
        code, printed, _ = run(redis_url, folder, "start", "-i", "w-1", "wait.yaml")
        assert (code, json.loads(printed)) == (0, {"said": sent})
    assert not Path("/tmp/never").exists()


def test_every_status_has_its_exit_code(redis_url: str, folder: Path) -> None:
    client = PatientClient(redis_url)
    with serving(redis_url, folder):
        halted = run(redis_url, folder, "start", "-i", "h-1", "halt.yaml")
        assert halted[:2] == (3, '{"why":"closed"}\n')
        assert halted[2].endswith("#h-1: halted\n")
        rejected = run(redis_url, folder, "start", "-i", "h-1", "halt.yaml")
        assert rejected[0] == 2
        assert "already exists" in rejected[2]
        code, _, error = run(redis_url, folder, "cancel", "h-1")
        assert (code, "cannot be cancelled: it is halted" in error) == (2, True)
        assert run(redis_url, folder, "wait", "missing") == (2, "", "there is no execution missing\n")

        assert run(redis_url, folder, "start", "-i", "w-1", "-t", "1", "wait.yaml")[0] == 124
        with connect(redis_url) as redis:
            wait_until(lambda: redis.exists(KEYS.execution("w-1")), what="a start that is slow")
        code, printed, _ = run(redis_url, folder, "cancel", "w-1", 'it\'s a "duplicate"')
        assert (code, json.loads(printed)["status"]) == (0, "cancelled")
        assert 'it\'s a "duplicate"' in [entry.get("reason") for entry in client.history("w-1")]
        assert run(redis_url, folder, "wait", client.store.full_id("w-1"))[0] == 5
        code, printed, _ = run(redis_url, folder, "cancel", client.store.full_id("w-1"))
        assert (code, json.loads(printed)["changed"]) == (0, False)


def test_without_a_coordinator_the_start_stays_in_the_stream(redis_url: str, folder: Path) -> None:
    code, printed, error = run(redis_url, folder, "start", "-t", "1", "echo.yaml")

    assert (code, printed) == (124, "")
    # On a busy machine the second is over before it waits, and it says so.
    told = r"(?:no coordinator has replied|no time left to wait for a reply); (\d+-\d+) stays in its stream"
    [entry] = re.findall(told, error)
    with serving(redis_url, folder):
        assert PatientClient(redis_url).wait_for_reply(entry, 180)["ok"]


@pytest.mark.parametrize(
    "arguments",
    [(), ("start",), ("start", "-x", "a"), ("start", "a", "{}", "b"), ("wait",), ("dance", "a"),
     ("start", "-t", "0", "a"), ("start", "-t", "soon", "a"), ("signal", "a")],
)  # fmt: skip
def test_wrong_usage_is_rejected(folder: Path, arguments: tuple[str, ...]) -> None:
    code, printed, error = run("unix:///nowhere", folder, *arguments)

    assert (code, printed) == (2, "")
    assert "producer.sh start" in error or "whole seconds" in error


def test_without_redis_there_is_an_error_and_no_process_stays_behind(folder: Path) -> None:
    code, _, error = run(f"unix://{folder}/none", folder, "start", "order")
    assert (code, "Could not connect" in error) == (1, True)

    with own_redis(folder) as server, serving(server.url, folder):
        follower = subprocess.Popen(
            ["bash", str(PRODUCER), "start", "-i", "w-1", "wait.yaml"],
            cwd=folder,
            env=os.environ | {"ORCHESTRATOR_REDIS_URL": server.url},
            stderr=subprocess.PIPE,
            text=True,
        )
        client: Any = server.client(decode_responses=True)
        wait_until(lambda: client.execute_command("PUBSUB", "CHANNELS", "orchestrator:done:*"))
        server.kill()
        _, error = follower.communicate(timeout=300)

    assert follower.returncode == 1
    assert re.search(
        r"Redis is unavailable|Connection (reset|refused)|closed the connection|Broken pipe", error
    )


def test_a_follower_that_is_killed_stops_its_listener(redis_url: str, folder: Path) -> None:
    with serving(redis_url, folder), PatientClient(redis_url)._redis as redis:
        follower = subprocess.Popen(
            ["bash", str(PRODUCER), "start", "-i", "w-1", "wait.yaml"],
            cwd=folder,
            env=os.environ | {"ORCHESTRATOR_REDIS_URL": redis_url},
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: redis.pubsub_channels("orchestrator:done:*"))
        follower.send_signal(signal.SIGTERM)
        follower.wait(180)

        wait_until(lambda: not redis.pubsub_channels("orchestrator:done:*"))
