"""The tools, called in this process on a real Redis with a real coordinator."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from orchestrator.client import Client
from orchestrator.mcp.calls import TOOLS, call_tool, list_tools
from orchestrator.mcp.errors import ADVICE
from orchestrator.mcp.folding import MAX_CHARS, count_chars
from orchestrator.mcp.system import System
from orchestrator.settings import Settings
from orchestrator.web.problems import STATUSES
from worlds.documents import document, step
from worlds.page_executions import raise_error, run_execution
from worlds.redis_world import RedisWorld

GREET = document(step("greet"), name="greet", inputs={"name": {"type": "string", "required": True}})
WAITS = {"name": "approval", "steps": [{"id": "approve", "wait": {"signal": "approved"}}]}


def call(system: System, name: str, **arguments: Any) -> dict[str, Any]:
    found = call_tool(system, name, arguments)
    assert not found.is_error, found.content
    return found.content


def fail(system: System, name: str, **arguments: Any) -> dict[str, Any]:
    found = call_tool(system, name, arguments)
    assert found.is_error, found.content
    assert found.content["advice"] == ADVICE[found.content["code"]]
    return found.content


def test_every_tool_describes_itself_in_a_few_words() -> None:
    for tool in TOOLS:
        assert 60 < len(tool.description) < 400, tool.name
        assert "$ref" not in str(tool.input_schema), tool.name
        assert tool.input_schema["additionalProperties"] is False
        assert not (tool.is_destructive and not tool.changes)
    assert len({one.name for one in TOOLS}) == 11


def test_every_known_error_has_advice() -> None:
    assert set(STATUSES) - {"history_not_kept"} <= set(ADVICE)


# ---- workflows and starts


def test_a_document_is_validated_with_every_problem(system: System) -> None:
    good = call(system, "validate_workflow", document=GREET)
    bad = call(system, "validate_workflow", document="steps:\n  - {id: a, fn: a, depends_on: [b]}\n")

    assert (good["valid"], good["steps"]) == (True, ["greet"])
    assert good["inputs"] == {"name": {"type": "string", "required": True}}
    assert bad["valid"] is False
    assert [(one["code"], one["line"]) for one in bad["problems"]] == [("unknown_dependency", 2)]


def test_a_registered_workflow_is_listed_described_and_started(live: RedisWorld, system: System) -> None:
    system.client.register("greet", GREET)

    listed = call(system, "list_workflows")
    described = call(system, "list_workflows", workflow="greet")
    first = call(system, "start_execution", workflow="greet", inputs={"name": "x"}, idempotency_key="k1")
    second = call(system, "start_execution", workflow="greet", inputs={"name": "x"}, idempotency_key="k1")

    assert [one["name"] for one in listed["workflows"]] == ["greet"]
    assert described["inputs"]["name"]["required"] is True
    assert first["existing"] is False
    assert second == {"execution_id": first["execution_id"], "existing": True}
    assert (
        call(system, "list_executions", workflow="greet")["executions"][0]["execution_id"]
        == first["execution_id"]
    )


def test_a_wrong_start_starts_nothing(live: RedisWorld, system: System) -> None:
    system.client.register("greet", GREET)

    wrong_input = fail(system, "start_execution", workflow="greet", inputs={"name": 5})
    unknown = fail(system, "start_execution", workflow="gret")
    invalid = fail(system, "start_execution", document={"steps": [{"id": "a"}]})
    both = fail(system, "start_execution", workflow="greet", document=GREET)

    assert (wrong_input["code"], wrong_input["problems"][0]["path"]) == ("start_rejected", "inputs.name")
    assert unknown["code"] == "unknown_workflow"
    assert invalid["code"] == "invalid_spec"
    assert invalid["problems"]
    assert both["code"] == "invalid_request"
    assert call(system, "list_executions")["executions"] == []


# ---- reading


def test_a_failure_is_shown_explained_and_grouped(world: RedisWorld, system: System) -> None:
    run_execution(world, executors={"charge": raise_error}, execution_id="order-1")

    execution = call(system, "get_execution", execution_id="order-1")
    explanation = call(system, "explain_execution", execution_id="order-1")
    failures = call(system, "list_failures")
    failed = call(system, "get_step", execution_id="order-1", step="charge")

    assert (execution["status"], execution["is_over"]) == ("failed", True)
    assert execution["step_counts"]["failed"] == 1
    assert "the card was declined" in execution["steps"]["charge"]["error"]["message"]
    assert "the card was declined" in str(explanation["reasons"])
    assert failures["failures"][0]["examples"] == ["order-1"] or failures["failures"][0]["failed"] == 1
    assert failed["error"]["message"] == execution["steps"]["charge"]["error"]["message"]
    assert call(system, "list_executions", status=["failed"])["executions"]
    assert call(system, "list_executions", status=["complete"])["executions"] == []


def test_a_large_output_is_folded_and_read_piece_by_piece(world: RedisWorld, system: System) -> None:
    text, rows = "abc" * 20_000, list(range(1_000))
    run_execution(
        world,
        document(step("load")),
        {"load": lambda inputs: {"text": text, "rows": rows}},
        execution_id="x1",
    )

    whole = call(system, "get_execution", execution_id="x1")
    pieces, offset = "", 0
    while True:
        part = call(system, "get_step", execution_id="x1", step="load", path="output.text", offset=offset)
        pieces += part["value"]
        if "next_offset" not in part:
            break
        offset = part["next_offset"]
    row = call(system, "get_step", execution_id="x1", step="load", path="output.rows.999")
    missing = fail(system, "get_step", execution_id="x1", step="load", path="output.colour")

    assert count_chars(whole) <= MAX_CHARS
    assert "steps.load.output.text" in [one["path"] for one in whole["left_out"]]
    assert pieces == text
    assert row["value"] == 999
    assert missing["code"] == "invalid_request"
    assert "rows, text" in missing["message"] or "text, rows" in missing["message"]


def test_secrets_are_redacted_everywhere(world: RedisWorld, system: System) -> None:
    spec = document(step("login"), history="full")
    run_execution(
        world,
        spec,
        {"login": lambda inputs: {"password": "hunter2-very-secret", "text": "it was hunter2-very-secret"}},
        execution_id="x1",
        inputs={"api_key": "sk-123456789"},
    )

    shown = [
        call(system, "get_execution", execution_id="x1"),
        call(system, "get_step", execution_id="x1", step="login"),
        call(system, "get_step", execution_id="x1", step="login", path="output.password"),
        call(system, "get_step", execution_id="x1", step="login", path="output"),
        call(system, "explain_execution", execution_id="x1"),
    ]

    assert "hunter2-very-secret" not in str(shown)
    assert "sk-123456789" not in str(shown)
    assert "redacted" in str(shown[0])


# ---- changing


def test_a_signal_and_its_effect(live: RedisWorld, system: System) -> None:
    started = call(system, "start_execution", document=WAITS, wait_seconds=1)
    execution_id = started["execution_id"]
    reasons = call(system, "explain_execution", execution_id=execution_id)["reasons"]

    sent = call(system, "send_signal", execution_id=execution_id, signal="approved", payload={"by": "ada"})
    ended = call(system, "get_execution", execution_id=execution_id, wait_seconds=50)

    assert started["is_over"] is False
    assert "approved" in str(reasons)
    assert sent == {"execution_id": execution_id, "signal": "approved", "kept": False}
    assert (ended["status"], ended["steps"]["approve"]["output"]) == ("complete", {"by": "ada"})


def test_controls_are_recorded_with_the_user(
    live: RedisWorld, system: System, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orchestrator.mcp")
    execution_id = call(system, "start_execution", document=WAITS)["execution_id"]

    cancelled = call(system, "cancel_execution", execution_id=execution_id, reason="a mistake")
    shown = call(system, "get_execution", execution_id=execution_id)
    again = call(system, "cancel_execution", execution_id=execution_id)
    retried = call(system, "retry_execution", execution_id=execution_id)
    fail(system, "retry_execution", execution_id=execution_id)

    assert (cancelled["status"], cancelled["changed"]) == ("cancelled", True)
    assert (shown["cancelled"]["by"], shown["cancelled"]["reason"]) == ("ada", "a mistake")
    assert again["changed"] is False
    assert retried["status"] == "in_progress"
    history = str(system.client.history(execution_id))
    assert "'by': 'ada'" in history
    assert "a mistake" in history
    assert f"cancel_execution of {execution_id} by ada: ok" in caplog.messages
    assert f"retry_execution of {execution_id} by ada: rejected" in caplog.messages


def test_a_server_that_reads_offers_and_runs_nothing_else(live: RedisWorld, redis_url: str) -> None:
    reader = System(Settings(redis_url=redis_url), is_read_only=True)
    before = live.client.xlen(live.keys.starts)

    names = {one.name for one in list_tools(reader)}
    errors = [fail(reader, one.name) for one in TOOLS if one.changes]

    assert names == {one.name for one in TOOLS if not one.changes}
    assert names >= {"get_execution", "validate_workflow"}
    assert {one["code"] for one in errors} == {"read_only"}
    assert len(errors) == 4
    assert live.client.xlen(live.keys.starts) == before


# ---- hostile arguments


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("get_execution", {"execution_id": "nobody"}, "not_found"),
        ("get_execution", {"execution_id": "no#body"}, "not_found"),
        ("get_execution", {"execution_id": "x" * 100_000}, "invalid_request"),
        ("get_execution", {"execution_id": "*\r\nFLUSHALL\r\n"}, "not_found"),
        ("get_execution", {"execution_id": ["a"]}, "invalid_request"),
        ("get_execution", {}, "invalid_request"),
        ("get_execution", {"execution_id": "a", "wait_seconds": 10**9}, "invalid_request"),
        ("get_execution", {"execution_id": "a", "waitseconds": 1}, "invalid_request"),
        ("get_step", {"execution_id": "nobody", "step": "a"}, "not_found"),
        ("explain_execution", {"execution_id": "nobody"}, "not_found"),
        ("send_signal", {"execution_id": "nobody", "signal": "go"}, "not_found"),
        ("send_signal", {"execution_id": "no#body", "signal": "go"}, "not_found"),
        ("cancel_execution", {"execution_id": "nobody"}, "not_found"),
        ("retry_execution", {"execution_id": "nobody"}, "not_found"),
        ("list_executions", {"after": "garbage"}, "bad_query"),
        ("list_executions", {"status": ["eaten"]}, "invalid_request"),
        ("list_executions", {"limit": 10**6}, "invalid_request"),
        ("list_workflows", {"workflow": "nobody"}, "unknown_workflow"),
        ("start_execution", {"document": "x: [" * 1_000}, "invalid_spec"),
        ("start_execution", {"document": {"steps": [{"id": "a", "fn": "a"}] * 100_000}}, "invalid_spec"),
        ("start_execution", {"workflow": "a", "labels": {"a b": "c"}}, "invalid_request"),
        ("start_execution", {"workflow": "a", "idempotency_key": "a b"}, "invalid_request"),
        ("drop_everything", {}, "unknown_tool"),
        ("__init__", {"a": 1}, "unknown_tool"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_hostile_arguments_are_errors_with_a_code(
    system: System, name: str, arguments: dict[str, Any], code: str
) -> None:
    found = fail(system, name, **arguments)

    assert found["code"] == code, found
    assert count_chars(found) < MAX_CHARS


def test_a_value_that_is_nested_too_deeply_is_rejected(system: System) -> None:
    value: Any = 1
    for _ in range(5_000):
        value = [value]

    assert fail(system, "start_execution", workflow="a", inputs={"a": value})["code"] == "invalid_request"


def test_a_defect_shows_no_text_of_its_own(
    system: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("with a secret")

    monkeypatch.setattr(Client, "list", broken)

    found = fail(system, "list_executions")

    assert found["code"] == "internal"
    assert "secret" not in str(found)
    assert "with a secret" in caplog.text
