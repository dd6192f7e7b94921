"""The executors of support-agent: the model, its tools, and the memory of the conversation."""

from __future__ import annotations

import json
from typing import Any, TypedDict

import fake_model
import fake_support


class Prompt(TypedDict):
    request: str
    messages: list[dict[str, Any]]
    api_key: str


class ToolCall(TypedDict):
    tool: str
    arguments: dict[str, Any]
    is_allowed: bool


class BadCall(Exception):
    """The model asks for something that does not exist. Another attempt would not help."""


def ask_model(inputs: Prompt) -> dict[str, Any]:
    """Ask the model for its next message: an answer, or calls of tools."""
    conversation = [{"role": "user", "content": inputs["request"]}, *inputs["messages"]]
    reply = fake_model.complete(conversation, inputs["api_key"])
    calls = reply.get("calls", [])
    message = {"role": "assistant", "content": reply["content"], "calls": calls}
    return {
        "message": message,
        "calls": calls,
        "answer": None if calls else reply["content"],
        "tokens": reply["tokens"],
    }


def call_tool(inputs: ToolCall, context: dict[str, Any]) -> dict[str, Any]:
    """Call a tool. Each call of each round has a key of its own, which is the same at every attempt."""
    if not inputs["is_allowed"]:
        return {"denied": f"{inputs['tool']} was not approved"}
    arguments = inputs["arguments"]
    try:
        match inputs["tool"]:
            case "find_order":
                return fake_support.find_order(int(arguments["number"]))
            case "refund_order":
                number, amount = int(arguments["number"]), float(arguments["amount"])
                return fake_support.refund_order(context["idempotency_key"], number, amount)
    except (KeyError, TypeError, ValueError) as error:
        raise BadCall(f"{inputs['tool']} cannot be called with {json.dumps(arguments)}: {error}") from error
    raise BadCall(f"there is no tool {inputs['tool']}")


def append_messages(inputs: dict[str, Any]) -> dict[str, Any]:
    """Append the message of the model, and the result of each of its calls."""
    results = [
        {"role": "tool", "tool": call["tool"], "content": json.dumps(result)}
        for call, result in zip(inputs["calls"], inputs["results"], strict=True)
    ]
    return {"messages": [*inputs["messages"], inputs["message"], *results]}
