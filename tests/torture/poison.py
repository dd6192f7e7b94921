"""Events that nobody can handle, each with a mark by which its dead letter is known."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from orchestrator.redis_rq.keys import Keys

KEYS = Keys()
MEGABYTE = 1_000_000


def draw(rng: random.Random, number: int) -> tuple[str, dict[Any, Any]]:
    """The stream and the fields of one; every one of them makes exactly one dead letter."""
    mark = f"poison-{number}"
    event: dict[Any, Any] = {"run_id": "0", "attempt": "1", "token": "nobodys", "step": "a"}
    nobody = {"execution": f"nobody#{number}"}
    starts: list[dict[Any, Any]] = [
        {"spec": '{"steps": ['},
        {"spec": json.dumps({"steps": [{"id": "a", "fn": "plus", "depends_on": ["b"]}]})},
        {"spec": json.dumps({"schema": 99, "stages": []})},
        {"spec": "[" * rng.randint(MEGABYTE, 3 * MEGABYTE)},
        {"workflow": "nobody-has-registered-this"},
        {"spec": b"\xff\xfe\x00"},
        {"nothing": "at all"},
    ]
    events: list[dict[Any, Any]] = [
        {"type": "nonsense", **nobody},
        {"type": "result", **nobody},
        {"type": "result", **event, **nobody, "output": '{"value": 1}'},
        {"type": "lost", **event, **nobody, "reason": "why not"},
        {"type": "signal", "name": "\n", "payload": "{"},
        {"type": "result", "execution": "x" * rng.randint(MEGABYTE, 10 * MEGABYTE)},
        {"type": b"\xff\xfe", **nobody},
        {},
    ]
    if rng.random() < 0.5:
        return KEYS.starts, rng.choice(starts) | {"execution_id": mark}  # it knows no other fields
    return KEYS.events(rng.randrange(KEYS.partitions)), rng.choice(events) | {"mark": mark}


def mark_of(fields: Mapping[Any, Any]) -> str | None:
    """The mark that an event has, if it is poison."""
    found = str(fields.get("mark") or fields.get("execution_id"))
    return found if found.startswith("poison-") else None
