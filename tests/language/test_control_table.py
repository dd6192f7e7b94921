"""What an operator may say to an execution in each of its states: one table, in memory and through a client,
and the page about the language says the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from language.memory_stage import MemoryStage
from language.stage import Stage
from orchestrator.application.errors import InvalidEvent, RecordNotFound
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES, WorkflowStatus
from orchestrator.client import Client, ControlRejected, ControlResult
from orchestrator.local.workflow import Workflow
from worlds.documents import document, step, when

PAGE = (Path(__file__).parents[2] / "docs" / "language.md").read_text()
CHAIN = (step("a"), step("b", after="a"), step("c", after="b"))


# ---- the states, each with what its step `b` is then


def pending(stage: Stage) -> None:
    """It waits for a place under its concurrency key."""
    queued = document(*CHAIN, concurrency={"key": "desk", "limit": 1})
    stage.start(queued, execution_id="holder")
    stage.start(queued, execution_id="x")


def in_progress(stage: Stage) -> None:
    stage.start(document(*CHAIN), execution_id="x")


def paused(stage: Stage) -> None:
    in_progress(stage)
    stage.control("pause")


def compensating(stage: Stage) -> None:
    stage.start(document(step("a", compensate={"fn": "undo"}), *CHAIN[1:]), execution_id="x")
    stage.finish("a", {})
    stage.fail("b")


def complete(stage: Stage) -> None:
    in_progress(stage)
    for one in ("a", "b", "c"):
        stage.finish(one, {})


def halted(stage: Stage) -> None:
    stage.start(document(step("a", branch=[when(True, "halt")]), *CHAIN[1:]), execution_id="x")
    stage.finish("a", {})


def failed(stage: Stage) -> None:
    in_progress(stage)
    stage.finish("a", {})
    stage.fail("b")


def cancelled(stage: Stage) -> None:
    in_progress(stage)
    stage.control("cancel")


STATES: dict[str, tuple[Callable[[Stage], None], str]] = {
    "pending": (pending, "ready"),
    "in_progress": (in_progress, "ready"),
    "paused": (paused, "ready"),
    "compensating": (compensating, "failed"),
    "complete": (complete, "complete"),
    "halted": (halted, "ready"),
    "failed": (failed, "failed"),
    "cancelled": (cancelled, "skipped"),
}
OPEN = ("pending", "in_progress", "paused")


# ---- the table


@dataclass(frozen=True)
class Effect:
    """What it is afterwards, and whether that is new."""

    status: str
    changed: bool = True


def row(words: str, **effects: Effect) -> dict[str, Effect | str]:
    """One control in each state: its effect, or the message with which it is refused."""
    told = {state: words.format(state=state, step=STATES[state][1]) for state in STATES}
    return {**told, **effects}


def same(*states: str) -> dict[str, Effect]:
    return {state: Effect(state) for state in states}


CANNOT = "workflow '{{id}}' cannot be"
TABLE: dict[str, dict[str, Effect | str]] = {
    "cancel": row(
        f"{CANNOT} cancelled: it is {{state}}",
        pending=Effect("cancelled"),
        in_progress=Effect("cancelled"),
        paused=Effect("cancelled"),
        cancelled=Effect("cancelled", changed=False),
    ),
    "pause": row(
        f"{CANNOT} paused: it is {{state}}",
        pending=Effect("paused"),
        in_progress=Effect("paused"),
        paused=Effect("paused", changed=False),
    ),
    "unpause": row(f"{CANNOT} unpaused: it is {{state}}", paused=Effect("in_progress")),
    "hold": row("step 'b' cannot be held: it is {step}", **same(*OPEN)),
    "release": row("step 'b' cannot be released: it is {step}"),
    "retry": row(
        f"{CANNOT} retried: it is {{state}}",
        failed=Effect("in_progress"),
        cancelled=Effect("in_progress"),
    ),
    "rerun": row(
        f"{CANNOT} rerun: it is {{state}}",
        complete=Effect("in_progress"),
        failed=Effect("in_progress"),
        cancelled=Effect("in_progress"),
    ),
    "delete": row(
        f"{CANNOT} deleted: it is {{state}}",
        **{state.value: Effect("deleted") for state in FINAL_WORKFLOW_STATUSES},
    ),
    "signal": row(
        "no step waits for a signal: workflow '{{id}}' is {state}",
        **same(*OPEN, "compensating"),
    ),
}
OF_STEPS = ("hold", "release", "rerun")


# ---- saying it


def tell(stage: Stage, action: str, step_id: str = "b") -> Effect | str:
    words = ["go"] if action == "signal" else [step_id] if action in OF_STEPS else []
    said = _in_memory if isinstance(stage, MemoryStage) else _by_client
    return said(stage, action, words)


def _in_memory(stage: Any, action: str, words: list[str]) -> Effect | str:
    workflow = Workflow.resume("x", stage._backend)
    before = len(workflow.history)
    try:
        getattr(workflow, action)(*words)
    except InvalidEvent as error:
        return str(error)
    try:
        return Effect(workflow.status, len(workflow.history) > before)
    except RecordNotFound:
        return Effect("deleted")


def _by_client(stage: Any, action: str, words: list[str]) -> Effect | str:
    client = Client(stage.world.connect(), stage.world.keys)
    with ThreadPoolExecutor(1) as pool:
        telling = pool.submit(getattr(client, action), "x", *words)
        while not telling.done():
            stage._ended.clear()  # it may be opened again
            stage.settle()
    try:
        answered = telling.result()
    except ControlRejected as error:
        return str(error)
    if isinstance(answered, ControlResult):
        return Effect(answered.status, answered.changed)
    assert answered is False, "no step waits for it"
    return Effect(client.status("x"))


def expected(stage: Stage, action: str, state: str) -> Effect | str:
    found = TABLE[action][state]
    return found.replace("{id}", stage.execution) if isinstance(found, str) else found


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("action", [name for name in TABLE if name != "signal"])
def test_every_control_is_followed_or_refused_in_every_state(stage: Stage, action: str, state: str) -> None:
    make, status_of_b = STATES[state]
    make(stage)
    assert (stage.status, stage.statuses["b"]) == (state, status_of_b)
    history = stage.history

    answer = tell(stage, action)

    assert answer == expected(stage, action, state)
    if isinstance(answer, str):
        assert (stage.status, stage.history) == (state, history), "nothing has happened"
    elif answer.status != "deleted":
        assert stage.status == answer.status
        controls = [one["control"] for one in stage.history[len(history) :] if "control" in one]
        assert controls == ([action] if answer.changed else [])


@pytest.mark.parametrize("state", STATES)
def test_a_signal_is_kept_until_the_end(stage: Stage, state: str) -> None:
    make, _ = STATES[state]
    make(stage)

    answer = tell(stage, "signal")

    assert answer == expected(stage, "signal", state)
    kept = isinstance(TABLE["signal"][state], Effect)
    assert [one["name"] for one in stage.record.signals] == (["go"] if kept else [])
    assert stage.status == state


@pytest.mark.parametrize("state", OPEN)
def test_what_is_held_is_released_in_every_state_that_is_open(stage: Stage, state: str) -> None:
    STATES[state][0](stage)
    tell(stage, "hold")
    assert stage.statuses["b"] == "on_hold"
    assert tell(stage, "hold") == Effect(state, changed=False)

    assert tell(stage, "release") == Effect(state)

    assert (stage.statuses["b"], stage.status) == ("ready", state)


@pytest.mark.parametrize("action", OF_STEPS)
@pytest.mark.parametrize("state", ["in_progress", "complete"])
def test_a_step_that_is_not_there_is_named(stage: Stage, state: str, action: str) -> None:
    STATES[state][0](stage)

    assert tell(stage, action, "z") == f"workflow {stage.execution!r} has no step 'z' to {action}"


# ---- the page says the same


REFUSED_WHEN = {
    "cancel": (
        "when it has ended otherwise, or is compensating",
        {"complete", "halted", "failed", "compensating"},
    ),
    "pause": ("when it has ended, or is compensating", {*FINAL_WORKFLOW_STATUSES, "compensating"}),
    "unpause": ("when it is not paused", set(STATES) - {"paused"}),
    "hold": ("when the step is in progress or at its end", {*FINAL_WORKFLOW_STATUSES, "compensating"}),
    "release": ("when it is not on hold", set(STATES)),
    "retry": (
        "when it is not `failed` or `cancelled`, when it was compensated, and when it is a child",
        set(STATES) - {"failed", "cancelled"},
    ),
    "rerun": ("as `retry`, but for one that completed", set(STATES) - {"failed", "cancelled", "complete"}),
    "delete": ("when it has not ended", set(STATES) - FINAL_WORKFLOW_STATUSES),
}


def test_the_page_about_the_language_has_the_same_table() -> None:
    section = PAGE.partition("\n## Control\n")[2].partition("\n## ")[0]
    _, *rows = re.findall(r"^\| `(\w+)` \| (?:.*) \| (.*) \|$", section, re.M)

    assert rows == [(action, words) for action, (words, _) in REFUSED_WHEN.items()]
    assert [action for action in TABLE if action != "signal"] == list(REFUSED_WHEN)
    for action, (_, states) in REFUSED_WHEN.items():
        assert {state for state, told in TABLE[action].items() if isinstance(told, str)} == states, action


def test_the_table_has_every_state() -> None:
    assert list(STATES) == [status.value for status in WorkflowStatus]
    assert all(list(told) == list(STATES) for told in TABLE.values())
