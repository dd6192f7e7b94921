"""Waiting for a condition, never for a duration; and code that runs beside a block."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

PATIENCE_S = 180.0
"""How long a test waits for what must happen. On a busy machine that may take a while."""


def wait_until(fact: Callable[[], Any], within_s: float = PATIENCE_S) -> Any:
    """Wait for a fact; what it says is returned."""
    until = time.monotonic() + within_s
    while not (found := fact()):
        assert time.monotonic() < until, f"not within {within_s:g} s: {fact}"
        time.sleep(0.005)
    return found


def at_some_pace(scene: Callable[[int], object]) -> None:
    """Play a scene with short times; where the machine was too busy for them, again with longer ones.

    For what has to happen before a short time is over, and would be slow with a long one. The scene
    multiplies its times by the pace. A defect fails at every pace.
    """
    *paces, slowest = 1, 6, 36
    for pace in paces:
        with suppress(Exception):
            scene(pace)
            return
    scene(slowest)


@contextmanager
def in_thread(run: Callable[[], Any]) -> Iterator[threading.Thread]:
    """Run beside the block; what it raises is raised at the end of the block."""
    raised: list[BaseException] = []

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the thread does not end"
    if raised:
        raise raised[0]
