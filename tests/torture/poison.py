"""Events that cannot be handled, each with a mark that identifies its dead letter."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from orchestrator.redis_rq.keys import Keys

KEYS = Keys()
MEGABYTE = 1_000_000


def draw(rng: random.Random, number: int) -> tuple[str, dict[Any, Any]]:
    """Draw a poison event. Return its stream and fields. Each one makes exactly one dead letter."""
    mark = f"poison-{number}"
    event: dict[Any, Any] = {"run_id": "0", "attempt": "1", "token": "unknown", "step": "a"}
    unknown = {"execution": f"unknown#{number}"}
    starts: list[dict[Any, Any]] = [
        {"spec": '{"steps": ['},
        {"spec": json.dumps({"steps": [{"id": "a", "fn": "plus", "depends_on": ["b"]}]})},
        {"spec": json.dumps({"schema": 99, "stages": []})},
        {"spec": "[" * rng.randint(MEGABYTE, 3 * MEGABYTE)},
        {"workflow": "not-registered"},
        {"spec": b"\xff\xfe\x00"},
        {"nothing": "at all"},
    ]
    events: list[dict[Any, Any]] = [
        {"type": "nonsense", **unknown},
        {"type": "result", **unknown},
        {"type": "result", **event, **unknown, "output": '{"value": 1}'},
        {"type": "lost", **event, **unknown, "reason": "why not"},
        {"type": "signal", "name": "\n", "payload": "{"},
        {"type": "result", "execution": "x" * rng.randint(MEGABYTE, 10 * MEGABYTE)},
        {"type": b"\xff\xfe", **unknown},
        {},
    ]
    if rng.random() < 0.5:
        return KEYS.starts, rng.choice(starts) | {"execution_id": mark}  # a start has no other fields
    return KEYS.events(rng.randrange(KEYS.partitions)), rng.choice(events) | {"mark": mark}


def mark_of(fields: Mapping[Any, Any]) -> str | None:
    """Return the mark of a poison event, or None."""
    found = str(fields.get("mark") or fields.get("execution_id"))
    return found if found.startswith("poison-") else None
