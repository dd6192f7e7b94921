"""Every mistake in a workflow function is an error with its place, before anything runs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from functions.order_page import mistakes
from orchestrator import InvalidSpec, op, workflow
from orchestrator.functions import WorkflowFunction

MISTAKES = mistakes()


def read(app: ModuleType, line: str) -> WorkflowFunction[..., Any]:
    """A workflow whose second line is this one: line 5 of its file."""
    names = {**vars(app)}
    source = f"\n\ndef order():\n    checked = check(sku='pen', quantity=1)\n    {line}\n"
    exec(compile(source, "app.py", "exec"), names)
    names["order"] = made = workflow(names["order"])
    return made


@pytest.mark.parametrize(("line", "error"), MISTAKES)
def test_the_page_shows_the_error_of(app: ModuleType, line: str, error: str) -> None:
    with pytest.raises(InvalidSpec) as raised:
        read(app, line).load()

    assert str(raised.value) == error


def test_the_page_has_many_mistakes() -> None:
    assert len(MISTAKES) >= 15


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("checked.amount and 5", "5:5: workflow 'order': this value does not exist"),
        ("bool(checked.lines)", "write switch() or when= for if"),
        ("'%s' % checked.kind", "write op.cat() for an f-string, str() or %"),
        ("round(checked.amount)", "op.round()"),
        ("checked + 'a'", "'a' is not a number; to join strings, use op.cat() [bad_call]"),
        ("checked.lines[-1]", "an index cannot be negative here: write op.last()"),
        ("checked.lines['a']", "list[app.Line] is a list, which has no field 'a'"),
        ("check('a', 1, 2)", "check() takes 2 inputs, not 3"),
        ("check('a', sku='b', quantity=1)", "check() gets the argument 'sku' twice"),
        ("charge.options(on_error='ignore')('a', 1.0)", "5:5: steps[1].on_error: workflow 'order'"),
        ("charge.options(heartbeat='5s')('a', 1.0)", "charge() has no parameter heartbeat"),
        ("charge.options(after=5)('a', 1.0)", "after= takes the results of steps, or their names, not 5"),
        ("charge.options(id='check')('a', 1.0)", "the name is already taken by steps[0]"),
        ("charge.options(branch=[5])('a', 1.0)", "expected a branch entry such as when(...).halt(), not 5"),
        ("price(line={'nam': checked.kind})", "Line has no field 'nam'; did you mean 'name'?"),
        (
            "map_each(checked.lines, lambda line: None)",
            "must call one step and return its result; it calls 0",
        ),
        (
            "map_each(checked.lines, lambda line: price(line).x)",
            "must return the result of its step, not a part",
        ),
        ("map_each('abc', lambda line: price(line))", "map_each() needs a list, not 'abc'"),
        ("switch(checked.kind, {'a': lambda: charge('a', 'b')})", "expects float, not 'b'"),
        ("switch(checked.kind, {'a': lambda: checked.kind})", "the result of a step that it calls, or None"),
        (
            "switch('a', {}, default=lambda: checked)",
            "the default branch of switch() must return the result of",
        ),
    ],
)
def test_each_of_these_is_an_error_with_its_place(app: ModuleType, line: str, error: str) -> None:
    with pytest.raises(InvalidSpec) as raised:
        read(app, line).load()

    assert str(raised.value).startswith("app.py:5:")
    assert error in str(raised.value)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("return {'a': object()}", "the output 'a' is not JSON"),
        ("return checked.kind", "a workflow returns a dict of names and values, not <"),
    ],
)
def test_a_wrong_result_has_the_place_of_the_function(app: ModuleType, line: str, error: str) -> None:
    with pytest.raises(InvalidSpec) as raised:
        read(app, line).load()

    assert str(raised.value).startswith(f"app.py:3:1: workflow 'order': {error}")


def test_a_problem_of_the_whole_document_has_the_place_of_its_step(app: ModuleType) -> None:
    line = "charge.options(branch=lambda paid: when(paid.amount == 0).reset())('a', 1.0)"
    with pytest.raises(InvalidSpec) as raised:
        read(app, f"from orchestrator.builder import when; {line}").load()

    [problem] = raised.value.problems
    assert (problem.path, problem.code) == ("steps[1].branch", "loop_without_exit")
    assert (problem.source, problem.line, problem.column) == ("app.py", 5, 44)


def test_an_error_of_a_child_has_its_own_place(app: ModuleType) -> None:
    wrong = read(app, "checked.amnt")
    outer = workflow(name="outer")(lambda: {"child": wrong()})

    with pytest.raises(InvalidSpec, match=r"^app.py:5:5: workflow 'order': Checked has no field 'amnt'"):
        outer.load()


def test_an_error_of_other_code_is_raised_as_it_is(app: ModuleType) -> None:
    with pytest.raises(ZeroDivisionError):
        read(app, "1 / 0").load()


def test_a_value_of_another_workflow_is_rejected(app: ModuleType) -> None:
    kept: list[Any] = []
    read(app, "").load()
    first = workflow(name="first")(lambda: kept.append(app.check("a", 1)))
    first.load()
    second = workflow(name="second")(lambda: app.price(line=kept[0].lines[0]))

    with pytest.raises(InvalidSpec, match="the step 'check' does not belong to this workflow"):
        second.load()
    with pytest.raises(InvalidSpec, match=r"price\(\) is called outside of a workflow with a value"):
        app.price(line=kept[0].lines[0])


def test_the_item_of_a_map_cannot_be_read_elsewhere(app: ModuleType) -> None:
    exec("kept = []\ndef keep(line):\n    kept.append(line)\n    return price(line)\n", vars(app))
    line = "map_each(checked.lines, keep); price(kept[0])"

    with pytest.raises(InvalidSpec, match=r"the item of map_each\(\) can be read only in its function"):
        read(app, line).load()


def test_a_type_that_json_cannot_hold_is_an_error_at_load(app: ModuleType) -> None:
    source = "import threading\n@step\ndef lock(it: threading.Lock) -> str: ...\n"
    exec(source, vars(app))

    with pytest.raises(InvalidSpec, match="cannot be read from JSON"):
        read(app, "lock(it=checked.kind)").load()


def test_a_model_cannot_hold_references(app: ModuleType) -> None:
    exec("from pydantic import BaseModel\nclass Receipt(BaseModel):\n    amount: float\n", vars(app))

    with pytest.raises(
        InvalidSpec, match=r"app.py:5:12: .* a Receipt cannot be made of values that do not exist"
    ):
        read(app, "return Receipt(amount=checked.amount)").load()


def test_annotations_that_cannot_be_read_are_an_error_at_load(app: ModuleType) -> None:
    exec("@step\ndef ask(it: 'Missing') -> str: ...\n", vars(app))

    with pytest.raises(InvalidSpec, match=r"the annotations of ask\(\) cannot be read: name 'Missing'"):
        read(app, "ask(it=checked.kind)").load()


def test_two_functions_with_one_name_are_an_error(app: ModuleType) -> None:
    exec("@step(fn='check')\ndef other(it: str) -> str: ...\n", vars(app))

    with pytest.raises(InvalidSpec, match="two functions have the name 'check'"):
        read(app, "other(it='a')").load()


def test_a_decorator_rejects_what_cannot_be_a_step_or_a_workflow() -> None:
    from orchestrator import step

    with pytest.raises(TypeError, match=r"must not take \*args"):
        step(lambda *args: None)
    with pytest.raises(TypeError, match=r"step\(\) has no argument 'retyr'; did you mean 'retry'\?"):
        step(retyr=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"workflow\(\) has no argument 'tiemout'; did you mean 'timeout'\?"):
        workflow(tiemout="2d")  # type: ignore[call-overload]

    async def flow() -> None: ...

    with pytest.raises(TypeError, match="must not be async"):
        workflow(flow)


def test_an_operator_of_an_expression_has_no_value_either(app: ModuleType) -> None:
    with pytest.raises(InvalidSpec, match=r"write op\.length"):
        read(app, "len(op.filter(checked.lines, lambda line: line.price > 1))").load()
    assert "filter" in op.__all__
