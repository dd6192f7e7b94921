"""The Backend, its worker and its SQLite file: what the contract suites do not ask."""

from __future__ import annotations

import ast
import gc
import multiprocessing
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import orchestrator
from orchestrator.application.errors import (
    InvalidEvent,
    InvalidSpec,
    RecordExists,
    RecordNotFound,
    StoreError,
)
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.decisions import DispatchJob, StateChangeEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.validation import load_stored_spec
from orchestrator.backend import (
    Backend,
    InMemoryStore,
    InProcessRunner,
    Runner,
    SqliteRunner,
    SqliteStore,
    Store,
)
from orchestrator.backend.ports import Commit, Committed
from orchestrator.local import InProcessWorker
from orchestrator.local.workflow import Workflow
from worlds.documents import document_of
from worlds.records import NOW_MS, record, spec

ONE_STEP = document_of({"a": {}})


def job(fn: str = "a", **keys: Any) -> DispatchJob:
    return DispatchJob("w#e1", "a", fn, keys.pop("inputs", {}), 0, token="t", **keys)


def outcome_of(execute: Any, **keys: Any) -> tuple[Any, Any]:
    """What an InProcessWorker makes of one call: output and error."""
    runner = InProcessRunner()
    runner.dispatch("w#e1", [job(**keys)])
    InProcessWorker(runner, execute).run("w#e1")
    [result] = runner.results("w#e1")
    return result.output, result.error


# ---- the front door


def test_every_public_name_is_there_under_its_own_name() -> None:
    named = set(orchestrator.__all__) - {"__version__"}

    own_names = {name: getattr(orchestrator, name).__name__.rpartition(".")[2] for name in named}
    assert own_names == {name: name for name in named}
    assert dir(orchestrator) == sorted(orchestrator.__all__)


def test_the_public_names_are_those_that_type_checkers_see() -> None:
    tree = ast.parse(Path(orchestrator.__file__).read_text())
    blocks = (node for node in tree.body if isinstance(node, ast.If))
    imports = (node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom))

    assert {alias.name for node in imports for alias in node.names} | {"__version__"} == set(
        orchestrator.__all__
    )


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Workflows'"):
        orchestrator.Workflows  # noqa: B018


def test_importing_the_package_loads_neither_redis_nor_rq() -> None:
    code = "import orchestrator, sys; print(sorted({'redis', 'rq', 'click'} & set(sys.modules)))"

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.strip() == "[]"


# ---- create


def test_an_execution_id_is_a_time_in_utc_and_four_hex_digits() -> None:
    backend = Backend(clock=lambda: NOW_MS)

    weid = backend.create(ONE_STEP)

    assert re.fullmatch(r"[0-9a-f]{32}#20260101T000000-[0-9a-f]{4}", weid)


def test_a_taken_execution_id_is_not_used_again() -> None:
    nonces = iter(["one", "one", "one", "two"])
    backend = Backend(store=InMemoryStore(), clock=lambda: NOW_MS, nonce=lambda: next(nonces))

    first, second = backend.create(ONE_STEP), backend.create(ONE_STEP)

    assert first != second
    assert next(nonces, None) is None


def test_when_every_generated_id_is_taken_it_says_so() -> None:
    backend = Backend(clock=lambda: NOW_MS, nonce=lambda: "always the same")
    backend.create(ONE_STEP)

    with pytest.raises(RecordExists):
        backend.create(ONE_STEP)


def test_a_caller_may_choose_the_execution_id_once() -> None:
    backend = Backend()

    weid = backend.create(ONE_STEP, execution_id="order:42_a-b.c")

    assert weid.endswith("#order:42_a-b.c")
    with pytest.raises(RecordExists, match="order:42_a-b"):
        backend.create(ONE_STEP, execution_id="order:42_a-b.c")


@pytest.mark.parametrize("execution_id", ["", "a b", "a#b", "a/b", "ž", "x" * 257, "a\n"])
def test_an_execution_id_that_could_not_be_a_key_is_refused(execution_id: str) -> None:
    with pytest.raises(InvalidEvent, match="execution_id"):
        Backend().create(ONE_STEP, execution_id=execution_id)


def test_an_invalid_spec_creates_nothing() -> None:
    backend = Backend()

    with pytest.raises(InvalidSpec, match="unknown_dependency"):
        backend.create(document_of({"a": {"depends_on": ["b"]}}), execution_id="e1")

    with pytest.raises(RecordNotFound):
        backend.find("e1")


