"""The executors `transform`, which evaluates expressions on the worker, `sleep` and `echo`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from orchestrator import Backend, Workflow
from orchestrator.invocation.executors import BUILT_IN, Executors
from orchestrator.invocation.parameters import evaluate
from orchestrator_executors.echo import echo
from orchestrator_executors.settings import Refused
from orchestrator_executors.sleep import sleep
from orchestrator_executors.transform import transform

DATA = {"lines": [{"sku": "a1", "n": 2}, {"sku": "b2", "n": 3}]}
SUM = {
    "reduce": [
        {"map": [{"var": "lines"}, {"var": "n"}]},
        {"+": [{"var": "current"}, {"var": "accumulator"}]},
        0,
    ]
}


def make(inputs: Any, configuration: Any = None) -> dict[str, Any]:
    return transform(inputs, configuration or {}, evaluate)


def test_an_expression_is_evaluated_on_its_data() -> None:
    assert make({"data": DATA, "expression": SUM}) == {"result": 5}
    assert make({"data": DATA, "expression": {"var": ""}}) == {"result": DATA}
    assert make({"expression": {"+": [1, 2]}}) == {"result": 3}
    assert make({"data": DATA}, {"expression": SUM}) == {"result": 5}


def test_several_expressions_make_an_object() -> None:
    output = {
        "total": SUM,
        "first": {"var": "lines.0.sku"},
        "both": [{"var": "lines.1.n"}, "text"],
        "gone": {"var": "x"},
    }

    assert make({"data": DATA, "output": output}) == {
        "total": 5,
        "first": "a1",
        "both": [3, "text"],
        "gone": None,
    }


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"data": 1}, r"give either 'expression' or 'output'.*\$literal"),
        ({"expression": 1, "output": {}}, "give either 'expression' or 'output'"),
        ({"output": [1]}, "'output' must be a mapping"),
        ({"output": 3}, r"'output' must be a mapping .*\$literal"),
        ({"data": DATA, "output": {"a": {"/": [1, 0]}}}, "'output.a' fails: /"),
        ({"data": DATA, "expression": {"+": ["x", 1]}}, "'expression' fails: +"),
        ({"date": 1, "expression": 1}, "unknown setting 'date'; did you mean 'data'"),
    ],
)
def test_an_expression_that_cannot_be_evaluated_is_rejected(inputs: Any, said: str) -> None:
    with pytest.raises(Refused, match=said) as caught:
        make(inputs)
    assert caught.value.non_retryable


def test_an_expression_in_a_document_is_kept_for_the_worker_by_literal() -> None:
    step = {
        "id": "sum",
        "fn": "transform",
        "input": {"data": {"var": "input"}, "output": {"$literal": {"total": SUM}}},
    }
    source = {"type": "transform", "configuration": {"expression": {"$literal": SUM}}}
    document = {
        "steps": [step, {"id": "again", "source": source, "input": {"data": {"var": "input"}}}],
        "outputs": {"sum": {"var": "steps.sum.output"}, "again": {"var": "steps.again.output"}},
    }
    workflow = Workflow.from_dict(document, Backend({"transform": transform}), inputs=DATA)

    workflow.run()

    assert workflow.outcome == {"sum": {"total": 5}, "again": {"result": 5}}


# ---- sleep and echo


def test_sleep_waits_and_can_be_cancelled() -> None:
    async def both() -> None:
        endless = asyncio.create_task(sleep({"seconds": 6000}, {}))
        began = time.monotonic()
        outputs = await asyncio.gather(*(sleep({"seconds": 0.05}, {}) for _ in range(20)))
        assert outputs == [{"seconds": 0.05}] * 20
        assert time.monotonic() - began >= 0.05
        assert not endless.done(), "they sleep at once"
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless

    asyncio.run(both())


@pytest.mark.parametrize("seconds", [-1, "3", None, True, float("inf"), float("nan")])
def test_sleep_rejects_a_bad_duration(seconds: Any) -> None:
    with pytest.raises(Refused, match="'seconds' must be a number of at least 0"):
        asyncio.run(sleep({"seconds": seconds}, {}))


def test_echo_returns_its_inputs() -> None:
    inputs = {"a": [1]}

    assert echo(inputs) == inputs
    assert echo(inputs) is not inputs


@pytest.mark.parametrize("name", sorted(BUILT_IN - {"http", "webhook"}))
def test_every_worker_has_them(name: str) -> None:
    found = Executors().find(name)

    assert found.__name__ == name
    assert found.__module__ == f"orchestrator_executors.{name}"
