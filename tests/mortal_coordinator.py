"""Two coordinators that one start kills, as the out-of-memory killer would: at once, without a word.

    python -m mortal_coordinator unix:///run/redis.sock

Whoever is killed is followed by another, and a line on the standard output. They take over what is 300 ms
old, so that a test need not wait for them.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any
from unittest import mock

from orchestrator.backend.ports import Delivery
from orchestrator.coordinator.starts import Starts
from orchestrator.redis_rq.connection import connect
from worlds.redis_world import RedisWorld

POISON = "poison"
KILLED, SAID = 9, "killed"
PACE: dict[str, Any] = {
    "reclaim_after_ms": 300,
    "reclaim_every_s": 0.05,
    "sweep_every_s": 0.2,
    "block_ms": 50,
}

_build_creation = Starts.build_creation


def _build_creation_or_die(starts: Starts, delivery: Delivery, *others: Any) -> Any:
    if delivery.fields.get("execution_id") == POISON:
        os._exit(KILLED)
    return _build_creation(starts, delivery, *others)


class Orphaned:
    """Tells a child to stop when its parent is gone."""

    def __init__(self) -> None:
        self._parent = os.getppid()

    def is_set(self) -> bool:
        return os.getppid() != self._parent

    def wait(self, timeout: float) -> bool:
        time.sleep(timeout)
        return self.is_set()


def serve(url: str, name: str) -> None:
    with mock.patch.object(Starts, "build_creation", _build_creation_or_die):
        RedisWorld(lambda: connect(url)).coordinator(name, **PACE).run(Orphaned())


def fork(url: str, name: str) -> None:
    """A fork has all modules already, and is there at once."""
    if os.fork() == 0:
        try:
            serve(url, name)
        finally:
            os._exit(1)


def main(url: str) -> None:
    fork(url, "c0")
    for n in range(1, 50):
        fork(url, f"c{n}")
        _, status = os.wait()
        if os.waitstatus_to_exitcode(status) != KILLED:
            return
        print(SAID, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
