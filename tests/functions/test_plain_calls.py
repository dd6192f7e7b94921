"""Outside of a workflow, steps and workflow functions are plain functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from orchestrator import (
    Again,
    child,
    loop,
    map_each,
    op,
    sleep,
    step,
    step_of,
    switch,
    wait_for,
    wait_for_any,
    workflow,
)
from orchestrator.functions import OutsideWorkflow


@dataclass
class Word:
    text: str
    size: int


@step(retry=3)
def measure(text: str, log: Callable[[str], None], cancelled: Callable[[], bool]) -> Word:
    log(f"measuring {text}")
    assert not cancelled()
    return Word(text, len(text))


@step
def count_down(last: int | None = None) -> int | Again[int]:
    n = 3 if last is None else last - 1
    return n if n == 0 else Again(n)


@workflow
def inner(words: list[Word]) -> int:
    return op.reduce(words, lambda total, word: total + word.size, 0)


@workflow
def flow(texts: list[str], kind: str) -> dict[str, Any]:
    words = map_each(texts, lambda text: measure(text))  # type: ignore[call-arg]
    long = op.filter(words, lambda word: word.size > 1)
    first = switch(kind, {"first": lambda: words[0], "true": lambda: words[1]}, default=lambda: words[-1])
    zero = loop(lambda last: count_down(last=last))
    return {
        "sum": inner(words),
        "long": [word.text for word in long],
        "first": first,
        "zero": zero,
        "text": op.cat(first.text, "!"),
    }


def test_a_workflow_function_runs_its_steps_as_functions() -> None:
    found = flow(["ab", "c"], "first")

    assert found == {"sum": 3, "long": ["ab"], "first": Word("ab", 2), "zero": 0, "text": "ab!"}
    assert flow(["ab", "c"], "other")["first"] == Word("c", 1)
    assert map_each(["a", "b"], lambda text, n: f"{text}{n}") == ["a0", "b1"]


def test_cases_are_found_as_the_engine_finds_them() -> None:
    cases = {"true": lambda: 1, "null": lambda: 2, "3": lambda: 3}

    assert [switch(one, cases) for one in (True, None, 3, 3.0)] == [1, 2, 3, 3]
    with pytest.raises(OutsideWorkflow, match="switch\\(\\) has no case for 'x', and no default"):
        switch("x", cases)


def test_a_loop_has_its_limit() -> None:
    with pytest.raises(OutsideWorkflow, match="2 times"):
        loop(lambda last: count_down(last=last), max_iterations=2)
    assert loop(lambda last: count_down(last=last), max_iterations=2, on_max="exit_with_last") == 2


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: wait_for("go", Word), "wait_for"),
        (lambda: wait_for_any(["go"], Word), "wait_for_any"),
        (lambda: sleep("5m"), "sleep"),
        (lambda: child("other", Word), "child"),
        (lambda: step_of(5), "step_of"),
    ],
)
def test_what_needs_a_running_workflow_says_so(call: Callable[[], Any], name: str) -> None:
    with pytest.raises(OutsideWorkflow, match=rf"^{name}\(\) works only in a workflow that runs: "):
        call()


def test_step_of_needs_the_result_of_one_step() -> None:
    wrong = workflow(name="wrong")(lambda: {"it": step_of(5).status})

    with pytest.raises(Exception, match=r"step_of\(\) needs the result of one step; this one is of none"):
        wrong.load()


def test_the_objects_show_what_they_are() -> None:
    assert (repr(measure), repr(flow)) == ("<step 'measure'>", "<workflow 'flow'>")
    assert (measure.__name__, flow.__doc__) == ("measure", None)
