"""From a web server to a row in a database: the row is there once, whoever is killed on the way."""

from __future__ import annotations

import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from effort import sample
from orchestrator.application.records.decisions import Complete
from orchestrator.application.spec.validation import load_spec
from orchestrator.client import Client
from processes import ROOT, PatientClient, Stack, stack, wait_until
from servers.redis_server import own_redis
from servers.web import Asked, Reply, Site, site

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "docs" / "examples"
SPEC = load_spec((EXAMPLES / "process-invoice.yaml").read_text(encoding="utf-8"))
SCAN = b"Invoice 1001\nVendor: Acme Ltd\nAmount: 1299.50\n"
SMUDGED = b"Inv???? 1002\nVendor: ?c?? ??d\nAmount: 7?.??\n"
LARGE = SCAN + 900_000 * b"."
STEPS = ("download", "keep", "read", "extract", "insert")
FOUND = {"row_id": 1, "vendor": "Acme Ltd", "amount": "1299.50", "confidence": 1.0}
PATIENCE_S = 180.0


@dataclass
class Archive:
    """A web server with scans; it answers when it may."""

    may_answer: threading.Event = field(default_factory=threading.Event)

    def __call__(self, asked: Asked) -> Reply:
        assert self.may_answer.wait(PATIENCE_S)
        scans = {"/1001.scan": SCAN, "/1002.scan": SMUDGED, "/1003.scan": LARGE}
        return Reply(200, scans[asked.path], {"Content-Type": "application/octet-stream"})