def test_declared_inputs_are_checked_and_filled_in() -> None:
    backend = Backend()
    document_ = document_of({"a": {}}, inputs={"n": {"type": "integer"}, "m": {"default": [1]}})

    weid = backend.create(document_, {"n": 1})

    assert backend.load(weid).inputs == {"n": 1, "m": [1]}
    with pytest.raises(InvalidSpec, match="must be of type integer"):
        backend.create(document_, {"n": "one"})


def test_spec_and_inputs_are_the_backends_own_after_create() -> None:
    backend = Backend()
    given_spec, given_inputs = document_of({"a": {"input": {"n": 1}}}), {"list": [1]}
    weid = backend.create(given_spec, given_inputs)

    given_spec["steps"][0]["input"]["n"] = 2
    given_inputs["list"].append(2)

    record_ = backend.load(weid)
    assert (record_.spec.steps[0].input, record_.inputs) == ({"n": 1}, {"list": [1]})
    assert record_.loaded.document == document_of({"a": {"input": {"n": 1}}})
    assert backend.load(backend.create(given_spec)).spec.steps[0].input == {"n": 2}


def test_a_key_that_is_a_number_is_not_the_same_spec_as_one_that_is_a_text() -> None:
    backend = Backend()
    backend.create({"steps": [{"id": "a", "fn": "a", "input": {"1": 1}}]})

    with pytest.raises(InvalidSpec, match="not_json"):
        backend.create({"steps": [{"id": "a", "fn": "a", "input": {1: 1}}]})


# ---- decisions


def test_a_checked_out_record_belongs_to_one_caller() -> None:
    backend = Backend()
    weid = backend.create(ONE_STEP)

    mine, theirs = backend.checkout(weid), backend.checkout(weid)
    results = backend.commit([Commit(theirs, Changes(state={"by": "them"}))])
    results += backend.commit([Commit(mine, Changes(state={"by": "me"}))])

    assert mine is not theirs
    assert results == [Committed.YES, Committed.CONFLICT]
    assert backend.load(weid).state == {"by": "them"}


def test_a_committed_record_is_kept_and_up_to_date() -> None:
    backend = Backend()
    live = backend.checkout(backend.create(ONE_STEP))

    backend.commit([Commit(live, Changes(state={"k": 1}))])

    again = backend.checkout(live.workflow_execution_id)
    assert again is live
    assert again.state == {"k": 1}


def test_a_refused_record_is_loaded_again() -> None:
    store = InMemoryStore()
    mine, theirs = Backend(store=store), Backend(store=store)
    weid = mine.create(ONE_STEP)
    theirs.commit([Commit(theirs.checkout(weid), Changes(state={"by": "them"}))])
    stale = mine.checkout(weid)
    assert stale.state == {}

    mine.commit([Commit(stale, Changes(state={"by": "me"}))])

    assert mine.checkout(weid).state == {"by": "them"}


def test_a_record_that_was_written_whole_is_what_is_checked_out() -> None:
    backend = Backend()
    weid = backend.create(ONE_STEP)
    repaired = backend.load(weid)
    repaired.state = {"repaired": True}

    backend.write(repaired)

    assert backend.checkout(weid).state == {"repaired": True}


def test_forgetting_loses_nothing() -> None:
    backend = Backend()
    weid = backend.create(ONE_STEP)
    live = backend.checkout(weid)
    backend.commit([Commit(live, Changes(state={"k": 1}))])

    backend.drop_cached_records()

    again = backend.checkout(weid)
    assert again is not live
    assert again.state == {"k": 1}


def test_many_are_checked_out_at_once_and_each_missing_one_is_an_error() -> None:
    backend = Backend()
    weid = backend.create(ONE_STEP)

    found = backend.checkout_many([weid, "unknown#1"])

    assert isinstance(found[weid], WorkflowRecord)
    assert isinstance(found["unknown#1"], RecordNotFound)


# ---- on_state_change

TWO_STEPS = document_of({"a": {}, "b": {"depends_on": ["a"]}, "c": {"depends_on": ["a"]}})


def outputs(fn: str, inputs: dict[str, Any]) -> Any:
    return {"a": {"n": [1]}, "b": {"m": 2}, "c": None}[fn]


def run_observed(callback: Callable[..., None]) -> Workflow:
    workflow = Workflow.from_dict(TWO_STEPS, Backend(outputs, on_state_change=callback))
    workflow.run()
    return workflow


