"""Executors for tests of workers that run several steps at once."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pid_files import note_pid

Json = dict[str, Any]


async def nap(inputs: Json) -> Json:
    await asyncio.sleep(inputs.get("seconds", 0.2))
    return {"pid": os.getpid(), "n": inputs.get("n")}


def sit(inputs: Json) -> Json:
    """The same as a plain function."""
    time.sleep(inputs.get("seconds", 0.2))
    return {"pid": os.getpid(), "n": inputs.get("n")}


async def meets(inputs: Json) -> Json:
    """Runs until so many steps run at the same time."""
    folder = _join(inputs)
    while len(list(folder.iterdir())) < inputs["count"]:
        await asyncio.sleep(0.01)
    return {"pid": os.getpid()}


def meets_in_thread(inputs: Json) -> Json:
    """The same as a plain function."""
    folder = _join(inputs)
    while len(list(folder.iterdir())) < inputs["count"]:
        time.sleep(0.01)
    return {"pid": os.getpid()}


def _join(inputs: Json) -> Path:
    folder = Path(inputs["folder"])
    (folder / str(inputs["n"])).touch()
    return folder


async def endless(inputs: Json) -> Json:
    """Creates a file when it starts, and another one when it is cancelled."""
    note_pid(inputs["began"])
    try:
        await asyncio.sleep(3_600)
    finally:
        Path(inputs["began"] + ".ended").touch()
    return {}


def polite(inputs: Json, cancelled: Callable[[], bool]) -> Json:
    """Runs until it is cancelled."""
    note_pid(inputs["began"])
    while not cancelled():
        time.sleep(0.01)
    Path(inputs["began"] + ".ended").touch()
    return {"seen": True}


def deaf(inputs: Json) -> Json:
    """Never calls `cancelled()`, so it cannot be stopped."""
    note_pid(inputs["began"])
    while not Path(inputs["began"] + ".go").exists():
        time.sleep(0.01)
    return {}


async def stubborn(inputs: Json) -> Json:
    """Async, and blocks the event loop."""
    return deaf(inputs)


def holds(inputs: Json) -> Json:
    """Holds the interpreter lock: no other thread of its process can run."""
    note_pid(inputs["began"])
    return {"large": 3 ** (10**10) > 0}


async def stays(inputs: Json) -> Json:
    """Never ends in the first run."""
    if Path(inputs["began"]).exists():
        return {"pid": os.getpid()}
    return await endless(inputs)


async def falls(inputs: Json) -> Json:
    """Kills its process in the first run, when the files `others` exist."""
    marker = Path(inputs["began"])
    if marker.exists():
        return {"survived": True}
    note_pid(inputs["began"])
    while not all(Path(file).exists() for file in inputs["others"]):
        await asyncio.sleep(0.01)
    match inputs["how"]:
        case "os._exit":
            os._exit(3)
        case "segfault":
            ctypes.string_at(0)
    raise AssertionError(inputs)


def dismisses(inputs: Json) -> Json:
    """Tells its worker to stop."""
    os.kill(os.getppid(), signal.SIGTERM)
    return {}


async def leaves(inputs: Json) -> Json:
    sys.exit(3)


async def tells(inputs: Json) -> Json:
    """Logs before and after it has yielded to the event loop."""
    logger = logging.getLogger("shop")
    logger.warning("begins %s", inputs["n"])
    await asyncio.sleep(0.3)
    logger.warning("ends %s", inputs["n"])
    return {}


async def swallows(inputs: Json) -> Json:
    """Ignores its cancellation for a while."""
    note_pid(inputs["began"])
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(3_600)
    await asyncio.sleep(1)
    return {"late": True}


def hoards(inputs: Json) -> Json:
    """Allocates memory until there is none."""
    kept = []
    for _ in range(10_000):
        kept.append(bytearray(10_000_000))
    return {"megabytes": len(kept) * 10}
