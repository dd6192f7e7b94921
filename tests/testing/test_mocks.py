"""Mocks: what they answer, how long they take, and what they were called with."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from orchestrator.testing import Call, MockMissing, WorkflowTest, WorkflowTestError
from worlds.documents import document, step

Json = dict[str, Any]


def one(**keys: Any) -> WorkflowTest:
    """A test of one step, `pay`, which calls `charge`."""
    return WorkflowTest({"steps": [{"id": "pay", "fn": "charge", "input": {"n": 1}, **keys}]})


# ---- answers


@pytest.mark.parametrize("name", ["pay", "charge"])
def test_a_mock_stands_for_a_step_or_for_an_executor(name: str) -> None:
    test = one()
    test.mock(name, {"receipt": 7})

    assert test.run().step("pay").output == {"receipt": 7}


def test_the_mock_of_a_step_goes_before_the_one_of_its_executor() -> None:
    test = WorkflowTest({"steps": [{"id": "a", "fn": "f"}, {"id": "b", "fn": "f"}]})
    test.mock("f", {"by": "f"})
    test.mock("b", {"by": "b"})

    test.run()

    assert [test.step(name).output for name in "ab"] == [{"by": "f"}, {"by": "b"}]


def test_a_mock_goes_before_a_real_executor() -> None:
    test = WorkflowTest(document(step("charge")), executors={"charge": lambda inputs: {"by": "bank"}})
    test.mock("charge", {"by": "mock"})

    assert test.run().state == {"by": "mock"}


def test_a_mock_without_an_answer_gives_nothing() -> None:
    test = one()
    test.mock("pay")

    assert test.run().step("pay").output is None


@pytest.mark.parametrize("answer", [ConnectionError("away"), ConnectionError])
def test_an_exception_is_raised(answer: Any) -> None:
    test = one()
    test.mock("pay", answer)

    error = test.run().error or {}
    assert (error["kind"], error["type"]) == ("exception", "ConnectionError")


def test_a_function_gets_the_inputs() -> None:
    test = one()
    test.mock("pay", lambda inputs: {"twice": inputs["n"] * 2})

    assert test.run().state == {"twice": 2}


def test_a_function_gets_the_context_if_it_names_it() -> None:
    def charge(inputs: Json, *, context: Json) -> Json:
        return {key: context[key] for key in ("execution_id", "step", "item", "attempt", "idempotency_key")}

    test = one(map={"over": [0, 1]})
    test.mock("charge", charge)

    assert test.run().step("pay#1").output == {
        "execution_id": "rehearsal",
        "step": "pay",
        "item": 1,
        "attempt": 1,
        "idempotency_key": "rehearsal#pay#0#1",
    }


def test_a_function_without_a_signature_gets_the_inputs() -> None:
    test = one()
    test.mock("pay", dict)  # it has no signature

    assert test.run().step("pay").output == {"n": 1}


def test_a_function_without_a_parameter_is_refused() -> None:
    test = one()
    test.mock("pay", lambda: {"receipt": 7})

    with pytest.raises(
        WorkflowTestError, match=r"the mock of 'pay' must take the inputs: def mock\(inputs\)"
    ):
        test.run()


def test_an_assertion_in_a_mock_fails_the_test_and_not_the_step() -> None:
    def charge(inputs: Json) -> Json:
        assert inputs["n"] == 2, "the wrong amount"
        return {}

    test = one()
    test.mock("pay", charge)

    with pytest.raises(AssertionError, match="the wrong amount"):
        test.run()


def test_an_assertion_that_a_real_executor_raises_is_its_failure() -> None:
    def charge(inputs: Json) -> Json:
        raise AssertionError("not here")

    test = WorkflowTest(document(step("charge")), executors={"charge": charge})

    assert (test.run().error or {})["type"] == "AssertionError"


def generated() -> Iterator[Any]:
    yield OSError("busy")
    yield {"n": 2}


@pytest.mark.parametrize(
    "answers", [[OSError("busy"), {"n": 2}], (OSError("busy"), lambda inputs: {"n": 2}), generated()]
)
def test_of_several_answers_each_call_has_one(answers: Any) -> None:
    test = one(max_attempts=2)
    test.mock("pay", answers)

    assert test.run().step("pay").output == {"n": 2}


def test_a_mock_that_has_no_answer_left_says_so() -> None:
    test = one(max_attempts=3)
    test.mock("pay", [OSError("busy")])

    with pytest.raises(WorkflowTestError, match="the mock of 'pay' has no answer for call 2: its list has 1"):
        test.run()


def test_what_a_mock_gives_is_judged_as_what_an_executor_gives() -> None:
    test = WorkflowTest(document(step("a"), step("b"), defaults={"on_error": "continue"}))
    test.mock("a", {"set": {1}})
    test.mock("b", "text")

    test.run()

    assert [(test.step(name).error or {})["kind"] for name in "ab"] == ["bad_output", "bad_output"]


def test_what_a_mock_gave_stays_the_tests_own() -> None:
    answer = {"list": [1]}
    test = one()
    test.mock("pay", answer)

    test.run()
    answer["list"].append(2)

    assert test.step("pay").output == {"list": [1]}


# ---- missing executors


def test_without_an_executor_and_a_mock_the_missing_one_is_named() -> None:
    test = one()

    with pytest.raises(
        MockMissing, match=r"step pay calls 'charge': no executor and no mock; add test\.mock\('charge'"
    ):
        test.run()


def test_a_missing_mock_can_be_brought_later() -> None:
    test = WorkflowTest(document(step("a"), step("b", "a"), step("c")))
    test.mock("a", {})
    test.mock("b", {})
    with pytest.raises(MockMissing):
        test.run()

    test.mock("c", {})

    assert test.run().status == "complete"
    assert [test.executed(name) for name in "abc"] == [1, 1, 1]


def test_an_executor_that_none_of_the_modules_has_is_missing() -> None:
    test = WorkflowTest(document(step("no_such_executor")), executors="orchestrator_executors.invoices")

    with pytest.raises(MockMissing, match="step no_such_executor"):
        test.run()


@pytest.mark.parametrize("ask", ["mock", "calls", "executed"])
def test_a_name_that_means_nothing_is_refused(ask: str) -> None:
    test = one()

    with pytest.raises(WorkflowTestError, match=r"no executor has the name 'chrage'; .*'charge'\?"):
        getattr(test, ask)("chrage")


def test_names_of_children_and_compensations_mean_something() -> None:
    inner = document(step("inner", compensate={"fn": "undo"}))
    test = WorkflowTest(
        {"steps": [{"id": "a", "workflow": inner}, {"id": "b", "workflow": "other"}]},
        workflows={"other": document(step("registered"))},
    )

    for name in ("inner", "undo", "registered"):
        test.mock(name, {})

    assert test.run().status == "complete"


# ---- calls


def test_a_mock_remembers_its_calls() -> None:
    test = one(max_attempts=2)
    mock = test.mock("pay", [OSError("busy"), {}])

    test.skip("1h")

    assert mock.calls == [{"n": 1}, {"n": 1}]
    assert repr(mock) == "Mock('pay', calls=2)"
    first, second = mock.calls
    assert (first.step, first.fn, first.attempt, first.run_id) == ("pay", "charge", 1, 0)
    assert (second.attempt, second.run_id) == (2, 1)
    assert first.idempotency_key == second.idempotency_key == "rehearsal#pay#0"
    assert first.at == datetime(2026, 1, 1, tzinfo=UTC)


def test_calls_of_real_executors_are_remembered_by_step_and_by_executor() -> None:
    steps = [{"id": "a", "fn": "f", "input": {"n": 1}}, {"id": "b", "fn": "f", "input": {"n": 2}}]
    test = WorkflowTest({"steps": steps}, executors={"f": lambda inputs: inputs})

    test.run()

    assert test.calls("f") == [{"n": 1}, {"n": 2}]
    assert test.calls("b") == [{"n": 2}]
    assert (test.executed("f"), test.executed("a")) == (2, 1)


def test_calls_of_items_are_those_of_their_map_and_their_own() -> None:
    test = WorkflowTest(document(step("m", map={"over": [5, 6]}, input={"n": {"var": "item"}})))
    test.mock("m", {})

    test.run()

    assert test.calls("m") == [{"n": 5}, {"n": 6}]
    assert test.calls("m#1") == [{"n": 6}]


def test_a_call_is_what_it_was_when_it_was_made() -> None:
    def spoil(inputs: Json) -> Json:
        inputs["list"].append(2)
        return {}

    test = WorkflowTest(document(step("spoil", input={"list": [1]})), executors={"spoil": spoil})

    assert test.run().calls("spoil") == [{"list": [1]}]
    assert isinstance(test.calls("spoil")[0], Call)


# ---- those that take their time


def test_a_slow_mock_brings_its_result_when_its_time_is_over() -> None:
    test = one(timeout="10m")
    test.mock("pay", {"receipt": 7}, takes="5m")

    test.run()

    assert test.step("pay").status == "in_progress"
    assert test.skip("299s").status == "in_progress"
    assert test.skip("1s").status == "complete"
    assert test.executed("pay") == 1
    known = test.step("pay").record
    assert (known.started_at, known.ended_at) == ("2026-01-01T00:00:00.000Z", "2026-01-01T00:05:00.000Z")


def test_a_mock_that_takes_longer_than_it_may_times_out_at_its_deadline() -> None:
    test = one(timeout="5m", max_attempts=2)
    test.mock("pay", [{"receipt": "late"}, {"receipt": "in time"}], takes="10m")

    test.run()

    assert test.waits_for == ["pay: result until 2026-01-01T00:05:00Z"]

    test.skip("5m")

    moves = [(entry["at"], entry["to"]) for entry in test.history if entry.get("error")]
    assert moves == [("2026-01-01T00:05:00.000Z", "retry")]

    test.skip("5m")

    assert test.status == "failed"
    assert (test.error or {})["message"] == "execution timeout exceeded (300 s)"
    assert test.state == {"ok": False, "error": "execution timeout exceeded (300 s)"}


def test_the_result_of_a_slow_mock_is_dropped_when_it_is_no_longer_needed() -> None:
    back = {"condition": True, "action": {"set": "steps.slow.status", "value": "ready"}}
    done = {"condition": {"var": "done"}, "action": "complete"}
    test = WorkflowTest(document(step("slow"), step("quick", branch=[done, back])))
    test.mock("slow", [{"n": 1}, {"n": 2}], takes="1m")
    test.mock("quick", [{}, {"done": True}])

    test.run(skip_waits=True)

    assert test.step("slow").output == {"n": 2}
    assert test.counters == {}  # not even published
    assert test.now == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


def test_a_slow_step_is_not_waited_for_when_its_workflow_ends() -> None:
    test = WorkflowTest(document(step("slow"), step("bad")))
    test.mock("slow", {}, takes="1h")
    test.mock("bad", ValueError("no"))

    test.run(skip_waits=True)

    assert test.now == datetime(2026, 1, 1, tzinfo=UTC)
    assert test.skip("2h").statuses == {"slow": "cancelled", "bad": "failed"}


def test_a_job_that_is_no_longer_needed_is_not_run() -> None:
    test = WorkflowTest(document(step("a"), step("b")))
    test.mock("a", {})
    with pytest.raises(MockMissing):
        test.run()
    test.mock("b", {})

    test.cancel().run()

    assert test.executed("b") == 0
