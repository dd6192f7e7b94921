"""A retry or rerun of an execution may correct its inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator import Backend, Workflow
from orchestrator.backend.memory import InMemoryStore
from orchestrator.backend.ports import Store
from orchestrator.backend.sqlite.store import SqliteStore

SPEC: dict[str, Any] = {
    "inputs": {"price": {"type": "number", "required": False}, "text": {}},
    "steps": [
        {"op": "reserve", "input": {"text": {"var": "input.text"}}},
        {"op": "charge", "depends_on": ["reserve"], "input": {"price": {"var": "input.text"}}},
    ],
}


def execute(fn: str, inputs: dict[str, Any]) -> dict[str, Any]:
    return {"price": float(inputs["price"])} if fn == "charge" else dict(inputs)


@pytest.fixture(params=["memory", "sqlite"])
def workflow(request: pytest.FixtureRequest, tmp_path: Path) -> Workflow:
    store: Store = InMemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "w.db")
    backend = Backend(executor=execute, store=store)
    made = Workflow.from_dict(SPEC, backend, {"text": "12,50", "price": 1})
    made.run()
    assert made.status == "failed"
    return made


def test_a_retry_with_other_inputs_runs_with_them_and_the_others_stay(workflow: Workflow) -> None:
    workflow.retry(reason="a comma", by="ada", inputs={"text": "12.5"})
    workflow.run()

    record = workflow.backend.load(workflow.id)
    assert record.status == "complete"
    assert record.inputs == {"text": "12.5", "price": 1}
    assert record.steps["charge"].output == {"price": 12.5}
    assert record.steps["reserve"].output == {"text": "12,50"}, "it has completed before"
    [said] = [entry for entry in workflow.history if "control" in entry]
    assert (said["control"], said["by"], said["reason"], said["inputs"]) == (
        "retry",
        "ada",
        "a comma",
        ["text"],
    )
