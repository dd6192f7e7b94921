"""A process that dies at any of its commits: another one goes on with what the file holds.

Whatever it was that the first one had done, no child is started twice, none is lost, and all of it ends as it
would have without a crash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from orchestrator import Backend, Workflow
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.backend import SqliteStore
from orchestrator.backend.ports import Commit, Committed
from worlds.documents import Json, document, step
from worlds.records import NOW_MS, essence

MOST_COMMITS = 200
OF_A_LOSS = ("run_id", "lost", "dispatches", "reason")
"""What differs when the job of a dead process is sent again."""


class Died(BaseException):
    """The process is gone."""


class MortalStore(SqliteStore):
    """Dies at its n-th commit, before or after it is written."""

    def __init__(self, path: Path, at: int, *, is_written: bool) -> None:
        super().__init__(path)
        self._left, self._is_written = at, is_written

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        self._left -= 1
        if self._left == 0 and not self._is_written:
            raise Died
        results = super().commit(commits)
        if self._left == 0:
            raise Died
        return results


class Machine:
    """A file, a clock, and how often each executor was called, whichever process it was."""

    def __init__(self, path: Path, execute: Callable[[str, Json], Any]) -> None:
        self.path, self._execute = path, execute
        self.calls: Counter[str] = Counter()
        self._clock = count(NOW_MS)

    def process(self, store: SqliteStore | None = None) -> Backend:
        store = store if store is not None else SqliteStore(self.path)
        # One thread: with more, the order of the commits would be another one on each machine.
        return Backend(self._run, store=store, poll_interval=0.001, clock=self._clock.__next__, threads=1)

    def _run(self, fn: str, inputs: Json) -> Any:
        self.calls[fn] += 1
        return self._execute(fn, inputs)


def crashes(folder: Path, spec: Json, execute: Callable[[str, Json], Any]) -> Iterator[tuple[str, Machine]]:
    """The file after a process died at each of its commits in turn, and another ran the workflow to its end;
    first without any crash."""
    for n in range(MOST_COMMITS):
        for is_written in (False, True):
            machine = Machine(folder / f"{n}-{is_written}.db", execute)
            machine.process().create(spec, {"n": 1}, "p")
            first = machine.process(MortalStore(machine.path, n, is_written=is_written))
            try:
                Workflow.resume("p", first).run()
            except Died:
                Workflow.resume("p", machine.process()).run()
            else:
                if n:
                    return
            yield f"died at commit {n}, {'after' if is_written else 'before'} it was written", machine
    raise AssertionError("no run was without a crash")


def executions(machine: Machine, *names: str) -> dict[str, WorkflowRecord]:
    """All that is in the file, which must be these and no others; and nothing is left to be said."""
    backend = machine.process()
    with SqliteStore(machine.path)._db.read_transaction() as db:
        found = {name for (name,) in db.execute("SELECT execution_id FROM workflows")}
        places = db.execute("SELECT * FROM places").fetchall()
    assert found == set(names)
    assert (backend.shared_state.outgoing_events(), places) == ([], [])
    return {name: backend.load(name) for name in names}


def ended(records: dict[str, WorkflowRecord]) -> Json:
    return {name: essence(record, without=OF_A_LOSS) for name, record in records.items()}


def test_parent_and_children_end_alike_at_whichever_commit_their_process_died(tmp_path: Path) -> None:
    leaf = document(
        step("z", concurrency={"key": "k", "limit": 1}, input={"n": {"var": "input.n"}}),
        outputs={"n": {"var": "steps.z.output.n"}},
    )
    middle = document(
        step("x", input={"n": {"var": "input.n"}}),
        {"id": "y", "workflow": leaf, "depends_on": ["x"], "input": {"n": {"var": "steps.x.output.n"}}},
        outputs={"n": {"var": "steps.y.output.n"}},
    )
    spec = document(
        {"id": "c", "workflow": middle, "input": {"n": {"var": "input.n"}}},
        {"id": "d", "workflow": leaf, "input": {"n": 10}},
        step(
            "a", after="c d", input={"n": {"+": [{"var": "steps.c.output.n"}, {"var": "steps.d.output.n"}]}}
        ),
        outputs={"n": {"var": "steps.a.output.n"}},
    )

    ends = {}
    for what, machine in crashes(tmp_path, spec, lambda fn, inputs: {"n": inputs["n"] + 1}):
        records = executions(machine, "p", "p:c:0", "p:c:0:y:0", "p:d:0")
        ends[what] = ended(records)
        assert records["p"].outcome == {"n": 15}, what
        assert set(machine.calls) == {"x", "z", "a"}, what

    expected = next(iter(ends.values()))
    assert len(ends) > 20
    for what, end in ends.items():
        assert end == expected, what


def test_everything_is_undone_at_whichever_commit_the_process_died(tmp_path: Path) -> None:
    def execute(fn: str, inputs: Json) -> Any:
        if fn == "fails":
            raise ValueError("boom")
        return {}

    child = document(
        step("pay", compensate={"fn": "refund"}),
        {"id": "w", "wait": {"signal": "go"}, "depends_on": ["pay"]},
    )
    spec = document(
        {"id": "c", "workflow": child},
        step("book", compensate={"fn": "unbook"}),
        {"id": "d", "delay": "20ms", "depends_on": ["book"]},
        step("fails", after="d"),
    )

    for what, machine in crashes(tmp_path, spec, execute):
        records = executions(machine, "p", "p:c:0")
        assert (records["p"].status, records["p"].compensated) == ("failed", True), what
        assert (records["p:c:0"].status, records["p:c:0"].compensated) == ("cancelled", True), what
        assert min(machine.calls[fn] for fn in ("refund", "unbook")) >= 1, what
        assert max(machine.calls.values()) <= 2, what
