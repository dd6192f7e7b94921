"""Where the secret of a token is kept, on real processes: in the data of its job, and in the keys of
coordinators. It is not in job ids, descriptions, leases, worker hashes, results of RQ and logs."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.client import Client
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys, job_id_of
from processes import PatientClient, Stack, stack, wait_until
from worlds.attacks import CREW, STOCK, WARM

pytestmark = pytest.mark.slow

KEYS = Keys()


def serve(processes: Stack, kind: str) -> Any:
    loud = ("--log-level", "DEBUG")
    if kind == STOCK:
        return processes.rq_worker()
    return processes.worker("default", *kind.split()[2:], *loud)


def places_of(redis: RedisClient, text: str) -> set[str]:
    """The keys of Redis whose content has this text; for a hash with the fields."""
    found = set()
    for key in map(str, redis.scan_iter(count=1_000)):
        kind = redis.type(key)
        if kind == "hash":
            fields: Any = redis.hgetall(key)
            found |= {f"{key} {field}" for field, value in fields.items() if text in f"{field} {value}"}
        elif text in str(_content(redis, key, str(kind))):
            found.add(key)
    return found


def _content(redis: RedisClient, key: str, kind: str) -> object:
    match kind:
        case "list":
            return redis.lrange(key, 0, -1)
        case "set":
            return redis.smembers(key)
        case "zset":
            return redis.zrange(key, 0, -1)
        case "stream":
            return redis.xrange(key)
    return redis.get(key)


def token_of(client: Client, execution_id: str) -> str:
    return str(client.record(execution_id).steps["a"].token)


@pytest.mark.parametrize("kind", [STOCK, WARM, CREW])
def test_the_secret_of_a_token_is_in_the_data_of_its_job_and_in_no_log(
    kind: str, redis_url: str, tmp_path: Path
) -> None:
    """The step runs, its process is killed, it runs again and is cancelled."""
    pid_file = tmp_path / "pid"
    spec = {"steps": [{"id": "a", "fn": "waits", "input": {"pid_file": str(pid_file), "go": "never"}}]}
    tokens = []
    with stack(redis_url, "step_functions", tmp_path / "logs") as processes, connect(redis_url) as redis:
        processes.coordinator("--log-level", "DEBUG")
        serve(processes, kind)
        client = PatientClient(redis)
        weid = client.start(spec, {}, "x").workflow_execution_id
        for _ in range(2):
            wait_until(lambda: client.record("x").steps["a"].started_at, what=processes.log())
            wait_until(pid_file.exists, what=processes.log())
            token = token_of(client, "x")
            tokens.append(token)
            job = f"rq:job:{job_id_of(KEYS.queue('default'), token)} data"
            kept = {job, f"{KEYS.workflow(weid)} step:a", KEYS.timers}
            streams = {KEYS.events(partition) for partition in range(KEYS.partitions)}
            secret = token.partition(".")[2]
            assert secret
            assert places_of(redis, secret) - streams == kept
            if len(tokens) == 1:
                _kill(pid_file)
                wait_until(lambda: token_of(client, "x") not in (*tokens, "None"), what=processes.log())
        client.cancel("x")
        wait_until(lambda: not redis.keys("rq:job:*"), what=processes.log())
        left = [*redis.scan_iter("rq:*")]
        log = processes.log()
    assert not [token for token in tokens if token.partition(".")[2] in log]
    assert not [key for key in left if str(key).startswith("rq:results:")]


def _kill(pid_file: Path) -> None:
    pid = int(pid_file.read_text())
    pid_file.unlink()
    os.kill(pid, signal.SIGKILL)
