"""Executors for steps with `isolation: process`: another process imports this module."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def pid(inputs: Json) -> Json:
    return {"pid": os.getpid()}


def hang(inputs: Json) -> Json:
    """Write the pid of this process to a file, and never return."""
    path = Path(inputs["file"])
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    while True:
        time.sleep(60)


def die_once(inputs: Json) -> Json:
    path = Path(inputs["file"])
    if not path.exists():
        path.touch()
        os._exit(3)
    return {"died": True}


def report(inputs: Json, heartbeat: Any, log: Any, context: Any) -> Json:
    heartbeat(0.5, "half")
    log("done")
    return {"step": context["step"]}


def beat_once(inputs: Json, heartbeat: Any) -> Json:
    heartbeat()
    while True:
        time.sleep(60)


def refuse(inputs: Json) -> Json:
    raise ValueError("not today")


def large(inputs: Json) -> Json:
    return {"text": "x" * inputs["size"]}


async def later(inputs: Json) -> Json:
    return {"pid": os.getpid()}
