"""docs/webhooks.md does what it says. A comment before each block names its treatment, as in the README."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Backend, Workflow
from orchestrator.application.engine.webhook import read_webhook
from orchestrator.application.records.events import StartEvent
from orchestrator.application.redaction.by_key import (
    REDACTED,
    SECRET_KEY_PARTS,
    SECRET_KEY_WORDS,
    redact_by_key,
)
from orchestrator.application.spec.model import WEBHOOK_STEP
from orchestrator.application.spec.validation import load_spec
from orchestrator.application.values.unit_id import WEBHOOK_UNIT
from orchestrator.invocation.executors import load_built_in
from orchestrator.redis_rq.event_codec import read_event
from orchestrator.redis_rq.keys import Keys
from orchestrator_executors import network
from orchestrator_executors import webhook as module
from servers.receiver import Answer, receiver

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "webhooks.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:<!-- test: ([^\n]*) -->\n)?^```\w*\n(.*?)^```$", re.M | re.S)
BLOCKS = {found[1] or "": found[2] for found in BLOCK.finditer(PAGE)}
ORDER = BLOCKS["file order.yaml"]
SECRET = "change-me"

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def _a_worker_that_may_post(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.HOSTS_VARIABLE, "127.0.0.1")
    monkeypatch.setenv(module.SECRET_VARIABLE, SECRET)


def pay(inputs: Json) -> Json:
    return {"receipt": f"r-{inputs['order']}", "iban": "DE00"}


def is_ours() -> Callable[..., bool]:
    names: Json = {}
    exec(compile(BLOCKS["receiver"], "webhooks.md", "exec"), names)
    found: Callable[..., bool] = names["is_ours"]
    return found


def test_every_block_says_how_it_is_tested() -> None:
    assert sorted(BLOCKS) == ["body", "file order.yaml", "history", "receiver", "start", "worker"]
    assert len(BLOCKS) == PAGE.count("\n```") / 2


def test_the_order_posts_what_the_page_shows_signed_as_the_page_verifies_it() -> None:
    shown = json.loads(BLOCKS["body"])
    with receiver(Answer(503, "come back later")) as hooks:
        document = ORDER.replace("https://hooks.example.org/orders", hooks.url)
        now = [1_800_000_000_000]
        backend = Backend({"pay": pay, "webhook": load_built_in("webhook")}, clock=lambda: now[0])
        workflow = Workflow(backend.create(document, {"order": 17}, "o-1"), backend)
        workflow.run()
        now[0] += 1_200
        workflow.run()

    first, second = hooks.posts
    assert first.body == second.body
    assert list(second.json) == list(shown)
    assert {**shown, "workflow_execution_id": workflow.id, "ended_at": second.json["ended_at"]} == second.json
    assert second.headers["x-team"] == "shop"
    assert first.delivery == second.delivery == "o-1#webhook#0"
    assert "o-1#webhook#0" in PAGE

    verify, signature = is_ours(), second.headers["orchestrator-signature"]
    assert verify(SECRET, signature, second.body)
    assert not verify("another", signature, second.body)
    assert not verify(SECRET, signature, second.body + b" ")
    assert not verify(SECRET, signature, second.body, within_s=-1)
    assert not verify(SECRET, "nonsense", second.body)
    assert not verify(SECRET, "t=1,v1=é", second.body)

    lines = [
        {key: value for key, value in entry.items() if key not in ("at", "cause")}
        for entry in workflow.history
        if entry.get("step") == WEBHOOK_UNIT
    ]
    assert lines == [json.loads(line) for line in BLOCKS["history"].splitlines()]


def test_the_order_posts_the_outcomes_that_the_page_lists() -> None:
    told = load_spec(ORDER).spec.webhook

    assert told is not None
    assert told.on == ("complete", "failed")


def test_the_start_on_the_page_is_accepted_by_a_coordinator() -> None:
    program, command, stream, entry, *fields = shlex.split(BLOCKS["start"])
    assert (program, command, stream, entry) == ("redis-cli", "XADD", Keys().starts, "*")

    event = read_event(dict(zip(fields[::2], fields[1::2], strict=True)), is_start=True)

    assert isinstance(event, StartEvent)
    assert read_webhook(event.webhook) == {
        "url": "https://hooks.example.org/17",
        "headers": {},
        "on": ["failed"],
    }


def test_the_worker_of_the_page_runs(redis_url: str, tmp_path: Path) -> None:
    *settings, program, command, option, executors = shlex.split(BLOCKS["worker"])
    environment = dict(setting.split("=", 1) for setting in settings)
    assert (program, command) == ("orchestrator", "worker")
    assert set(environment) == {module.HOSTS_VARIABLE, module.SECRET_VARIABLE}
    (tmp_path / f"{executors}.py").write_text("def ship(inputs): return {}\n")

    run = subprocess.run(
        [sys.executable, "-m", program, command, option, executors, "--burst"],
        cwd=tmp_path,
        env={**os.environ, **environment, "ORCHESTRATOR_REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert run.returncode == 0, run.stderr


def test_the_settings_and_attempts_on_the_page_are_right() -> None:
    retry = WEBHOOK_STEP.retry

    assert retry is not None
    assert {module.HOSTS_VARIABLE, module.SECRET_VARIABLE} <= set(re.findall(r"`(\w+)`", PAGE))
    assert (retry.max_retries, retry.jitter_fraction, WEBHOOK_STEP.timeout_s) == (8, 0.2, 30)
    assert retry.initial_delay_ms * retry.backoff_multiplier ** (retry.max_retries - 1) == 128_000
    assert (module.TIMEOUT_S, network.MAX_RESPONSE_EXCERPT) == (15, 200)
    assert WEBHOOK_STEP.queue == "default"


def test_the_page_names_every_word_that_names_a_secret() -> None:
    listed = PAGE.partition("## What is not shown")[2].partition("\n\n")[2]

    for word in (*SECRET_KEY_PARTS, *SECRET_KEY_WORDS):
        assert f"`{word}`" in listed
        assert redact_by_key({word: 1}) == {word: REDACTED}
    assert f"`{REDACTED}`" in listed


def test_every_link_of_the_page_works() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        name, _, anchor = target.partition("#")
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        titles = re.findall(r"^#+ (.*)$", page, re.M)
        assert not anchor or anchor in {
            re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in titles
        }
