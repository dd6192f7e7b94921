"""The backlog: what was sent and is not done, and whether there is room for more.

Two limits, one behind the other. Coordinators begin no execution while too many jobs wait for workers: starts
then stay in their stream, where each takes a tenth of the room. Whoever starts by our client is refused while
too many starts wait there. What runs already, children and schedules are never refused, only late.
"""

from __future__ import annotations

import time
from typing import Any

from orchestrator.application.errors import Busy
from orchestrator.redis_rq.connection import Client, execute_pipeline
from orchestrator.redis_rq.keys import GROUP, Keys

MAX_BACKLOG = 100_000
"""So many starts may wait for coordinators; a hundred bytes each, and their inputs."""
CHECK_INTERVAL_S = 1.0


class Backlog:
    """Asks Redis once a second at the most: a limit need not be met to the unit."""

    def __init__(self, client: Client, keys: Keys, max_starts: int = MAX_BACKLOG) -> None:
        self._client, self._keys, self._most = client, keys, max_starts
        self._asked_at = float("-inf")

    def check(self, *, is_check_forced: bool = False) -> None:
        """Raise Busy when no more starts should be sent; nothing was sent then."""
        now = time.monotonic()
        if not is_check_forced and now - self._asked_at < CHECK_INTERVAL_S:
            return
        waiting = count_waiting_starts(self._client, self._keys)
        if waiting >= self._most:
            raise Busy(waiting, self._most)
        self._asked_at = now


def count_waiting_starts(client: Client, keys: Keys) -> int:
    """How many starts nobody has answered. Where Redis cannot tell how many are unread, because it is older
    than 7.0 or somebody has deleted some, all that are in the stream count. Who may not ask hears of none."""
    with client.pipeline(transaction=False) as pipe:
        pipe.xlen(keys.starts)
        pipe.xinfo_groups(keys.starts)
        length, groups = execute_pipeline(pipe)
    if isinstance(length, Exception):
        return 0
    ours: dict[str, Any] | None = None
    if not isinstance(groups, Exception):
        ours = next((group for group in groups if group["name"] == GROUP), None)
    if ours is None or ours.get("lag") is None:
        return int(length)
    return int(ours["lag"]) + int(ours["pending"])
