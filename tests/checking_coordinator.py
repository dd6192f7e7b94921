"""A coordinator whose checker of documents does what the documents ask for.

python -m checking_coordinator unix:///run/redis.sock NAME FOLDER
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from orchestrator.coordinator.checker_process import ProcessChecker
from orchestrator.redis_rq.connection import connect
from worlds.redis_world import RedisWorld


def main(url: str, name: str, folder: str) -> None:
    checker = ProcessChecker((sys.executable, "-m", "slow_checker", folder))
    world = RedisWorld(lambda: connect(url))
    pace: dict[str, Any] = {"block_ms": 50, "renew_every_s": 0.1, "reclaim_after_ms": 2_000}
    world.coordinator(name, checker=checker, **pace).run(threading.Event())


if __name__ == "__main__":
    main(*sys.argv[1:])
