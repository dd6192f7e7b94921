"""A model that handles refunds by fixed rules, in place of the API of a provider."""

from __future__ import annotations

import json
import re
from typing import Any


def complete(conversation: list[dict[str, Any]], api_key: str) -> dict[str, Any]:
    """Return content, calls of tools and the number of tokens, as the API of a provider does."""
    if not api_key:
        raise PermissionError("401: no API key")
    reply = next_message(conversation)
    return {"content": "", **reply, "tokens": len(json.dumps(conversation)) // 4 + 50}


def next_message(conversation: list[dict[str, Any]]) -> dict[str, Any]:
    request, results = conversation[0]["content"], [one for one in conversation if one["role"] == "tool"]
    order = re.search(r"order (\d+)", request)
    if order is None:
        return {"content": "Which order do you mean?"}
    if not results:
        return {"calls": [{"tool": "find_order", "arguments": {"number": int(order[1])}}]}
    last = json.loads(results[-1]["content"])
    if last.get("ok") is False:
        return {"content": f"I cannot help: {last['error']}."}
    if "denied" in last:
        return {"content": f"A colleague will call you about order {order[1]}."}
    if "refund" in last:
        return {"content": f"{last['amount']:g} EUR for order {order[1]} are on their way."}
    if "refund" in request:
        arguments = {"number": int(order[1]), "amount": last["amount"]}
        return {"calls": [{"tool": "refund_order", "arguments": arguments}]}
    return {"content": f"Order {order[1]} is {last['status']}."}
