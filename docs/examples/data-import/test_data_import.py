"""Tests of the import: `pytest` in this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import data_import
import pytest
import warehouse

from orchestrator.testing import WorkflowTest

WORKFLOW = Path(__file__).with_name("workflow.yaml")
OLD = [("ada@example.org", "Ada"), ("bob@example.org", "Bob")]
NEW = [("ada@example.org", "Ada Lovelace"), ("bob@example.org", "Bob"), ("eve@example.org", "Eve")]
Start = Callable[..., WorkflowTest]


@pytest.fixture
def start(
    workflow_test: type[WorkflowTest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., WorkflowTest]:
    monkeypatch.setenv("WAREHOUSE_DB", str(tmp_path / "warehouse.db"))
    monkeypatch.setattr(data_import, "LINES_OF_A_CHUNK", 2)
    with warehouse.database() as database:
        database.executemany("INSERT INTO customers VALUES (?, ?)", OLD)

    def start(*lines: str, head: str = "email,name", **inputs: Any) -> WorkflowTest:
        file = tmp_path / "customers.csv"
        file.write_text(
            "\n".join([head, *(lines or ("ada@example.org,Ada Lovelace", "eve@example.org,Eve"))])
        )
        return workflow_test(WORKFLOW, {"file": str(file), **inputs}, executors="data_import")

    return start


def nothing_is_left() -> bool:
    return not any(warehouse.rows(table) for table in ("staging", "replaced")) and not published()


def published() -> list[tuple[object, ...]]:
    with warehouse.database() as database:
        return database.execute("SELECT * FROM published").fetchall()


def test_customers_are_added_and_changed(start: Start) -> None:
    test = start().run()

    assert test.outcome == {"published": 2, "bad": 0}
    assert warehouse.rows("customers") == NEW
    assert nothing_is_left()


def test_a_file_is_loaded_in_chunks(start: Start) -> None:
    test = start(*(f"c{n}@example.org,C {n}" for n in range(5))).run()

    assert [item.output["rows"] for item in test.step("load").items] == [2, 2, 1]
    assert test.outcome == {"published": 5, "bad": 0}


def test_a_few_bad_lines_are_left_out(start: Start) -> None:
    test = start("eve@example.org,Eve", "no address,No Address", max_bad_percent=50).run()

    assert test.outcome == {"published": 1, "bad": 1}


def test_many_bad_lines_stop_the_import_before_anything_is_published(start: Start) -> None:
    test = start("eve@example.org,Eve", "no address,No Address").run()

    assert test.status == "failed"
    assert test.error["message"] == "1 of 2 lines are bad, such as line 2"
    assert warehouse.rows("customers") == OLD
    assert nothing_is_left()


def test_another_file_is_not_loaded_at_all(start: Start) -> None:
    test = start(head="sku,price").run()

    assert test.error["type"] == "BadFile"
    assert test.executed("batch") == 0


def test_a_load_that_fails_half_way_leaves_nothing(start: Start) -> None:
    test = start(*(f"c{n}@example.org,C" for n in range(5)))
    test.mock("load#2", OSError("no space left"))

    test.run(skip_waits=True)

    assert test.status == "failed"
    assert (test.executed("load#0"), test.executed("load#2")) == (1, 5)
    assert nothing_is_left()


def test_a_rejected_import_is_taken_back(start: Start) -> None:
    test = start()
    test.mock("announce_customers", ConnectionError("the search engine does not answer"))

    test.run()
    assert warehouse.rows("customers") == NEW
    test.run(skip_waits=True)

    assert test.status == "failed"
    assert test.executed("announce") == 5
    assert [one["step"] for one in test.history if one.get("to") == "complete"][-2:] == [
        "publish#undo",
        "batch#undo",
    ]
    assert warehouse.rows("customers") == OLD
    assert nothing_is_left()


def test_a_compensation_that_fails_at_first_is_tried_again(start: Start) -> None:
    test = start()
    test.mock("announce_customers", ConnectionError("down"))
    test.mock("restore_rows", [OSError("locked"), lambda inputs: data_import.restore_rows(inputs)])

    test.run(skip_waits=True)

    assert warehouse.rows("customers") == OLD
    assert "compensation_errors" not in test.error


def test_a_cancelled_import_is_taken_back(start: Start) -> None:
    test = start()
    test.mock("announce_customers", {}, takes="1m")

    test.run().cancel("the wrong file").run()

    assert test.status == "cancelled"
    assert warehouse.rows("customers") == OLD
    assert nothing_is_left()


@pytest.mark.parametrize("step", ["load", "publish", "clean_up"])
def test_killed_workers_change_nothing(start: Start, step: str) -> None:
    test = start()
    test.kill("worker.result", step=step)

    test.run()

    assert test.outcome == {"published": 2, "bad": 0}
    assert warehouse.rows("customers") == NEW


def test_a_second_import_waits_for_the_first(workflow_test: type[WorkflowTest], start: Start) -> None:
    file = start().record.inputs["file"]  # it is written, and not imported
    steps = [{"id": step, "workflow": "data-import", "input": {"file": file}} for step in ("one", "two")]
    test = workflow_test({"steps": steps}, executors="data_import", workflows={"data-import": WORKFLOW})
    test.mock("announce_customers", {}, takes="1m")

    test.run()

    assert "two: a slot of the concurrency key 'customers'" in test.waits_for
    assert test.executed("publish") == 1
    assert test.skip("2m").status == "complete"