@dataclass
class Office:
    """Workers, the archive that they fetch scans from, and the database that they write into."""

    processes: Stack
    client: Client
    archive: Archive
    web: Site
    folder: Path

    def worker(self, *options: str) -> subprocess.Popen[bytes]:
        return self.processes.worker("default", *options)

    def start(self, number: str, **options: Any) -> str:
        inputs = {"url": f"{self.web.url}/{number}.scan", "number": number}
        return self.client.start(SPEC, inputs, **options).execution_id

    def result(self, execution: str) -> object:
        return self.client.wait(execution, PATIENCE_S)

    def statuses(self, execution: str) -> dict[str, str]:
        return {name: step.status.value for name, step in self.client.record(execution).steps.items()}

    def rows(self) -> list[tuple[str, str, str]]:
        with closing(sqlite3.connect(self.folder / "invoices.db")) as database:
            if not database.execute("SELECT * FROM sqlite_master WHERE name = 'invoices'").fetchall():
                return []
            return database.execute("SELECT key, vendor, amount FROM invoices").fetchall()

    def kept(self) -> dict[str, bytes]:
        files = (self.folder / "files").rglob("*.scan")
        return {path.name: path.read_bytes() for path in files}

    def runs(self) -> dict[str, int]:
        """How often each step was run: by the lines it left, and by what the archive was asked."""
        noted = (self.folder / "runs").read_text().split()
        return dict(Counter([*noted, *("download" for _ in self.web.asked)]))

    def accepted(self, execution: str) -> dict[str, int]:
        """How often each step was completed, by the history."""
        history = self.client.history(execution)
        return dict(Counter(one["step"] for one in history if one.get("to") == "complete"))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Redis with a coordinator, for all: one that has just begun does not judge workers yet."""
    folder = tmp_path_factory.mktemp("coordinator")
    with own_redis(folder) as server, stack(server.url, "", folder / "logs") as processes:
        processes.coordinator()
        yield server.url


@contextmanager
def office(url: str, folder: Path, executors: str, **environment: str) -> Iterator[Office]:
    (folder / "files").mkdir()
    archive = Archive()
    with site(archive) as web:
        made = {
            "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{EXAMPLES}",
            "ORCHESTRATOR_HTTP_HOSTS": f"127.0.0.1:{web.port}",
            "ORCHESTRATOR_FILE_ROOT": str(folder / "files"),
            "ORCHESTRATOR_LEASE_S": "2",
            "INVOICES_DB": str(folder / "invoices.db"),
            "WATCHED_IN": str(folder),
        }
        with stack(url, executors, folder / "logs", **made, **environment) as processes:
            yield Office(processes, PatientClient(url), archive, web, folder)
            archive.may_answer.set()


def row_key(execution: str) -> str:
    return f"{execution}#insert#0"


# ---- nobody is killed


def test_an_invoice_becomes_a_row(url: str, tmp_path: Path) -> None:
    with office(url, tmp_path, "process_invoice") as at:
        at.archive.may_answer.set()
        at.worker()

        execution = at.start("1001")

        assert at.result(execution) == Complete(FOUND), at.processes.log()
        assert at.statuses(execution) == dict.fromkeys(STEPS, "complete")
        assert at.rows() == [(row_key(execution), "Acme Ltd", "1299.50")]
        assert at.kept() == {"1001.scan": SCAN}
        assert [asked.path for asked in at.web.asked] == ["/1001.scan"]


def test_a_scan_that_can_hardly_be_read_becomes_no_row(url: str, tmp_path: Path) -> None:
    with office(url, tmp_path, "watched_invoices") as at:
        at.archive.may_answer.set()
        at.worker()

        execution = at.start("1002")

        nothing = {"row_id": None, "vendor": None, "amount": None}
        assert at.result(execution) == Complete({**nothing, "confidence": 0.727}), at.processes.log()
        done = dict.fromkeys(("download", "keep", "read"), "complete")
        assert at.statuses(execution) == {**done, "extract": "filtered", "insert": "filtered"}
        assert at.runs() == {"download": 1, "keep": 1, "read": 1}
        assert at.rows() == []


def test_a_scan_that_is_too_large_for_a_record_becomes_a_row_like_any_other(url: str, tmp_path: Path) -> None:
    with office(url, tmp_path, "process_invoice") as at:
        at.archive.may_answer.set()
        at.worker()

        execution = at.start("1003")

        assert at.result(execution) == Complete(FOUND), at.processes.log()
        downloaded = at.client.record(execution).steps["download"].output
        assert downloaded is not None
        assert "$payload" in downloaded["base64"], "it went by reference"
        assert at.kept() == {"1003.scan": LARGE}


def test_the_same_invoice_twice_is_two_executions_and_two_rows(url: str, tmp_path: Path) -> None:
    """The key is that of a step of an execution: who wants one row for each number asks for it by a root."""
    with office(url, tmp_path, "process_invoice") as at:
        at.archive.may_answer.set()
        at.worker()

        first, second, again = (
            at.start("1001", idempotency_root=root) for root in ("first", "second", "first")
        )
        for one in (first, second):
            assert isinstance(at.result(one), Complete), at.processes.log()

        assert again == first
        assert sorted(at.rows()) == sorted((row_key(one), "Acme Ltd", "1299.50") for one in (first, second))


# ---- somebody is killed

MOMENTS = {
    "the archive is asked": "download",
    "the file is written, and not in its place": "keep",
    "the scan is read": "read",
    "the fields are found": "extract",
    "the row is not there yet": "before-insert",
    "the row is there, and nobody has heard of it": "after-insert",
}


def kill_the_work_horse(at: Office, worker: subprocess.Popen[bytes]) -> None:
    """Its worker lives, and says at once that the job has failed."""
    assert at.processes.kill_horse(worker)


def kill_both(at: Office, worker: subprocess.Popen[bytes]) -> None:
    """Nobody is left who could say anything: the lease runs out. Another worker is there."""
    horse = at.processes.horse_of(worker)
    at.processes.kill(worker)
    assert horse is not None
    assert at.processes.kill_pid(horse)
    at.worker()


Kill = Callable[[Office, subprocess.Popen[bytes]], None]
KILLS: dict[str, tuple[tuple[str, ...], Kill]] = {
    "the work-horse is killed": ((), kill_the_work_horse),
    "worker and work-horse are killed": ((), kill_both),
    "the process of several steps is killed": (("--concurrency", "4"), kill_the_work_horse),
    "that process and its worker are killed": (("--concurrency", "4"), kill_both),
}


CASES = [(moment, who) for moment in MOMENTS for who in KILLS]


@pytest.mark.parametrize(("moment", "who"), sample(CASES, 8))
def test_the_row_is_there_once_when_somebody_is_killed(
    moment: str, who: str, url: str, tmp_path: Path
) -> None:
    options, kill = KILLS[who]
    step = MOMENTS[moment]
    with office(url, tmp_path, "watched_invoices", CAUGHT_AT=step) as at:
        worker = at.worker(*options)
        if step != "download":
            at.archive.may_answer.set()
        execution = at.start("1001")
        is_caught = (tmp_path / "caught").exists if step != "download" else lambda: at.web.asked
        wait_until(is_caught, what=f"{moment}\n{at.processes.log()}")
        was_there = bool(at.rows())

        kill(at, worker)
        (tmp_path / "go").touch()
        at.archive.may_answer.set()

        assert at.result(execution) == Complete(FOUND), at.processes.log()
        assert was_there is (step == "after-insert")
        assert at.rows() == [(row_key(execution), "Acme Ltd", "1299.50")]
        assert at.kept() == {"1001.scan": SCAN}
        killed = step.rpartition("-")[2]
        assert at.runs() == {name: 2 if name == killed else 1 for name in STEPS}
        assert at.accepted(execution) == dict.fromkeys(STEPS, 1)
