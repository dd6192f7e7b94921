"""What executors say: how much of it is kept, where it stands, and how it is shown."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.errors import StoreError
from orchestrator.application.records.step_log import (
    LINES_OMITTED,
    MAX_LINE_LENGTH,
    MAX_LINES_PER_RUN,
    LogLine,
    StepLogLimiter,
    filter_by_step,
)
from orchestrator.backend import (
    Backend,
    InMemoryStore,
    InProcessRunner,
    SqliteRunner,
    SqliteStore,
)
from orchestrator.cli.output.step_log import (
    format_log_sections,
    format_unit_log,
    last_log_lines,
    merge_log_lines,
    to_history_entry,
)
from orchestrator.local import InProcessWorker
from orchestrator.local.workflow import Workflow

LINE = LogLine("a", 0, 1, "2026-01-01T00:00:01.000Z", "one")


# ---- how much is kept


def test_a_text_is_kept_line_by_line() -> None:
    assert StepLogLimiter().accept("one") == ["one"]
    assert StepLogLimiter().accept("one\ntwo\r\n\nfour\n") == ["one", "two", "", "four"]
    assert StepLogLimiter().accept("") == [""]


def test_a_long_line_is_cut() -> None:
    assert StepLogLimiter().accept("x" * MAX_LINE_LENGTH) == ["x" * MAX_LINE_LENGTH]
    assert StepLogLimiter().accept("x" * MAX_LINE_LENGTH + "yz") == ["x" * MAX_LINE_LENGTH + "..."]


def test_what_cannot_be_stored_is_replaced() -> None:
    assert StepLogLimiter().accept("\ud83d!") == ["?!"]


@pytest.mark.parametrize("at_once", [1, 7, 5_000])
def test_after_the_last_line_one_says_that_there_were_more(at_once: int) -> None:
    allowance, kept = StepLogLimiter(), list[str]()

    for _ in range(0, 5_000, at_once):
        kept += allowance.accept("\n".join(["x"] * at_once))

    assert kept == ["x"] * MAX_LINES_PER_RUN + [LINES_OMITTED]


def test_a_run_within_the_limit_is_kept_whole() -> None:
    allowance = StepLogLimiter()

    assert allowance.accept("\n".join(["x"] * MAX_LINES_PER_RUN)) == ["x"] * MAX_LINES_PER_RUN
    assert allowance.accept("y") == [LINES_OMITTED]
    assert allowance.accept("z") == []


def test_the_lines_of_a_step_are_those_of_its_items_too() -> None:
    lines = [replace(LINE, step=step) for step in ("m", "m#0", "m#undo", "mm", "a")]

    assert [one.step for one in filter_by_step(lines, "m")] == ["m", "m#0", "m#undo"]
    assert [one.step for one in filter_by_step(lines, "m#0")] == ["m#0"]
    assert filter_by_step(lines, None) == lines


# ---- in one process


Makes = Callable[[], tuple[Any, Any]]


@pytest.fixture(params=["memory", "sqlite"])
def makes(request: pytest.FixtureRequest, tmp_path: Path) -> Makes:
    if request.param == "memory":
        return lambda: (InMemoryStore(), InProcessRunner())
    return lambda: (SqliteStore(tmp_path / "db"), SqliteRunner(tmp_path / "db"))


def speak(inputs: dict[str, Any], log: Any, heartbeat: Any, context: dict[str, Any]) -> dict[str, Any]:
    log(f"attempt {context['attempt']}")
    log(17)
    heartbeat(0.5)
    heartbeat(0.5, "half\nof it")
    heartbeat(note="soon")
    heartbeat()
    if context["attempt"] == 1:
        raise ValueError("not yet")
    return {}


def test_what_is_said_is_kept_with_its_run(makes: Makes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store, runner = makes()
    backend = Backend({"a": speak, "b": lambda inputs, log: log("b")}, store=store, runner=runner)
    document = "steps: [{op: a, max_attempts: 2}, {op: b, depends_on: [a]}]"
    workflow = Workflow(backend.create(document), backend)

    workflow.run()

    said = ["17", "0.5: half", "of it", "soon"]
    assert [(one.step, one.run_id, one.attempt, one.text) for one in workflow.log_lines()] == [
        *(("a", 0, 1, text) for text in ("attempt 1", *said)),
        *(("a", 1, 2, text) for text in ("attempt 2", *said)),
        ("b", 0, 1, "b"),
    ]
    assert [one.text for one in workflow.log_lines("b")] == ["b"]
    assert {"attempt 1", "17", "heartbeat: 0.5", "heartbeat: 0.5: half\nof it"} <= set(caplog.messages)


def test_a_worker_of_ones_own_keeps_lines_where_it_is_told(makes: Makes) -> None:
    store, runner = makes()
    backend = Backend(store=store, runner=runner)
    execute = {"a": lambda inputs, log: log("hello")}
    first, second = (Workflow(backend.create("steps: [{op: a}]"), backend) for _ in range(2))

    first.run(InProcessWorker(runner, execute, store=store))
    second.run(InProcessWorker(runner, execute))

    assert [one.text for one in first.log_lines()] == ["hello"]
    assert second.log_lines() == []


def test_a_store_that_cannot_keep_a_line_fails_no_step(caplog: pytest.LogCaptureFixture) -> None:
    class Full(InMemoryStore):
        def add_log_lines(self, workflow_execution_id: str, lines: Any) -> None:
            raise StoreError("the disk is full")

    backend = Backend({"a": lambda inputs, log: log("hello")}, store=Full())
    workflow = Workflow(backend.create("steps: [{op: a}]"), backend)

    workflow.run()

    assert workflow.status == "complete"
    assert "cannot store the log lines of step a: the disk is full" in caplog.messages


def test_a_store_that_knows_nothing_of_lines_keeps_none() -> None:
    class Plain:
        """As programs written for runfox bring them."""

        def __init__(self) -> None:
            self._inner = InMemoryStore()

        def load(self, workflow_execution_id: str) -> Any:
            return self._inner.load(workflow_execution_id)

        def write(self, record: Any) -> None:
            self._inner.write(record)

    store: Any = Plain()
    backend = Backend({"a": lambda inputs, log: log("hello")}, store=store)
    workflow = Workflow(backend.create("steps: [{op: a}]"), backend)

    workflow.run()

    assert (workflow.status, workflow.log_lines()) == ("complete", [])


# ---- shown


def entry(at: str, **keys: Any) -> dict[str, Any]:
    return {"at": at, **keys}


def test_a_line_stands_between_the_dispatch_of_its_run_and_the_end_of_it() -> None:
    at, later = LINE.at, "2026-01-01T00:00:02.000Z"
    history = [
        entry(at, step="a", to="in_progress"),
        entry(at, workflow="in_progress"),
        entry(later, step="a", to="complete"),
        entry(later, step="b", to="in_progress"),
    ]
    lines = [LINE, replace(LINE, at=later, text="two")]

    told = [one.get("line") or one.get("to") or "workflow" for one in merge_log_lines(history, lines)]

    assert told == ["in_progress", "one", "workflow", "two", "complete", "in_progress"]
    assert to_history_entry(LINE) == {"at": at, "step": "a", "run_id": 0, "attempt": 1, "line": "one"}


def test_the_last_words_are_those_of_steps_that_run_or_did_not_get_on() -> None:
    backend = Backend({"a": speak, "b": speak, "c": speak}, threads=1)
    document = "steps: [{op: a}, {op: b, max_attempts: 2, on_error: continue}, {op: c, depends_on: [b]}]"
    workflow = Workflow(backend.create(document), backend)
    workflow.run()
    record, lines = backend.load(workflow.id), workflow.log_lines()

    words = last_log_lines(record, lines)

    assert {unit: [one.text for one in said] for unit, said in words.items()} == {
        "a": ["attempt 1", "17", "0.5: half", "of it", "soon"]
    }
    assert format_log_sections(words)[0] == "log of a:"
    assert format_log_sections(words)[1] == f"  {lines[0].at[11:23]}  attempt 1"


def test_of_one_step_the_end_is_shown_and_how_to_see_all() -> None:
    lines = [replace(LINE, attempt=2, text=str(n)) for n in range(25)]

    told = format_unit_log("x1", "a#undo", lines)

    assert told[:2] == ["log:", "  00:00:01.000  (attempt 2) 5"]
    assert told[-1] == "  and 5 earlier; orchestrator history x1 --step a shows all"
    assert len(format_unit_log("x1", "a", lines[:20])) == 21
    assert format_unit_log("x1", "a", []) == []
