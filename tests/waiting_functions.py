"""Executors that tell in which process they run: some wait for a file, others wear out their process."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pid_files import note_pid


def pid(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"pid": os.getpid()}


def waits(inputs: dict[str, Any]) -> dict[str, Any]:
    """Writes its pid to the file `began`, and waits until the file `go` exists."""
    note_pid(inputs["began"])
    while not Path(inputs["go"]).exists():
        time.sleep(0.02)
    text = {"text": inputs["size"] * "x"} if "size" in inputs else {}
    return {"pid": os.getpid(), **text}


def logs(inputs: dict[str, Any], log: Callable[..., None]) -> dict[str, Any]:
    log("begins")
    return waits(inputs)


def moves(inputs: dict[str, Any]) -> dict[str, Any]:
    """Changes the folder of its process."""
    os.chdir("/")
    return {"pid": os.getpid()}


def grows(inputs: dict[str, Any]) -> dict[str, Any]:
    """Needs 80 MB."""
    return {"pid": os.getpid(), "size": len(bytearray(80 << 20))}


def ends_a_child(inputs: dict[str, Any]) -> dict[str, Any]:
    """Forks a process, and ends it by a signal."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=[600])
    child.start()
    child.terminate()
    child.join(180)
    return {"code": child.exitcode}
