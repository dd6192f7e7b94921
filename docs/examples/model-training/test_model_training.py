"""Tests of the training workflow: `pytest` in this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_training
import pytest

from orchestrator.testing import WorkflowTest

Start = Callable[..., WorkflowTest]


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MODELS", str(tmp_path / "models"))
    model_training.write_dataset(tmp_path / "points.csv")
    return tmp_path / "points.csv"


@pytest.fixture
def start(workflow_test: type[WorkflowTest], dataset: Path) -> Callable[..., WorkflowTest]:
    def start(execution_id: str = "training-1", **inputs: Any) -> WorkflowTest:
        return workflow_test(
            model_training.model_training,
            {"dataset": str(dataset), **inputs},
            executors="model_training",
            execution_id=execution_id,
        )

    return start


def test_a_first_model_is_promoted(start: Start) -> None:
    test = start().run()

    assert test.status == "complete"
    assert test.outcome["scores"]["production"] is None
    assert test.outcome["scores"]["candidate"] < 1
    assert (
        model_training.production_pointer().read_text() == test.outcome["model"] == test.outcome["production"]
    )


def test_a_better_model_takes_its_place(start: Start) -> None:
    start(epochs=50).run()

    test = start("training-2", epochs=500).run()

    assert test.outcome["scores"]["is_better"]
    assert model_training.production_pointer().read_text() == test.outcome["model"]


def test_a_worse_model_is_not_promoted(start: Start) -> None:
    start(epochs=500).run()
    before = model_training.production_pointer().read_text()

    test = start("training-2", epochs=50).run()

    assert test.step("promote").status == "filtered"
    assert test.outcome["production"] == "unchanged"
    assert model_training.production_pointer().read_text() == before


def test_too_few_rows_start_no_training(start: Start) -> None:
    test = start(least_rows=1000).run()

    assert test.error["type"] == "TooFewRows"
    assert test.executed("split_dataset") == 1
    assert test.executed("train") == 0


def test_only_the_training_needs_a_gpu(start: Start) -> None:
    test = start()

    assert {step.id: step.queue for step in test.record.spec.steps if step.queue == "gpu"} == {"train": "gpu"}


def test_a_training_goes_on_where_a_lost_machine_left_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = []

    def lost(inputs: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
        def heartbeat(progress: float, note: str) -> None:
            epochs.append(note)
            if len(epochs) == 4:
                raise ConnectionError("the machine was taken away")

        model = model_training.train(**inputs, context=context, heartbeat=heartbeat)
        return {"file": model.file, "epochs": model.epochs}

    test = start(epochs=300)
    test.mock("train", lost)

    test.run(skip_waits=True)

    assert test.status == "complete"
    assert test.step("train").attempt == 2
    assert epochs == [f"epoch {n}" for n in (50, 100, 150, 200, 250, 300)]


def test_a_training_that_hangs_ends_after_twelve_hours(start: Start) -> None:
    test = start()
    test.mock("train", {"file": "x", "epochs": 1}, takes="13h")

    test.run().skip("12h")

    assert test.step("train").error["kind"] == "timeout"
    assert test.step("train").status == "retry"


def test_a_worker_that_dies_after_the_promotion_promotes_the_same_model(start: Start) -> None:
    test = start()
    test.kill("worker.result", step="promote")

    test.run()

    assert test.executed("promote") == 2
    assert model_training.production_pointer().read_text() == test.outcome["model"]


def test_the_steps_are_functions(dataset: Path) -> None:
    data = model_training.split_dataset(str(dataset), 20)
    model = model_training.train(data.training, epochs=500, learning_rate=0.02)

    assert model_training.evaluate(model.file, data.validation).is_better
