"""Tests of the agent: `pytest` in this folder. The model is mocked where a test needs a certain one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_support
import pytest

from orchestrator.testing import WorkflowTest

WORKFLOW = Path(__file__).with_name("workflow.yaml")
REFUND = "Please refund order 17."
Start = Callable[..., WorkflowTest]


@pytest.fixture
def start(
    workflow_test: type[WorkflowTest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., WorkflowTest]:
    monkeypatch.setenv("SUPPORT_DB", str(tmp_path / "support.db"))

    def start(request: str, **inputs: Any) -> WorkflowTest:
        return workflow_test(WORKFLOW, {"request": request, **inputs}, executors="agent_loop")

    return start


def asks_for(tool: str, **arguments: Any) -> dict[str, Any]:
    calls = [{"tool": tool, "arguments": arguments}]
    message = {"role": "assistant", "content": "", "calls": calls}
    return {"message": message, "calls": calls, "answer": None, "tokens": 100}


def answers(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "calls": []}
    return {"message": message, "calls": [], "answer": text, "tokens": 100}


def test_a_question_is_answered_with_a_tool_and_without_a_human(start: Start) -> None:
    test = start("Where is order 17?").run()

    assert test.status == "complete"
    assert test.outcome["answer"] == "Order 17 is delivered."
    assert test.outcome["rounds"] == 2
    assert [message["role"] for message in test.state["messages"]] == ["assistant", "tool", "assistant"]


def test_a_refund_waits_for_its_approval(start: Start) -> None:
    test = start(REFUND).run()
    assert test.waits_for == ["approval: signal approve or deny until 2026-01-01T01:00:00Z"]
    assert fake_support.refunds() == []

    test.signal("approve", {"by": "ada", "round": 2}).run()

    assert test.outcome["answer"] == "49 EUR for order 17 are on their way."
    assert fake_support.refunds() == [(17, 49.0)]


@pytest.mark.parametrize("how", ["deny", "timeout"])
def test_a_refund_that_is_not_approved_is_not_made(start: Start, how: str) -> None:
    test = start(REFUND).run()

    if how == "deny":
        test.signal("deny", {"by": "ada", "round": 2})
    test.skip("1h")

    assert test.outcome["answer"] == "A colleague will call you about order 17."
    assert fake_support.refunds() == []


def test_an_approval_counts_for_its_own_round_alone(start: Start) -> None:
    test = start(REFUND)
    refund = asks_for("refund_order", number=17, amount=49)
    test.mock("ask_model", [refund, refund, answers("done")])
    test.run()

    test.signal("approve", {"round": 1}).signal("approve", {"round": 1}).run()

    assert len(fake_support.refunds()) == 1
    assert test.step("approval").status == "waiting"
    test.signal("deny", {"round": 2}).run()
    assert test.outcome["answer"] == "done"
    assert len(fake_support.refunds()) == 1


def test_harmless_calls_of_a_round_run_although_another_is_denied(start: Start) -> None:
    both = asks_for("find_order", number=17)
    both["calls"].append({"tool": "refund_order", "arguments": {"number": 17, "amount": 49}})
    test = start(REFUND)
    test.mock("ask_model", [both, answers("done")])

    test.run().signal("deny", {"round": 1}).run()

    results = [one["content"] for one in test.state["messages"] if one["role"] == "tool"]
    assert '"status": "delivered"' in results[0]
    assert "was not approved" in results[1]


def test_the_model_reads_the_error_of_a_tool(start: Start) -> None:
    test = start("Where is order 99?").run()

    assert test.status == "complete"
    assert test.executed("act") == 1
    assert test.outcome["answer"].endswith(
        'find_order cannot be called with {"number": 99}: there is no order 99.'
    )


def test_a_tool_that_does_not_exist_is_an_error_for_the_model(start: Start) -> None:
    test = start(REFUND)
    test.mock("ask_model", [asks_for("drop_tables"), answers("sorry")])

    test.run()

    assert test.outcome["answer"] == "sorry"
    assert "there is no tool drop_tables" in str(test.state["messages"])


def test_a_model_that_never_answers_is_stopped(start: Start) -> None:
    test = start(REFUND, max_rounds=3)
    test.mock("ask_model", lambda inputs: asks_for("find_order", number=17))

    test.run()

    assert test.status == "failed"
    assert test.error["message"] == "no answer in 3 rounds"
    assert test.executed("think") == 3
    assert test.executed("act") == 2


def test_the_budget_of_tokens_ends_the_loop(start: Start) -> None:
    test = start(REFUND, token_budget=250)
    test.mock("ask_model", lambda inputs: asks_for("find_order", number=17))

    test.run()

    assert test.error["message"] == "over the budget after 300 tokens"
    assert test.executed("think") == 3


def test_an_overloaded_model_is_asked_again_and_costs_no_round(start: Start) -> None:
    test = start(REFUND)
    test.mock("ask_model", [ConnectionError("529"), ConnectionError("529"), answers("done")])

    test.run(skip_waits=True)

    assert test.outcome == {"answer": "done", "rounds": 1, "tokens": 100}


def test_a_refund_is_made_once_when_the_worker_dies(start: Start) -> None:
    test = start(REFUND).run()
    test.kill("worker.result", step="act")

    test.signal("approve", {"round": 2}).run()

    assert fake_support.refunds() == [(17, 49.0)]


def test_each_round_has_keys_of_its_own(start: Start) -> None:
    test = start(REFUND)
    refund = asks_for("refund_order", number=17, amount=1)
    test.mock("ask_model", [refund, refund, answers("done")])

    test.run().signal("approve", {"round": 1}).run().signal("approve", {"round": 2}).run()

    assert fake_support.refunds() == [(17, 1.0), (17, 1.0)]
