"""Inputs that expressions make too large, in memory and on Redis: the step fails, and no job carries them."""

from __future__ import annotations

from typing import Any

import pytest

from language.stage import Stage
from language.written import child
from worlds.documents import Json, document, step

TEXT: Any = {"var": "steps.a.output.text"}
MEGABYTE = 1024 * 1024
TOO_LARGE: dict[str, tuple[Json, str, int]] = {
    "a step": (step("b", "a", input={"all": [TEXT] * 9}), "b", 8 * MEGABYTE),
    "an item": (step("b", "a", input={"all": [TEXT] * 9}, map={"over": [1]}), "b#0", 8 * MEGABYTE),
    "a child": (child("b", document(step("x")), "a", input={"all": [TEXT] * 2}), "b", MEGABYTE),
    "a child, larger than an event": (
        child("b", document(step("x")), "a", input={"all": [TEXT] * 9}),
        "b",
        MEGABYTE,
    ),
}


@pytest.mark.parametrize("what", TOO_LARGE)
def test_inputs_that_are_built_too_large_fail_with_their_size(stage: Stage, what: str) -> None:
    written, unit, limit = TOO_LARGE[what]
    stage.start(document(step("a"), {**written, "on_error": "continue"}, step("below", "b")))

    stage.finish("a", {"text": "x" * 1_000_000})

    error = stage[unit].error
    assert error is not None
    assert error["kind"] == "expression"
    assert f"the inputs of step {unit!r} have" in error["message"]
    assert f"the limit is {limit:,}" in error["message"]
    assert stage.statuses["below"] == "in_progress"
    assert (stage.executions, stage.executions_of(unit)) == ([stage.execution], 0)
