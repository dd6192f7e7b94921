"""Large values in one process, in memory and in a SQLite file: the same as on Redis."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Backend, Workflow
from orchestrator.application.errors import InvalidSpec, PayloadMissing
from orchestrator.application.records.decisions import Complete, Failed, Halt
from orchestrator.application.values.payload_refs import is_payload_reference
from orchestrator.backend import InMemoryStore, InProcessRunner, SqliteRunner, SqliteStore
from orchestrator.backend.payloads import MemoryPayloads
from orchestrator.local import InProcessWorker
from orchestrator.testing import WorkflowTest

Json = dict[str, Any]
Make = Callable[..., Backend]

LIMITS = {"max_output_bytes": 2_000}
ROWS = [{"id": n, "name": f"row {n}"} for n in range(1_000)]


def rows(inputs: Json) -> Json:
    return {"rows": ROWS, "count": len(ROWS)}


def count(inputs: Json) -> Json:
    return {
        "counted": len(inputs["rows"]),
        "first": inputs["rows"][0],
        "is_list": isinstance(inputs["rows"], list),
    }


def echo(inputs: Json) -> Json:
    return inputs


EXECUTORS = {"rows": rows, "count": count, "echo": echo}


@pytest.fixture(params=["memory", "sqlite", "sqlite store alone"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    opened: list[SqliteStore | SqliteRunner] = []

    def made(executors: Any = EXECUTORS) -> Backend:
        if request.param == "memory":
            return Backend(executors, store=InMemoryStore(), runner=InProcessRunner())
        store = SqliteStore(tmp_path / "o.db")
        opened.append(store)
        if request.param == "sqlite store alone":
            return Backend(executors, store=store)
        runner = SqliteRunner(tmp_path / "o.db")
        opened.append(runner)
        return Backend(executors, store=store, runner=runner)

    yield made
    for one in opened:
        one.close()


def document(*steps: Json, **keys: Any) -> Json:
    return {"limits": LIMITS, "steps": list(steps), **keys}


A = {"id": "a", "fn": "rows"}


def test_a_large_value_goes_from_step_to_step(make: Make) -> None:
    spec = document(
        A,
        {"id": "b", "fn": "count", "input": {"rows": {"var": "steps.a.output.rows"}}},
        outputs={"b": {"var": "steps.b.output"}, "count": {"var": "steps.a.output.count"}},
    )
    workflow = Workflow.from_dict(spec, backend := make())

    end = workflow.run()

    counted = {"counted": 1_000, "first": ROWS[0], "is_list": True}
    assert end == Complete({"b": counted, "count": 1_000})
    output = backend.load(workflow.id).steps["a"].output
    assert is_payload_reference(output["rows"])
    assert output["count"] == 1_000
    assert is_payload_reference(workflow.state["rows"])


def test_the_outcome_is_given_whole_and_kept_by_reference(make: Make) -> None:
    workflow = Workflow.from_dict(document(A, outputs={"all": {"var": "steps.a.output"}}), backend := make())

    assert workflow.run() == Complete({"all": {"rows": ROWS, "count": 1_000}})
    assert workflow.outcome == {"all": {"rows": ROWS, "count": 1_000}}
    assert is_payload_reference(backend.load(workflow.id).outcome["all"]["rows"])


def test_the_result_of_a_halt_is_given_whole(make: Make) -> None:
    branch = [{"condition": True, "action": "halt", "result_expr": {"var": "output.rows"}}]

    assert Workflow.from_dict(document({**A, "branch": branch}), make()).run() == Halt(ROWS)


def test_an_executor_that_passes_a_value_on_leads_to_the_same_reference(make: Make) -> None:
    spec = document(A, {"id": "b", "fn": "echo", "input": {"again": {"var": "steps.a.output.rows"}}})
    workflow = Workflow.from_dict(spec, backend := make())

    workflow.run()

    steps = backend.load(workflow.id).steps
    assert steps["b"].output["again"] == steps["a"].output["rows"]


def test_items_of_a_map_have_and_leave_large_values(make: Make) -> None:
    spec = document(
        A,
        {
            "id": "m",
            "fn": "echo",
            "map": {"over": [1, 2]},
            "input": {"rows": {"var": "steps.a.output.rows"}, "n": {"var": "item"}},
        },
        {"id": "b", "fn": "count", "input": {"rows": {"var": "steps.m.output.items.1.rows"}}},
        outputs={"counted": {"var": "steps.b.output.counted"}},
    )

    assert Workflow.from_dict(spec, make()).run() == Complete({"counted": 1_000})


def test_large_inputs_of_a_start_are_kept_by_reference(make: Make) -> None:
    text = "x" * 2_000_000
    spec = {
        "inputs": {"text": {"type": "string"}, "n": {"type": "integer"}},
        "steps": [{"id": "a", "fn": "length", "input": {"text": {"var": "input.text"}}}],
        "outputs": {"length": {"var": "steps.a.output.length"}, "n": {"var": "input.n"}},
    }
    backend = make({"length": lambda inputs: {"length": len(inputs["text"])}})
    workflow = Workflow.from_dict(spec, backend, {"text": text, "n": 1})

    assert workflow.run() == Complete({"length": 2_000_000, "n": 1})
    assert is_payload_reference(backend.load(workflow.id).inputs["text"])
    with pytest.raises(InvalidSpec, match=r"inputs.text: must be of type string, not a list"):
        Workflow.from_dict(spec, backend, {"text": [text]})
    with pytest.raises(InvalidSpec, match=r"inputs: the object of inputs has .* a start allows 1,048,576"):
        Workflow.from_dict(spec, backend, {str(n): "x" * 50 for n in range(30_000)})


def test_a_value_that_is_gone_fails_the_step_and_is_not_tried_again() -> None:
    class Forgetful(MemoryPayloads):
        def get(self, payload_id: str) -> bytes | None:
            return None

    spec = document(
        A, {"id": "b", "fn": "count", "retry": 3, "input": {"rows": {"var": "steps.a.output.rows"}}}
    )
    workflow = Workflow.from_dict(spec, backend := Backend(EXECUTORS, payloads=Forgetful()))

    end = workflow.run()

    assert isinstance(end, Failed)
    assert end.error["kind"] == "payload_missing"
    assert end.error["message"].startswith("inputs.rows is kept by reference (27,781 bytes), and its payload")
    assert backend.load(workflow.id).steps["b"].attempt == 1


def test_an_outcome_that_is_gone_says_so_and_the_record_still_has_its_reference() -> None:
    spec = document(A, outputs={"rows": {"var": "steps.a.output.rows"}})
    backend = Backend(EXECUTORS)
    workflow = Workflow.from_dict(spec, backend)
    workflow.run()
    backend.payloads = MemoryPayloads()

    with pytest.raises(PayloadMissing, match=r"^outcome.rows is kept by reference"):
        _ = workflow.outcome
    assert is_payload_reference(backend.load(workflow.id).outcome["rows"])


def test_too_many_values_at_once_fail_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_PAYLOAD_MAX_BYTES", "30000")
    many = [{"var": "steps.a.output.rows"}] * 5
    spec = document(A, {"id": "b", "fn": "echo", "input": {"many": many}})

    end = Workflow.from_dict(spec, Backend(EXECUTORS)).run()

    assert isinstance(end, Failed)
    assert (end.error["kind"], end.error["step"]) == ("expression", "b")
    assert "the values under inputs that are kept by reference have more than 120,000" in end.error["message"]


def test_one_value_that_is_too_large_fails_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_PAYLOAD_MAX_BYTES", "20000")

    end = Workflow.from_dict(document(A), Backend(EXECUTORS)).run()

    assert isinstance(end, Failed)
    assert end.error["kind"] == "bad_output"
    assert end.error["message"] == (
        "'rows' of the output of step 'a' has 27,781 bytes; a value that is passed by reference may have"
        " 20,000 (ORCHESTRATOR_PAYLOAD_MAX_BYTES)"
    )


def test_a_compensation_has_large_values_too() -> None:
    undone: list[int] = []
    spec = document(
        {**A, "compensate": {"fn": "undo", "input": {"rows": {"var": "output.rows"}}}},
        {"id": "b", "fn": "fail", "depends_on": ["a"]},
    )

    def undo(inputs: Json) -> Json:
        undone.append(len(inputs["rows"]))
        return {}

    def fail(inputs: Json) -> Json:
        raise ValueError("as asked")

    Workflow.from_dict(spec, Backend({**EXECUTORS, "undo": undo, "fail": fail})).run()

    assert undone == [1_000]


def test_a_child_has_and_gives_large_values(make: Make) -> None:
    child = document(
        {"id": "c", "fn": "count", "input": {"rows": {"var": "input.rows"}}},
        outputs={"counted": {"var": "steps.c.output.counted"}, "rows": {"var": "input.rows"}},
    )
    spec = document(
        A,
        {"id": "b", "workflow": child, "input": {"rows": {"var": "steps.a.output.rows"}}},
        {"id": "d", "fn": "count", "input": {"rows": {"var": "steps.b.output.rows"}}},
        outputs={"child": {"var": "steps.b.output.counted"}, "after": {"var": "steps.d.output.counted"}},
    )

    assert Workflow.from_dict(spec, make()).run() == Complete({"child": 1_000, "after": 1_000})


def test_a_worker_of_another_process_finds_the_payloads_in_the_file(tmp_path: Path) -> None:
    spec = document(
        A,
        {"id": "b", "fn": "count", "input": {"rows": {"var": "steps.a.output.rows"}}},
        outputs={"counted": {"var": "steps.b.output.counted"}, "rows": {"var": "steps.a.output.rows"}},
    )
    path = tmp_path / "o.db"
    store, runner, another = SqliteStore(path), SqliteRunner(path), SqliteRunner(path)
    workflow = Workflow.from_dict(spec, Backend(store=store, runner=runner, poll_interval=0.002))

    end = workflow.run(InProcessWorker(another, EXECUTORS))

    assert end == Complete({"counted": 1_000, "rows": ROWS})
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM payloads").fetchone() == (1,)
    db.close()
    for one in (store, runner, another):
        one.close()


def test_a_worker_that_was_made_before_its_backend_shares_its_payloads() -> None:
    runner = InProcessRunner()
    worker = InProcessWorker(runner, EXECUTORS)
    spec = document(A, outputs={"rows": {"var": "steps.a.output.rows"}})

    end = Workflow.from_dict(spec, Backend(store=InMemoryStore(), runner=runner)).run(worker)

    assert end == Complete({"rows": ROWS})


def test_a_workflow_test_passes_large_values_on() -> None:
    spec = document(
        A,
        {"id": "b", "fn": "count", "input": {"rows": {"var": "steps.a.output.rows"}}},
        outputs={"rows": {"var": "steps.a.output.rows"}, "counted": {"var": "steps.b.output.counted"}},
    )

    execution = WorkflowTest(spec, executors=EXECUTORS).run()

    assert execution.outcome == {"rows": ROWS, "counted": 1_000}
