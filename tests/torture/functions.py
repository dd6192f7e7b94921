"""Executors of the torture: what they return follows from what they are given.

Each call is written into a ledger, so that executions can be counted apart from results. An output says of
which dispatch it is, so that one which was accepted under the token of another can be told.
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
    """Fails twice."""
    _begin(inputs, context)
    if context["attempt"] < 3:
        raise ConnectionError("busy")
    return {"value": inputs["n"], **_by(context)}


def broken(inputs: Json, context: Json) -> Json:
    _begin(inputs, context)
    raise ValueError("as asked")


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
