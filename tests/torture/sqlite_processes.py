"""The processes of a torture run on a SQLite file. Each of them may be killed at any moment.

client   creates the planned executions, and sends the signals and cancellations that they need
driver   runs the executions, and jobs in between; every third execution is run by all drivers. The first
         driver runs jobs in threads, as Workflow.run() does with an executor, the others one by one
worker   runs jobs
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import sqlite3
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator import Backend, Workflow
from orchestrator.application.errors import InvalidEvent, RecordNotFound
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent, make_failure
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES, StepStatus
from orchestrator.backend import SqliteRunner, SqliteStore
from torture import functions
from torture.kinds import KINDS, Kind

Json = dict[str, Any]
LEASE_S = 3.0
POLL_S = 0.05
FINAL = {status.value for status in FINAL_WORKFLOW_STATUSES}


@dataclass(frozen=True, slots=True)
class Site:
    """The files of a torture run."""

    folder: Path

    @property
    def database(self) -> Path:
        return self.folder / "torture.db"

    @property
    def plan(self) -> Path:
        return self.folder / "plan"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"


@dataclass(frozen=True, slots=True)
class Planned:
    """An execution that must be started and come to its expected end."""

    execution_id: str
    kind: Kind
    inputs: Json

    def as_line(self) -> str:
        return json.dumps([self.execution_id, self.kind.name, self.inputs]) + "\n"


def read_plan(site: Site) -> list[Planned]:
    lines = site.plan.read_text().splitlines(keepends=True) if site.plan.exists() else []
    whole = [json.loads(line) for line in lines if line.endswith("\n")]
    return [Planned(execution_id, KINDS[kind], inputs) for execution_id, kind, inputs in whole]


def read_open(site: Site) -> dict[str, bool]:
    """The executions that a client started, and whether they or their descendants are open."""
    with closing(sqlite3.connect(site.database, timeout=60)) as db:
        rows = db.execute("SELECT execution_id, status FROM workflows").fetchall()
    found: dict[str, bool] = {}
    for execution_id, status in rows:
        root = execution_id.partition(":")[0]
        found[root] = found.get(root, False) or status not in FINAL
    return found


def open_backend(store: SqliteStore, runner: SqliteRunner, executor: str | None = None) -> Backend:
    return Backend(executor, store=store, runner=runner, poll_interval=POLL_S)


def be_member(role: str, index: int, count: int, site: Site, log: Path) -> None:
    """Run as a member of the fleet, until it is killed or its parent is gone. An error ends it."""
    with log.open("ab", buffering=0) as target:
        os.dup2(target.fileno(), sys.stderr.fileno())
    os.environ[functions.LEDGER_VARIABLE] = str(site.ledger)
    try:
        {"client": be_client, "driver": be_driver, "worker": be_worker}[role](site, index, count)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def rounds() -> Iterator[None]:
    """Yield until the parent of this process is gone."""
    parent = os.getppid()
    while os.getppid() == parent:
        yield
        time.sleep(POLL_S)
    os._exit(0)


def be_client(site: Site, index: int, count: int) -> None:
    backend = open_backend(SqliteStore(site.database), SqliteRunner(site.database, LEASE_S))
    rng = random.Random()
    for _ in rounds():
        known = read_open(site)
        for one in read_plan(site):
            if one.execution_id not in known:
                backend.create(
                    one.kind.document,
                    one.inputs,
                    one.execution_id,
                    conflict_policy="use_existing",
                    group=one.kind.group,
                )
            elif one.kind.prompt and known[one.execution_id] and rng.random() < 0.1:
                _prompt(Workflow.resume(one.execution_id, backend), one.kind.prompt)


def _prompt(workflow: Workflow, prompt: str) -> None:
    with suppress(InvalidEvent):  # it has ended meanwhile
        if prompt == "cancel":
            workflow.cancel()
        elif workflow.step_statuses["approval"] is StepStatus.WAITING:
            workflow.signal(prompt, {"bonus": 7})


def be_driver(site: Site, index: int, count: int) -> None:
    store, runner = SqliteStore(site.database), SqliteRunner(site.database, LEASE_S)
    executor = functions.__name__ if index == 0 else None
    driven: dict[str, threading.Thread] = {}
    for _ in rounds():
        known = read_open(site)
        for n, one in enumerate(read_plan(site)):
            is_mine = n % count == index or n % 3 == 0
            thread = driven.get(one.execution_id)
            if is_mine and known.get(one.execution_id) and (thread is None or not thread.is_alive()):
                backend = open_backend(store, runner, executor)
                thread = threading.Thread(target=_drive, args=[one.execution_id, backend], daemon=True)
                driven[one.execution_id] = thread
                thread.start()


def _drive(execution_id: str, backend: Backend) -> None:
    assert isinstance(backend.runner, SqliteRunner)
    worker = LeasedWorker(backend.runner) if backend.executor is None else None
    try:
        with suppress(RecordNotFound):
            Workflow.resume(execution_id, backend).run(worker)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def be_worker(site: Site, index: int, count: int) -> None:
    worker = LeasedWorker(SqliteRunner(site.database, LEASE_S))
    for _ in rounds():
        worker.run()


class LeasedWorker:
    """Runs jobs one by one, as a program of a user would: by the methods of the runner alone."""

    def __init__(self, runner: SqliteRunner) -> None:
        self._runner = runner

    def run(self, workflow_execution_id: str | None = None) -> None:
        for job in self._runner.take_jobs(1):
            is_over = threading.Event()
            renewal = threading.Thread(target=self._renew, args=[job, is_over], daemon=True)
            renewal.start()
            try:
                self._runner.submit(_call(job))
            finally:
                is_over.set()

    def _renew(self, job: DispatchJob, is_over: threading.Event) -> None:
        while not is_over.wait(LEASE_S / 4):
            self._runner.renew_leases([job])


def _call(job: DispatchJob) -> ResultEvent:
    context = {"idempotency_key": job.idempotency_key, "run_id": job.run_id, "attempt": job.attempt}
    output, error = None, None
    try:
        output = getattr(functions, job.fn)(job.inputs, context)
        if inspect.isawaitable(output):
            output = asyncio.run(_wait_for(output, job.timeout_s))
    except TimeoutError:
        output, error = None, make_failure("timeout", f"execution timeout exceeded ({job.timeout_s:g} s)")
    except Exception as raised:
        error = make_failure("exception", str(raised), type(raised).__name__)
    return ResultEvent(
        job.workflow_execution_id, job.step_id, output, error, job.run_id, job.attempt, job.token
    )


async def _wait_for(awaitable: Any, timeout_s: float | None) -> Any:
    return await asyncio.wait_for(awaitable, timeout_s)
