"""The executors of docs/examples/process-invoice.yaml, to be caught at work by a test that kills them.

    WATCHED_IN   a folder: each run adds a line to `runs`; who is caught makes `caught`, and waits for `go`
    CAUGHT_AT    where: keep, read, extract, before-insert or after-insert

The work itself is done by those whom the document names.
"""

from __future__ import annotations

import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from orchestrator.invocation.executors import load_built_in

Json = dict[str, Any]
PATIENCE_S = 180.0

_example: Any = import_module("process_invoice")


def file(inputs: Json, configuration: Json) -> Json:
    """Caught when all is written, and not yet in its place."""
    _note("keep")
    rename = os.rename

    def renaming(*arguments: Any, **named: Any) -> None:
        _catch("keep")
        rename(*arguments, **named)

    with patch.object(os, "rename", renaming):
        written: Json = load_built_in("file")(inputs, configuration)
    return written


def ocr(inputs: Json) -> Json:
    _note("read")
    found: Json = _example.ocr(inputs)
    _catch("read")
    return found


def extract_fields(inputs: Json) -> Json:
    _note("extract")
    found: Json = _example.extract_fields(inputs)
    _catch("extract")
    return found


def insert_invoice(inputs: Json, context: Json) -> Json:
    """Caught before the row is there, or after that, when nobody has heard of it."""
    _note("insert")
    _catch("before-insert")
    inserted: Json = _example.insert_invoice(inputs, context)
    _catch("after-insert")
    return inserted


def _note(step: str) -> None:
    with Path(os.environ["WATCHED_IN"], "runs").open("a") as runs:
        runs.write(f"{step}\n")


def _catch(moment: str) -> None:
    folder, until = Path(os.environ["WATCHED_IN"]), time.monotonic() + PATIENCE_S
    if os.environ.get("CAUGHT_AT") != moment:
        return
    (folder / "caught").touch()
    while not (folder / "go").exists():
        if time.monotonic() > until:
            raise TimeoutError(f"nobody let {moment} go on")
        time.sleep(0.01)
