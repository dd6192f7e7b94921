"""The backlog: how many starts wait, and whether more are accepted.

There are two limits. Coordinators create no execution whose first jobs need a full queue: its start is held,
where it takes a tenth of the memory (held_starts.py). The client rejects starts while too many are held or
not read. Running executions, children and schedules are never rejected, only late.
"""

from __future__ import annotations

import time
from typing import Any

from orchestrator.application.errors import Busy
from orchestrator.redis_rq.connection import Client, execute_pipeline
from orchestrator.redis_rq.keys import GROUP, Keys
from orchestrator.settings import MAX_BACKLOG

CHECK_INTERVAL_S = 1.0


class Backlog:
    """Reads the backlog at most once a second: the limit need not be exact."""

    def __init__(self, client: Client, keys: Keys, max_starts: int = MAX_BACKLOG) -> None:
        self._client, self._keys, self._max_starts = client, keys, max_starts
        self._checked_at = float("-inf")

    def check(self, *, is_check_forced: bool = False) -> None:
        """Raise Busy when no more starts are accepted."""
        now = time.monotonic()
        if not is_check_forced and now - self._checked_at < CHECK_INTERVAL_S:
            return
        waiting = count_waiting_starts(self._client, self._keys)
        if waiting >= self._max_starts:
            raise Busy(waiting, self._max_starts)
        self._checked_at = now


def count_waiting_starts(client: Client, keys: Keys) -> int:
    """How many starts no coordinator has handled, held ones included. Where Redis does not know how many are
    unread, because it is older than 7.0 or entries were deleted, the whole stream counts. A key that the user
    may not read counts as empty."""
    with client.pipeline(transaction=False) as pipe:
        pipe.xlen(keys.starts)
        pipe.xinfo_groups(keys.starts)
        pipe.hlen(keys.held_queues)
        length, groups, found = execute_pipeline(pipe)
    held = 0 if isinstance(found, Exception) else int(found)
    if isinstance(length, Exception):
        return held
    ours: dict[str, Any] | None = None
    if not isinstance(groups, Exception):
        ours = next((group for group in groups if group["name"] == GROUP), None)
    if ours is None or ours.get("lag") is None:
        return int(length) + held
    return int(ours["lag"]) + int(ours["pending"]) + held