def test_every_result_that_merged_something_is_reported_in_order_with_its_step() -> None:
    seen: list[Any] = []

    workflow = run_observed(lambda *report: seen.append(report))

    assert seen == [
        (workflow.id, {}, {"n": [1]}, StateChangeEvent("a")),
        (workflow.id, {"n": [1]}, {"n": [1], "m": 2}, StateChangeEvent("b")),
    ]


def test_keys_that_are_removed_from_the_state_are_reported() -> None:
    seen: list[Any] = []
    results = iter([{"ok": False, "n": 1}, {"n": 2}])
    backend = Backend(
        lambda fn, inputs: next(results), on_state_change=lambda *report: seen.append(report[1:])
    )

    Workflow.from_dict(document_of({"a": {"max_attempts": 2}}), backend).run()

    assert seen == [
        ({}, {"ok": False, "n": 1}, StateChangeEvent("a")),
        ({"ok": False, "n": 1}, {"ok": False, "n": 2}, StateChangeEvent("a")),
        ({"ok": False, "n": 2}, {"n": 2}, StateChangeEvent("a")),
    ]


def test_an_observer_may_have_three_parameters_or_an_optional_fourth() -> None:
    three: list[Any] = []
    four: list[Any] = []
    run_observed(lambda weid, before, after: three.append(after))
    run_observed(lambda weid, before, after, event=None: four.append(event.op))

    assert three == [{"n": [1]}, {"n": [1], "m": 2}]
    assert four == ["a", "b"]


def test_an_observer_is_called_after_the_commit() -> None:
    store, seen = InMemoryStore(), []
    backend = Backend(
        outputs, store=store, on_state_change=lambda weid, before, after: seen.append(store.load(weid).state)
    )

    Workflow.from_dict(TWO_STEPS, backend).run()

    assert seen == [{"n": [1]}, {"n": [1], "m": 2}]


