"""Executors that are written `async def`, called from where nothing is async and from where something is."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator import Backend, Workflow
from orchestrator.backend.memory import InProcessRunner
from orchestrator.invocation.coroutines import await_result
from orchestrator.local import InProcessWorker


async def double(inputs: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"n": inputs["n"] * 2}


class Doubling:
    async def __call__(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return await double(inputs)


ONE_STEP = {"steps": [{"op": "double", "input": {"n": {"var": "input.n"}}}]}


@pytest.mark.parametrize("executor", [double, functools.partial(double), Doubling()])
def test_the_result_of_a_coroutine_is_the_output_of_its_step(executor: Callable[..., Any]) -> None:
    runner = InProcessRunner()
    workflow = Workflow.from_dict(ONE_STEP, Backend(runner=runner), {"n": 21})

    workflow.run(InProcessWorker(runner, {"double": executor}))

    assert workflow.state == {"n": 42}


def test_a_value_that_is_not_a_coroutine_is_returned_as_it_is() -> None:
    assert await_result({"n": 1}) == {"n": 1}


def test_a_coroutine_is_awaited_where_a_loop_runs_already() -> None:
    async def from_within() -> Any:
        return await_result(double({"n": 4}))

    assert asyncio.run(from_within()) == {"n": 8}


def test_the_exception_of_a_coroutine_is_raised() -> None:
    async def broken() -> None:
        raise LookupError("there is none")

    with pytest.raises(LookupError, match="there is none"):
        await_result(broken())
