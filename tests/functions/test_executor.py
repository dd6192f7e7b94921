"""A decorated function as an executor: inputs become the annotated types, and the result becomes JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from orchestrator import Again, step
from orchestrator.functions import BadStepInput, BadStepResult
from orchestrator.invocation.coroutines import await_result
from orchestrator.invocation.parameters import find_requested_parameters
from orchestrator.worker.executors.signature import Signature


class Colour(Enum):
    RED = "red"


class Line(TypedDict):
    name: str
    tags: NotRequired[list[str]]


@dataclass
class Order:
    lines: list[Line]
    day: date
    colours: set[Colour] = field(default_factory=set)


class Account(BaseModel):
    id: UUID
    owner: str = Field(alias="Owner")
    balance: Annotated[Decimal, Field(ge=0)] = Decimal("0.5")


@step
def total(order: Order, account: Account, mode: Literal["fast", "slow"] = "fast") -> Order:
    assert isinstance(order, Order)
    assert isinstance(account, Account)
    assert isinstance(order.day, date)
    order.lines.append({"name": f"{account.owner} {mode}"})
    return order


ORDER = {"lines": [{"name": "pen", "tags": ["a"]}], "day": "2026-01-02", "colours": ["red"]}
ACCOUNT = {"id": "12345678-1234-5678-1234-567812345678", "Owner": "ada"}


def test_inputs_and_results_are_converted() -> None:
    result = total.executor({"order": ORDER, "account": ACCOUNT})

    assert result == {**ORDER, "lines": [*ORDER["lines"], {"name": "ada fast"}]}


@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        ({"order": ORDER}, r"total\(\) needs the argument 'account'"),
        ({"order": ORDER, "account": ACCOUNT, "mod": 1}, r"total\(\) has no argument 'mod'"),
        ({"order": {}, "account": ACCOUNT}, r"total\(order=...\) expects Order: lines: Field required"),
        ({"order": ORDER, "account": ACCOUNT, "mode": "x"}, "Input should be 'fast' or 'slow'"),
        ({"order": ORDER, "account": {**ACCOUNT, "balance": -1}}, "balance: Input should be greater"),
    ],
)
def test_inputs_that_do_not_fit_fail_without_a_retry(inputs: dict[str, Any], error: str) -> None:
    with pytest.raises(BadStepInput, match=error) as raised:
        total.executor(inputs)

    assert raised.value.non_retryable


def returning(annotation: Any, value: Any) -> Callable[..., Any]:
    def give() -> Any:
        return value

    give.__annotations__ = {"return": annotation}
    return step(give).executor


@pytest.mark.parametrize(
    ("annotation", "value", "output"),
    [
        (str, "a", {"result": "a"}),
        (int | None, None, {"result": None}),
        (list[Line], [{"name": "a"}], {"result": [{"name": "a"}]}),
        (datetime, datetime(2026, 1, 2), {"result": "2026-01-02T00:00:00"}),
        (Line, {"name": "a"}, {"name": "a"}),
        (Line | None, None, None),
        (dict[str, Decimal], {"a": Decimal("1.5")}, {"a": "1.5"}),
        (
            Account,
            Account(id=UUID(int=1), Owner="b"),
            {"id": str(UUID(int=1)), "Owner": "b", "balance": "0.5"},
        ),
        (None, None, None),
        (Any, {"day": date(2026, 1, 2)}, {"day": "2026-01-02"}),
    ],
)
def test_a_result_that_is_no_mapping_is_wrapped(annotation: Any, value: Any, output: Any) -> None:
    assert returning(annotation, value)({}) == output


@pytest.mark.parametrize(
    ("annotation", "value", "error"),
    [
        (Line, {"nam": "a"}, r"give\(\) must return Line: name: Field required"),
        (int, "a", r"give\(\) must return int: Input should be a valid integer"),
        (None, 5, r"give\(\) must return None"),
        (Any, {"it": object()}, r"the result of give\(\) is not JSON"),
    ],
)
def test_a_result_that_does_not_fit_is_an_error(annotation: Any, value: Any, error: str) -> None:
    with pytest.raises(BadStepResult, match=error):
        returning(annotation, value)({})


def test_a_result_of_a_loop_says_whether_it_goes_on() -> None:
    assert returning(str | Again[str], Again("a"))({}) == {"_loop": "again", "value": {"result": "a"}}
    assert returning(Line | Again[Line], {"name": "a"})({}) == {"_loop": "done", "value": {"name": "a"}}


def test_parameters_of_the_worker_are_no_inputs() -> None:
    @step
    def talk(text: str, /, log: Callable[[str], None], *, context: dict[str, Any], n: int = 2) -> str:
        log(text * n)
        return str(context["attempt"])

    lines: list[str] = []
    output = talk.executor({"text": "a", "n": "3"}, log=lines.append, context={"attempt": 1})

    assert (output, lines) == ({"result": "1"}, ["aaa"])
    assert find_requested_parameters(talk.executor, 1) == {"log", "context"}
    assert list(talk.parameters.inputs) == ["text", "n"]


def test_an_async_function_is_awaited() -> None:
    @step
    async def fetch(url: str) -> str:
        return f"page {url}"

    assert await_result(fetch.executor({"url": "a"})) == {"result": "page a"}
    assert fetch("b") == "page b"


def test_other_inputs_are_passed_if_the_function_takes_them() -> None:
    @step
    def collect(first: int, **others: Any) -> dict[str, Any]:
        return {"first": first, **others}

    assert collect.executor({"first": "1", "x": [2]}) == {"first": 1, "x": [2]}
    assert Signature(collect.executor).keys is None


def test_commands_see_its_inputs_and_its_documentation() -> None:
    @step
    def pay(amount: float, note: str = "") -> None:
        """Pays."""

    signature = Signature(pay.executor)

    assert signature.summary == "Pays."
    assert signature.call_problem is None
    assert [(one.name, one.is_required, one.type) for one in signature.keys or ()] == [
        ("amount", True, "a number"),
        ("note", False, "a string"),
    ]


def test_types_that_cannot_be_resolved_do_not_hide_the_executor() -> None:
    @step
    def ask(it: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert Signature(ask.executor).keys is None