def test_an_observer_cannot_change_the_record() -> None:
    def spoil(weid: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        after["n"].append("spoilt")
        after["new"] = before["new"] = 1

    assert run_observed(spoil).state == {"n": [1], "m": 2}


def test_an_observer_that_raises_is_a_warning_and_the_workflow_goes_on() -> None:
    def fail(weid: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        raise ValueError("no such column")

    with pytest.warns(RuntimeWarning, match="on_state_change failed: ValueError\\('no such column'\\)"):
        workflow = run_observed(fail)

    assert workflow.status is WorkflowStatus.COMPLETE


def test_where_warnings_are_errors_the_workflow_can_still_be_run_to_its_end() -> None:
    def fail(weid: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        raise ValueError("no such column")

    workflow = Workflow.from_dict(TWO_STEPS, Backend(outputs, on_state_change=fail))
    for _ in range(2):
        with pytest.raises(RuntimeWarning):
            workflow.run()

    assert workflow.run() == orchestrator.Complete({})


# ---- the worker


def test_a_mapping_of_functions_is_an_executor_too() -> None:
    assert outcome_of({"a": lambda inputs: {"n": inputs["n"] + 1}}, inputs={"n": 1}) == ({"n": 2}, None)


def test_a_name_that_no_function_has_is_a_failure_that_tells_which_there_are() -> None:
    output, error = outcome_of({"add": print, "sub": print}, fn="ad")

    assert output is None
    assert (error["kind"], error["type"]) == ("exception", "ExecutorNotFound")
    assert "'ad'" in error["message"]
    assert "add, sub" in error["message"]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("raised", "type_", "message"),
    [
        (ValueError("boom"), "ValueError", "boom"),
        (KeyError("k"), "KeyError", "'k'"),
        (SystemExit(3), "SystemExit", "3"),
        (RecursionError("deep"), "RecursionError", "deep"),
        (Unprintable(), "Unprintable", "Unprintable"),
    ],
)
def test_whatever_an_executor_raises_is_the_result_of_its_attempt(
    raised: BaseException, type_: str, message: str
) -> None:
    def execute(fn: str, inputs: dict[str, Any]) -> Any:
        raise raised

    output, error = outcome_of(execute)

    assert output is None
    assert error == {**error, "kind": "exception", "type": type_, "message": message}
    assert "in execute\n    raise raised\n" in error["traceback"]


def circular() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


@pytest.mark.parametrize(
    "output",
    [
        {"x": object()},
        {"x": {1, 2}},
        {"x": float("nan")},
        {"x": float("inf")},
        {"x": b""},
        {(1,): 1},
        circular(),
    ],
)
def test_an_output_that_is_not_json_is_a_bad_output(output: Any) -> None:
    assert outcome_of(lambda fn, inputs: output)[1]["kind"] == "bad_output"


def test_half_a_character_is_a_bad_output() -> None:
    assert outcome_of(lambda fn, inputs: {"x": "\ud800"})[1]["kind"] == "bad_output"


@pytest.mark.parametrize(
    ("text", "fits"), [("x" * 11, True), ("x" * 12, False), ("ž" * 5, True), ("ž" * 6, False)]
)
def test_an_output_has_a_limit_of_bytes(text: str, fits: bool) -> None:
    output, error = outcome_of(lambda fn, inputs: {"x": text}, max_output_bytes=len('{"x":""}') + 11)

    assert (error is None) == fits
    assert output == ({"x": text} if fits else None)
    if error is not None:
        assert error["kind"] == "bad_output"
        assert "has 20 bytes; limits.max_output_bytes allows 19" in error["message"]


def test_an_output_is_what_json_makes_of_it() -> None:
    assert outcome_of(lambda fn, inputs: {"pair": (1, 2), 3: None})[0] == {"pair": [1, 2], "3": None}


def test_an_executor_and_the_record_share_nothing() -> None:
    kept: dict[str, Any] = {}

    def execute(fn: str, inputs: dict[str, Any]) -> Any:
        if fn == "a":
            kept["output"] = {"list": [1]}
            return kept["output"]
        inputs["list"].append("changed by b")
        kept["output"]["list"].append("changed after it was returned")
        return {"seen": inputs["list"]}

    spec_ = document_of({"a": {}, "b": {"input": {"list": {"var": "steps.a.output.list"}}}})
    workflow = Workflow.from_dict(spec_, Backend(execute))
    workflow.run()

    assert workflow.backend.load(workflow.id).steps["a"].output == {"list": [1]}
    assert workflow.state == {"list": [1], "seen": [1, "changed by b"]}


def test_a_worker_runs_the_jobs_of_every_execution() -> None:
    runner = InProcessRunner()
    backend = Backend(runner=runner)
    handles = [Workflow.from_dict(ONE_STEP, backend) for _ in range(2)]
    for one in handles:
        decision = one.advance()
        assert isinstance(decision, orchestrator.Dispatch)
        backend.dispatch(one.id, decision.jobs)

    InProcessWorker(runner, lambda fn, inputs: {"n": 1}).run(handles[0].id)

    assert [backend.gather(one.id) for one in handles] == [[("a", {"n": 1})]] * 2


def test_an_interrupted_worker_gives_back_what_it_had_taken() -> None:
    interrupts = iter([KeyboardInterrupt()])

    def execute(fn: str, inputs: dict[str, Any]) -> dict[str, Any]:
        for interrupt in interrupts:
            raise interrupt
        return {"n": 1}

    workflow = Workflow.from_dict(document_of({"a": {}, "b": {}}), Backend(execute))
    with pytest.raises(KeyboardInterrupt):
        workflow.run()

    assert workflow.run() == orchestrator.Complete({})
    assert [step.run_id for step in workflow.backend.load(workflow.id).steps.values()] == [0, 0]


# ---- stores and runners of a user's own, as the seed describes them


class OwnStore:
    """load and write, and nothing else."""

    def __init__(self) -> None:
        self.records: dict[str, WorkflowRecord] = {}

    def load(self, workflow_execution_id: str) -> WorkflowRecord:
        return self._copy(self.records[workflow_execution_id])

    def write(self, record: WorkflowRecord) -> None:
        self.records[f"{record.workflow_id}#{record.execution_id}"] = self._copy(record)

    def _copy(self, record: WorkflowRecord) -> WorkflowRecord:
        memory = InMemoryStore()
        version = record.version
        memory.write(record)
        copy = memory.load(record.workflow_execution_id)
        record.version = copy.version = version
        return copy


class InheritingStore(OwnStore, Store):
    """The same, as a subclass of the port."""


class OwnRunner:
    """The five methods of the seed."""

    def __init__(self) -> None:
        self.pending: list[DispatchJob] = []
        self.done: list[tuple[str, str, Any]] = []

    def dispatch(self, workflow_execution_id: str, jobs: list[DispatchJob]) -> list[tuple[str, Any]]:
        self.pending += jobs
        return []

    def gather(self, workflow_execution_id: str) -> list[tuple[str, Any]]:
        mine = [(step_id, output) for weid, step_id, output in self.done if weid == workflow_execution_id]
        self.done = [one for one in self.done if one[0] != workflow_execution_id]
        return mine

    def list_pending_jobs(self) -> list[DispatchJob]:
        return list(self.pending)

    def take_pending_jobs(self) -> list[DispatchJob]:
        taken, self.pending = self.pending, []
        return taken

    def submit_work_result(self, workflow_execution_id: str, step_id: str, output: Any) -> None:
        self.done.append((workflow_execution_id, step_id, output))


class LocalRunner(OwnRunner):
    """Runs jobs on the spot, as dispatch() of runfox may."""

    def dispatch(self, workflow_execution_id: str, jobs: list[DispatchJob]) -> list[tuple[str, Any]]:
        return [(job.step_id, outputs(job.fn, job.inputs)) for job in jobs]


@pytest.mark.parametrize("make", [OwnStore, InheritingStore])
def test_a_store_that_loads_and_writes_is_enough(make: Callable[[], Any]) -> None:
    store = make()
    workflow = Workflow.from_dict(TWO_STEPS, Backend(outputs, store=store))

    assert workflow.run() == orchestrator.Complete({})

    assert workflow.state == {"n": [1], "m": 2}
    assert workflow.history == []
    assert Workflow.resume(workflow.id, Backend(store=store)).status is WorkflowStatus.COMPLETE
    with pytest.raises(KeyError):
        Workflow.resume("unknown#1", Backend(store=store))


def test_a_store_that_loads_and_writes_still_refuses_the_second_of_two_writers() -> None:
    store: Any = OwnStore()
    mine, theirs = Backend(store=store), Backend(store=store)
    weid = mine.create(ONE_STEP, execution_id="e1")
    first, second = mine.checkout(weid), theirs.checkout(weid)

    assert mine.commit([Commit(first, Changes(state={"k": 1}))]) == [Committed.YES]
    assert theirs.commit([Commit(second, Changes(state={"k": 2}))]) == [Committed.CONFLICT]
    assert theirs.commit([Commit(second, Changes())]) == [Committed.CONFLICT]
    with pytest.raises(RecordExists):
        mine.create(ONE_STEP, execution_id="e1")


@pytest.mark.parametrize("make", [OwnRunner, LocalRunner])
def test_a_runner_of_five_methods_is_enough(make: Callable[[], Any]) -> None:
    runner = make()
    backend = Backend(runner=runner)
    workflow = Workflow.from_dict(TWO_STEPS, backend)

    assert workflow.run(worker=InProcessWorker(runner, outputs)) == orchestrator.Complete({})

    assert workflow.state == {"n": [1], "m": 2}


def test_with_a_runner_of_pairs_an_exception_is_an_output_as_in_the_seed() -> None:
    def fail(fn: str, inputs: dict[str, Any]) -> Any:
        raise ValueError("boom")

    runner: Any = OwnRunner()
    workflow = Workflow.from_dict(ONE_STEP, Backend(runner=runner))
    workflow.run(worker=InProcessWorker(runner, fail))

    assert workflow.state == {"ok": False, "error": "boom"}


class SilentRunner(OwnRunner):
    """A runner whose methods return nothing when there is nothing to return."""

    def dispatch(self, workflow_execution_id: str, jobs: list[DispatchJob]) -> Any:
        self.pending += jobs

    def gather(self, workflow_execution_id: str) -> Any:
        return super().gather(workflow_execution_id) or None


class RecitingRunner(OwnRunner):
    """Runs jobs on the spot, and returns an exception as an output."""

    def __init__(self, execute: Callable[..., Any]) -> None:
        super().__init__()
        self.execute = execute

    def dispatch(self, workflow_execution_id: str, jobs: list[DispatchJob]) -> list[tuple[str, Any]]:
        return [(job.step_id, self._run(job)) for job in jobs]

    def _run(self, job: DispatchJob) -> Any:
        try:
            return self.execute(job.fn, job.inputs)
        except Exception as error:
            return {"ok": False, "error": str(error)}


class Busy:
    """An executor that is busy a number of times, and says so by an exception or by its output."""

    def __init__(self, times: int, raises: bool) -> None:
        self.times, self.raises, self.calls = times, raises, 0

    def __call__(self, fn: str, inputs: dict[str, Any]) -> Any:
        self.calls += 1
        if self.calls > self.times:
            return {"n": self.calls}
        if self.raises:
            raise ConnectionError("busy")
        return {"ok": False, "error": "busy"}


def run_with(kind: str, document: dict[str, Any], execute: Callable[..., Any]) -> Workflow:
    """Run a document with a runner of this kind, or by hand with `submit_work_result`."""
    if kind == "own runner of this package":
        workflow = Workflow.from_dict(document, Backend(execute))
        workflow.run()
        return workflow
    if kind == "submit_work_result":
        backend = Backend()
        workflow = Workflow.from_dict(document, backend)
        hand = RecitingRunner(execute)
        while isinstance(decision := workflow.advance(), orchestrator.Dispatch):
            for step_id, output in hand.dispatch(workflow.id, decision.jobs):
                backend.submit_work_result(workflow.id, step_id, output)
            for step_id, output in backend.gather(workflow.id):
                workflow.on_step_result(step_id, output)
        return workflow
    runners: dict[str, Any] = {
        "pairs": OwnRunner(),
        "nothing": SilentRunner(),
        "on the spot": RecitingRunner(execute),
    }
    workflow = Workflow.from_dict(document, Backend(runner=runners[kind]))
    workflow.run(worker=InProcessWorker(runners[kind], execute))
    return workflow


PAIR_RUNNERS = ["pairs", "nothing", "on the spot", "submit_work_result"]


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("kind", ["own runner of this package", *PAIR_RUNNERS])
def test_a_result_that_is_not_ok_is_retried_with_every_runner(kind: str, raises: bool) -> None:
    execute = Busy(2, raises)

    workflow = run_with(kind, document_of({"a": {"max_attempts": 3}}), execute)

    assert (workflow.status, workflow.state, execute.calls) == (WorkflowStatus.COMPLETE, {"n": 3}, 3)


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("kind", PAIR_RUNNERS)
def test_the_last_result_of_pairs_that_is_not_ok_completes_the_step(kind: str, raises: bool) -> None:
    execute = Busy(9, raises)

    workflow = run_with(kind, document_of({"a": {"max_attempts": 3}}), execute)

    assert (workflow.status, execute.calls) == (WorkflowStatus.COMPLETE, 3)
    assert workflow.state == {"ok": False, "error": "busy"}


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("kind", PAIR_RUNNERS)
def test_retry_does_not_apply_to_pairs(kind: str, raises: bool) -> None:
    execute = Busy(9, raises)

    workflow = run_with(kind, document_of({"a": {"retry": 3}}), execute)

    assert (workflow.status, workflow.state) == (WorkflowStatus.COMPLETE, {"ok": False, "error": "busy"})
    assert execute.calls == 1


def test_the_ports_can_be_named_as_in_the_seed() -> None:
    assert (Store.__name__, Runner.__name__) == ("Store", "Runner")


# ---- the methods of runfox's Backend


@pytest.fixture
def moved() -> tuple[Backend, str]:
    backend = Backend(clock=lambda: NOW_MS)
    return backend, backend.create(TWO_STEPS)


def test_the_old_spellings_do_the_same(moved: tuple[Backend, str]) -> None:
    backend, weid = moved
    backend.dispatch(weid, [DispatchJob(weid, "a", "a", {}, 0)])

    assert backend.pending_tasks() == backend.list_pending_jobs() == [DispatchJob(weid, "a", "a", {}, 0)]
    assert backend.take_tasks() == [DispatchJob(weid, "a", "a", {}, 0)]
    backend.submit_result(weid, "a", {"n": 1})
    assert backend.gather(weid) == [("a", {"n": 1})]


def test_a_step_that_was_marked_in_progress_takes_a_result(moved: tuple[Backend, str]) -> None:
    backend, weid = moved

    backend.mark_in_progress(weid, "a")

    workflow = Workflow(weid, backend)
    assert (workflow.status, workflow.step_statuses["a"]) == ("in_progress", "in_progress")
    assert workflow.on_step_result("a", {"n": 1}) is None
    assert workflow.step_statuses["a"] == "complete"


def test_a_step_that_was_marked_complete_lets_others_run(moved: tuple[Backend, str]) -> None:
    backend, weid = moved
    backend.mark_in_progress(weid, "a")
    backend.write_step_output(weid, "a", {"n": 1})

    backend.mark_complete(weid, "a")

    decision = Workflow(weid, backend).advance()
    assert isinstance(decision, orchestrator.Dispatch)
    assert [job.step_id for job in decision.jobs] == ["b", "c"]
    assert backend.load(weid).steps["a"].output == {"n": 1}


def test_a_step_that_was_marked_halted_halts_the_workflow(moved: tuple[Backend, str]) -> None:
    backend, weid = moved

    backend.mark_halted(weid, "a")
    backend.write_workflow_outcome(weid, {"why": "so"})

    assert Workflow(weid, backend).advance() == orchestrator.Halt({"why": "so"})


def test_an_outcome_makes_a_workflow_complete(moved: tuple[Backend, str]) -> None:
    backend, weid = moved

    backend.write_workflow_outcome(weid, {"n": 1})

    assert Workflow(weid, backend).advance() == orchestrator.Complete({"n": 1})


def test_a_reset_step_begins_anew_and_a_retried_one_goes_on(moved: tuple[Backend, str]) -> None:
    backend, weid = moved
    for step_id in ("a", "b"):
        backend.mark_in_progress(weid, step_id)
        backend.write_step_output(weid, step_id, {"n": 1})

    backend.reset_step(weid, "a")
    backend.reset_for_retry(weid, "b")

    steps = backend.load(weid).steps
    assert steps["a"] == StepRecord(run_id=1, round=1)
    assert steps["b"] == StepRecord(StepStatus.RETRY, run_id=1, attempt=2, output={"n": 1})


def test_merging_state_by_hand_is_reported_with_the_given_event() -> None:
    seen: list[Any] = []
    backend = Backend(on_state_change=lambda *report: seen.append(report))
    weid = backend.create(ONE_STEP)

    backend.merge_workflow_state(weid, {"k": 1}, StateChangeEvent("x"))
    backend.merge_workflow_state(weid, {})
    backend.merge_workflow_state(weid, None)

    assert backend.load(weid).state == {"k": 1}
    assert seen == [(weid, {}, {"k": 1}, StateChangeEvent("x"))]


# ---- SQLite


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE workflows (id TEXT)")
    other.close()

    with pytest.raises(StoreError, match="is a database of another program"):
        SqliteStore(path)


def test_a_store_that_is_dropped_closes_its_connections(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "w.db")
    [connection] = store._db._idle

    del store
    gc.collect()

    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        connection.execute("SELECT 1")


def test_a_file_of_a_later_release_is_refused(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "w.db").close()
    with sqlite3.connect(tmp_path / "w.db") as later:
        later.execute("PRAGMA user_version = 99")
    later.close()

    with pytest.raises(StoreError, match="has schema version 99"):
        SqliteStore(tmp_path / "w.db")


def test_a_spec_is_stored_once_and_another_with_its_hash_is_refused(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "w.db")
    store.write(record(spec(a={}), _execution_id="e1"))
    store.write(record(spec(a={}), _execution_id="e2"))
    with sqlite3.connect(tmp_path / "w.db") as db:
        assert db.execute("SELECT count(*) FROM specs").fetchone() == (1,)
        db.execute("UPDATE specs SET document = '{\"steps\":[]}'")
    db.close()

    fresh = SqliteStore(tmp_path / "w.db")

    forged = Commit(record(spec(a={}), _execution_id="e3"), Changes(), creates=True)
    assert fresh.commit([forged]) == [Committed.SPEC_COLLISION]
    with pytest.raises(StoreError, match="another document"):
        fresh.write(record(spec(a={}), _execution_id="e3"))
    with pytest.raises(StoreError, match="another document"):
        Backend(store=fresh).create(document_of({"a": {}}))


def test_a_document_from_before_a_check_existed_is_loaded(tmp_path: Path) -> None:
    wrong = {"steps": [{"op": "a", "input": {"x": {"var": "inputs.a"}}}]}
    store = SqliteStore(tmp_path / "w.db")
    store.write(record(load_stored_spec(wrong), _execution_id="e1"))
    fresh = SqliteStore(tmp_path / "w.db")

    found = fresh.load("e1")

    assert found.loaded.document == wrong
    with pytest.raises(InvalidSpec):
        Backend(store=fresh).create(wrong)


def test_a_commit_writes_the_rows_of_what_changed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "w.db")
    one = record(spec(**{f"s{n}": {} for n in range(100)}))
    store.commit([Commit(one, Changes(), creates=True)])
    assert rows(tmp_path, "steps") == 0

    store.commit([Commit(one, Changes(steps={"s7": StepRecord(StepStatus.COMPLETE)}, state={"k": 1}))])

    assert (rows(tmp_path, "steps"), rows(tmp_path, "state"), rows(tmp_path, "history")) == (1, 1, 0)


def test_a_job_that_was_taken_is_not_dispatched_again(tmp_path: Path) -> None:
    runner = SqliteRunner(tmp_path / "w.db")
    runner.dispatch("w#e1", [job()])
    runner.take_pending_jobs()

    runner.dispatch("w#e1", [job()])

    assert runner.take_pending_jobs() == []


def test_gathered_tasks_leave_nothing_behind(tmp_path: Path) -> None:
    runner = SqliteRunner(tmp_path / "w.db")
    runner.dispatch("w#e1", [job()])
    InProcessWorker(runner, lambda fn, inputs: {"n": 1}).run()

    assert runner.gather("w#e1") == [("a", {"n": 1})]

    assert rows(tmp_path, "tasks") == 0


def test_a_worker_may_use_sql(tmp_path: Path) -> None:
    runner = SqliteRunner(tmp_path / "w.db")
    runner.dispatch("w#e1", [job(fn="upper", inputs={"text": "x"})])
    runner.dispatch("w#e1", [DispatchJob("w#e1", "b", "fails", {}, 4, token="t4")])

    with sqlite3.connect(tmp_path / "w.db") as db:
        pending = "SELECT task_key, op, inputs FROM tasks WHERE status = 'PENDING' ORDER BY rowid"
        assert db.execute(pending).fetchall() == [
            ("w#e1#a#0", "upper", '{"text":"x"}'),
            ("w#e1#b#4", "fails", "{}"),
        ]
        db.execute("UPDATE tasks SET status = 'STARTED'")
        done = "UPDATE tasks SET status = ?, output = ? WHERE task_key = ?"
        db.execute(done, ["COMPLETE", '{"text": "X"}', "w#e1#a#0"])
        db.execute(done, ["ERROR", '{"error": "boom", "ok": false}', "w#e1#b#4"])
    db.close()

    first, second = runner.results("w#e1")
    assert (first.output, first.error, first.token) == ({"text": "X"}, None, "t")
    assert (second.error, second.run_id) == ({"kind": "exception", "message": "boom"}, 4)


def test_a_result_without_a_job_answers_the_newest_that_was_taken(tmp_path: Path) -> None:
    runner = SqliteRunner(tmp_path / "w.db")
    runner.dispatch(
        "w#e1", [DispatchJob("w#e1", "a", "a", {}, run_id, token=f"t{run_id}") for run_id in (0, 1)]
    )
    runner.take_pending_jobs()

    runner.submit_work_result("w#e1", "a", {"n": 1})

    assert [(one.run_id, one.token) for one in runner.results("w#e1")] == [(1, "t1")]


def test_among_processes_every_job_is_taken_exactly_once(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    runner = SqliteRunner(path)
    jobs = [DispatchJob("w#e1", f"s{n}", "f", {}, 0, token=str(n)) for n in range(100)]
    runner.dispatch("w#e1", jobs[:50])
    context = multiprocessing.get_context("spawn")
    taken: Any = context.Queue()

    processes = [context.Process(target=take_all, args=(str(path), taken)) for _ in range(3)]
    for process in processes:
        process.start()
    for one in jobs[50:]:
        runner.dispatch("w#e1", [one])
    names = [taken.get(timeout=180) for _ in jobs]
    runner.dispatch("w#e1", [DispatchJob("w#e1", f"stop{n}", "stop", {}, 0) for n in range(3)])
    for process in processes:
        process.join(180)

    assert sorted(names) == sorted(one.step_id for one in jobs)
    assert [process.exitcode for process in processes] == [0, 0, 0]


def take_all(path: str, taken: Any) -> None:
    """A worker process: runs until it finds a job that says stop, and leaves other such jobs to others."""
    runner = SqliteRunner(path)
    while True:
        stops = []
        for one in runner.take_pending_jobs():
            if one.fn == "stop":
                stops.append(one)
            else:
                taken.put(one.step_id)
        if stops:
            runner.return_jobs(stops[1:])
            return


def test_a_forked_child_has_connections_of_its_own(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "w.db")
    one = record()
    store.write(one)

    child = multiprocessing.get_context("fork").Process(
        target=write_state, args=(store, one.workflow_execution_id)
    )
    child.start()
    child.join(180)

    assert child.exitcode == 0
    assert store.load(one.workflow_execution_id).state == {"by": "the child"}


def write_state(store: SqliteStore, workflow_execution_id: str) -> None:
    inherited = list(store._db._idle)
    mine = store.load(workflow_execution_id)
    assert inherited
    assert not set(map(id, inherited)) & set(map(id, store._db._idle))
    assert store.commit([Commit(mine, Changes(state={"by": "the child"}))]) == [Committed.YES]


def rows(folder: Path, table: str) -> int:
    with sqlite3.connect(folder / "w.db") as db:
        found: int = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    db.close()
    return found
