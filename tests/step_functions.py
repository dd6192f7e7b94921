"""Executors for tests on real processes: plain functions, as a user would write them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any


def add(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"sum": sum(value for value in inputs.values() if isinstance(value, int))}


def slow_add(inputs: dict[str, Any]) -> dict[str, Any]:
    time.sleep(float(inputs.get("seconds", 0.02)))
    return {"sum": inputs["a"] + inputs["b"]}


def nothing(inputs: dict[str, Any]) -> dict[str, Any]:
    return {}


def fail(inputs: dict[str, Any]) -> dict[str, Any]:
    raise ValueError(inputs.get("message", "as asked"))


def busy(inputs: dict[str, Any]) -> dict[str, Any]:
    """Keeps a core busy for ever, and leaves its pid behind."""
    Path(inputs["pid_file"]).write_text(str(os.getpid()))
    while True:
        sum(range(1_000))


def charge(inputs: dict[str, Any]) -> dict[str, Any]:
    """Writes into a ledger and, if it is asked to, dies with the first entry: done, and nobody was told."""
    ledger = Path(inputs["ledger"])
    with ledger.open("a") as entries:
        entries.write(f"{inputs['order']}\n")
    if inputs["dies"] and ledger.read_text().count("\n") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"receipt": f"paid for {inputs['order']}"}
