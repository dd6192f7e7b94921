"""A failover by Sentinel in the middle of it all: all find the new primary, and what it has is whole."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.errors import RecordNotFound
from orchestrator.application.records.decisions import Complete, FinalDecision
from orchestrator.client import RequestLost
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.verify.verifier import Verifier
from processes import ROOT, PatientClient, stack, wait_until
from servers.failovers import Cell, own_cell
from system.test_kills import DIAMOND, accepted, expected, nothing_is_left

KEYS = Keys()
WORKFLOWS = 40


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[Cell]:
    with own_cell(tmp_path) as cell:
        yield cell


@pytest.mark.slow
def test_a_failover_loses_the_last_writes_and_nothing_by_halves(cell: Cell, tmp_path: Path) -> None:
    client = PatientClient(cell.url)
    with stack(cell.url, "step_functions", tmp_path / "logs", ORCHESTRATOR_LEASE_S="4") as processes:
        own = [processes.coordinator(), processes.worker(), processes.worker("default", "--concurrency", "4")]
        sent = client.start_many([DIAMOND] * WORKFLOWS, [{"n": n} for n in range(WORKFLOWS)])
        kept = [client.wait_for_reply(entry, 180)["workflow_execution_id"] for entry in sent]
        ends: dict[str, FinalDecision] = {}

        def wait() -> None:
            ends["last"] = client.wait(kept[-1], 400)

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        cell.wait_for_the_replica()

        cell.cut_off_the_replica()
        lost = [client.start(DIAMOND, {"n": n}, f"lost-{n}", 180).workflow_execution_id for n in range(3)]
        unanswered = client.start_many([DIAMOND], [{"n": 0}], ["unanswered"])[0]
        cell.fail_over()

        redis = connect(cell.url)
        wait_until(lambda: redis.zcard(KEYS.index("complete")) == WORKFLOWS, what="all that was kept to end")
        wait_until(lambda: nothing_is_left(redis), what="nothing pending")
        waiting.join(180)
        listed = _command(cell, "list", "--json", "--limit", "1")
        again = client.start(DIAMOND, {"n": 7}, "lost-0", 180)
        assert client.wait(again.execution_id, 180) == Complete(expected(7))
        assert [one.poll() for one in own] == [None, None, None], processes.log()[-4000:]

    assert ends["last"] == Complete(expected(WORKFLOWS - 1))
    assert len(listed["executions"]) == 1
    for n, execution in enumerate(kept):
        assert client.record(execution).outcome == expected(n)
        assert accepted(redis, execution) == {"a": 1, "b": 1, "c": 1, "d": 1}
    for execution in lost[1:]:
        with pytest.raises(RecordNotFound):
            client.wait(execution, 180)
        assert not list(redis.scan_iter(f"*{execution}*"))
    with pytest.raises(RequestLost, match="send the request again"):
        client.wait_for_reply(unanswered, 0.1)
    assert [str(one.finding) for one in Verifier(redis, KEYS).verify_all().found] == []
    assert not redis.xlen(KEYS.dead_letters)


def _command(cell: Cell, *arguments: str) -> Any:
    command = [sys.executable, "-m", "orchestrator", "--redis-url", cell.url, *arguments]
    return json.loads(subprocess.check_output(command, cwd=ROOT, text=True))
