"""Executors of the torture run. Their results depend only on their inputs.

Each call is written to a ledger, so that calls can be counted separately from results. An output names its
dispatch, so that an output that was accepted under the token of another dispatch is detected.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

Json = dict[str, Any]
LEDGER_VARIABLE = "TORTURE_LEDGER"


def plus(inputs: Json, context: Json) -> Json:
    _begin(inputs, context)
    return {"value": inputs["a"] + inputs["b"], **_by(context)}


def total(inputs: Json, context: Json) -> Json:
    _begin(inputs, context)
    return {"value": sum(inputs["values"]), **_by(context)}


def flaky(inputs: Json, context: Json) -> Json:
    """Fails on the first two attempts."""
    _begin(inputs, context)
    if context["attempt"] < 3:
        raise ConnectionError("busy")
    return {"value": inputs["n"], **_by(context)}


def broken(inputs: Json, context: Json) -> Json:
    _begin(inputs, context)
    raise ValueError("as intended")


def climb(inputs: Json, context: Json) -> Json:
    _begin(inputs, context)
    height = (inputs["height"] or 0) + inputs["n"]
    return {
        "_loop": "done" if height >= 3 * inputs["n"] else "again",
        "value": {"value": height, **_by(context)},
    }


async def oversleep(inputs: Json, context: Json) -> Json:
    _begin(inputs, context)
    await asyncio.sleep(20)
    return {"value": 0, **_by(context)}


def undo(inputs: Json, context: Json) -> Json:
    _begin(inputs, context)
    return _by(context)


def _begin(inputs: Json, context: Json) -> None:
    line = f"{context['idempotency_key']} {context['run_id']} {context['attempt']}\n"
    ledger = os.open(os.environ[LEDGER_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(ledger, line.encode())
    finally:
        os.close(ledger)
    time.sleep(inputs.get("ms", 0) / 1000)


def _by(context: Json) -> Json:
    return {"run_id": context["run_id"], "attempt": context["attempt"]}
