"""Executors that do with a secret what none should, and the same with a marker that may be seen."""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

Json = dict[str, Any]

logger = logging.getLogger("shop")


def returns(inputs: Json, configuration: Json) -> Json:
    password = inputs["password"]
    return {
        "echo": password,
        password: [f"is {password}", json.dumps(inputs), repr(inputs)],
        "header": configuration["header"],
        "url": f"https://example.org/?key={quote(password)}",
        "basic": base64.b64encode(f"ada:{password}".encode()).decode(),
        "marker": f"{inputs['marker']} returned",
    }


def raises(inputs: Json, context: Json) -> Json:
    logger.info("attempt %d with %s", context["attempt"], inputs["password"])
    raise ConnectionError(f"{inputs['marker']} raised: 401 for {inputs['password']}, {inputs}")


def tells(inputs: Json, log: Callable[[str], None], heartbeat: Callable[..., None]) -> Json:
    log(f"{inputs['marker']} logged: {inputs['password']}")
    heartbeat(0.5, note=f"{inputs['marker']} noted: {inputs['password']}")
    logger.warning("%s warned: %s", inputs["marker"], inputs["password"], extra={"with": inputs})
    try:
        raise LookupError(f"{inputs['marker']} excepted: {inputs['password']}")
    except LookupError:
        logger.exception("it broke")
    return {"_loop": "again", "value": {"kept": inputs["password"]}}


def prints(inputs: Json) -> None:
    print(inputs["marker"], "printed:", inputs["password"])
    print(f"{inputs['marker']} cried: {inputs['password']}", file=sys.stderr, flush=True)
    sys.stdout.flush()


def undo(inputs: Json) -> Json:
    raise ValueError(f"{inputs['marker']} undone: {inputs['password']}")
