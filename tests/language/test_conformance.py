"""Conformance: a document means the same in memory with 1 and 4 threads, on SQLite and on Redis."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from e2e.test_language_docs import (
    EXAMPLES,
    EXECUTORS,
    ON_THE_WAY,
    _executors,
    _of,
    _shown,
)
from effort import count
from language.conformance import LOCAL, LocalRun, RedisRun, Script, family, result, script_of
from language.random_specs import quiet_case
from orchestrator.application.spec.document import read_document
from orchestrator.application.spec.tag_routes import TagRoutes
from orchestrator.application.spec.validation import check_spec
from orchestrator.invocation.source_config import ENV_ALLOWLIST_VARIABLE
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.store import RedisStore
from processes import ROOT, PatientClient, stack, wait_until
from worlds.documents import Json
from worlds.records import NOW_MS
from worlds.redis_world import RedisWorld

FIRST, *OTHERS = LOCAL
LINES = [line for line in _of("json") if ON_THE_WAY.isdisjoint(_shown(line))]
SEEDS = range(count(12, 150))


@pytest.fixture
def redis_run(redis_url: str) -> Iterator[RedisRun]:
    world = RedisWorld(lambda: connect(redis_url), Keys(partitions=1), routes=TagRoutes.parse("*"))
    yield RedisRun(world)
    world.close()


def example(line: int) -> Script:
    shown = _shown(line)
    return Script(
        read_document(EXAMPLES[line].document).data,
        f"line-{line}",
        _executors(),
        shown.get("inputs"),
        shown.get("group"),
        signals=shown.get("signals", ()),
    )


def case(seed: int) -> Script:
    made = quiet_case(seed)

    def payload(step_id: str) -> Json:
        return {"n": Random(f"{seed} {step_id}").randint(0, 9)}

    return script_of(made, payload)


@pytest.mark.parametrize("line", LINES)
def test_an_example_of_the_reference_ends_alike_on_every_backend(
    line: int, tmp_path: Path, redis_run: RedisRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENV_ALLOWLIST_VARIABLE, "NOT_SET_*")
    _check(example(line), tmp_path, redis_run)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_quiet_case_ends_alike_on_every_backend(seed: int, tmp_path: Path, redis_run: RedisRun) -> None:
    _check(case(seed), tmp_path, redis_run)


@pytest.mark.slow
def test_the_examples_that_need_no_time_end_alike_with_a_coordinator_and_a_worker(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real processes, one pair for all examples. The clock of the others cannot be set there."""
    monkeypatch.setenv(ENV_ALLOWLIST_VARIABLE, "NOT_SET_*")
    expected: dict[str, Json] = {}
    scripts: list[Script] = []
    for script in map(example, LINES):
        run = LocalRun(FIRST, tmp_path)
        ended = run(script)
        if run.now_ms == NOW_MS:
            expected[script.execution_id] = ended
            scripts.append(script)
    (tmp_path / "language_functions.py").write_text(EXECUTORS)
    variables = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
        "ORCHESTRATOR_TAGS": "*",
        ENV_ALLOWLIST_VARIABLE: "NOT_SET_*",
    }
    with stack(redis_url, "language_functions", tmp_path / "stack", **variables) as processes:
        processes.coordinator()
        processes.worker(*sorted({"default", *_queues(scripts)}))
        client = PatientClient(redis_url)
        for script in scripts:
            for name, payload in script.signals:
                client.signal(script.execution_id, name, payload, reply_timeout_s=None)
            client.start(script.document, script.inputs or {}, script.execution_id, group=script.group)
        store = RedisStore.from_url(redis_url)
        wait_until(lambda: all(store.load(one.execution_id).is_final for one in scripts))
        found = {
            one.execution_id: result(list(family(store.load, one.execution_id)), store.load_values)
            for one in scripts
        }

    assert len(scripts) > 15
    assert found == expected


def _queues(scripts: Sequence[Script]) -> set[str]:
    specs = [check_spec(one.document).spec for one in scripts]
    return {step.queue for spec in specs for step in spec.steps}


def _check(script: Script, folder: Path, redis_run: RedisRun) -> None:
    expected = LocalRun(FIRST, folder)(script)
    found: dict[str, Any] = {name: LocalRun(name, folder)(script) for name in OTHERS}
    found["redis"] = redis_run(script)

    assert found == dict.fromkeys(found, expected)
