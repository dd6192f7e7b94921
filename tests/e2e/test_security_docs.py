"""The page about security: its commands are run, and what it says of tests, users and limits is so."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from orchestrator.application.engine.signals import MAX_KEPT_SIGNAL_BYTES, MAX_KEPT_SIGNALS
from orchestrator.application.values.document_limits import DEFAULT_LIMITS
from orchestrator.redis_rq.event_codec import MAX_EVENT_BYTES, MAX_NAME_LENGTH
from orchestrator.redis_rq.job_codec import MAX_DATA_BYTES
from orchestrator.worker.step_job import ALLOWED_FIELDS, StepJob
from processes import ROOT
from servers.guarded_redis import USERS, user_of_queue
from servers.redis_server import own_redis

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_files_of_users_are_put_together_as_it_says_and_redis_takes_them(tmp_path: Path) -> None:
    [command] = [text for _, text in BLOCKS if text.startswith("for file in docs/acl")]
    words = ["bash", "-euc", command.replace("> users.acl", "")]
    made = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    passwords = re.findall(r">([0-9a-f]{64})", made)
    assert len(set(passwords)) == len(passwords) == len(USERS), "nobody knows that of another"
    users = tmp_path / "users.acl"
    users.write_text("user default on nopass ~* &* +@all\n")
    with own_redis(tmp_path, "--aclfile", str(users)) as server:
        users.write_text(f"{made}user admin on nopass ~* &* +@all\n")
        with server.client() as client:
            client.acl_load()
        with server.client(username="admin", password="", decode_responses=True) as admin:
            assert set(admin.acl_users()) == {*USERS, "default", "admin"}


@pytest.mark.parametrize("queue", ["reports.pdf", "a_b.c-1"])
def test_a_worker_user_for_one_queue_is_made_as_it_says(tmp_path: Path, queue: str) -> None:
    [command] = [text for _, text in BLOCKS if text.startswith("queue=")]
    made = tmp_path / "users.acl"
    command = command.replace("queue=reports.pdf", f"queue={queue}").replace("users.acl", str(made))

    subprocess.run(["bash", "-euc", command], cwd=ROOT, check=True)

    line, count = re.subn(">[0-9a-f]{64} ", f">worker-of-{queue}-password ", made.read_text())
    assert (line, count) == (user_of_queue(queue), 1)


def test_every_block_is_run_by_a_test_or_is_shown_in_one() -> None:
    tested = (
        "for file in docs/acl",
        "queue=",
        "openssl req",
        "rediss://",
    )  # the last two by redis_rq/test_tls.py
    shown = ("rq worker --serializer json --job-class", "redis-server --")
    assert [text for _, text in BLOCKS if not text.startswith(tested + shown)] == []
    [command] = [text for _, text in BLOCKS if text.startswith("rq worker")]
    assert f"{StepJob.__module__}.{StepJob.__qualname__}" in command


@pytest.mark.parametrize(
    "said",
    [
        f"{DEFAULT_LIMITS.max_bytes >> 20} MiB, {DEFAULT_LIMITS.max_nodes:,} nodes",
        f"of an event also {MAX_EVENT_BYTES >> 20} MiB",
        f"{MAX_KEPT_SIGNALS:,} of {MAX_KEPT_SIGNAL_BYTES >> 20} MiB in all are kept for an execution",
        f"`by`, ... | {MAX_NAME_LENGTH:,} characters",
        f"job | {MAX_DATA_BYTES >> 20} MiB unpacked",
        f"takes {len(ALLOWED_FIELDS)} fields of a job",
    ],
)
def test_what_it_says_of_limits_is_so(said: str) -> None:
    assert said in PAGE


def test_the_tests_that_it_names_are_there() -> None:
    named = re.findall(r"tests/[\w/]+\.py", PAGE)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
    short = set(re.findall(r"(?<![\w/])test_\w+\.py", PAGE))
    assert len(short) > 10
    assert short - {path.name for path in (ROOT / "tests/web").rglob("test_*.py")} == set()
