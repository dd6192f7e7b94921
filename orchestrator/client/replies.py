"""Answers: what a coordinator says to those who sent it something. They are waited for, not polled.

An outage in between is waited for too. Redis may come back from it without its last writes, and what was sent
is then among them or not: whoever waits looks, and is told when there is nothing left to wait for.
"""

from __future__ import annotations

import time
from typing import Any

from orchestrator.application.errors import OrchestratorError, Unavailable
from orchestrator.redis_rq.connection import BLOCK_MS, Client, backoff_delays, translate_errors
from orchestrator.redis_rq.event_codec import loads
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.pending_events import has_entry

REPLY_TIMEOUT_S = 10.0


class NoReply(OrchestratorError):
    """No coordinator answered in time; what was sent is in the stream and will be served by the next one."""

    def __init__(self, entry_id: str, waited_s: float) -> None:
        super().__init__(
            f"no coordinator answered within {waited_s:g} s: is one running (orchestrator coordinator)?"
            f" What was sent waits in the stream as {entry_id}"
        )
        self.entry_id = entry_id


class RequestLost(NoReply):
    """What was sent is neither in its stream nor answered: nobody will serve it."""

    def __init__(self, entry_id: str, stream: str) -> None:
        OrchestratorError.__init__(
            self,
            f"what was sent as {entry_id} is not in {stream} any more, and nobody has answered it: this Redis"
            " came back from an outage without its last writes, or was emptied; send it again",
        )
        self.entry_id = entry_id


class Replies:
    def __init__(self, client: Client, keys: Keys) -> None:
        self._client, self._keys = client, keys

    def wait(
        self, name: str, within_s: float, entry_id: str | None = None, stream: str | None = None
    ) -> dict[str, Any]:
        """The answer under a name, to what was sent as `entry_id` by a stream; it stays there for others to
        read. By default it is that to a start."""
        key, until = self._keys.answer(name), time.monotonic() + within_s
        entry_id, stream = entry_id or name, stream or self._keys.starts
        pauses, is_doubtful = backoff_delays(), False
        while True:
            left_s = until - time.monotonic()
            try:
                found = self._wait(key, min(left_s, BLOCK_MS / 1000))
                if (
                    found is None
                    and (is_doubtful or left_s <= 0)
                    and not has_entry(self._client, stream, entry_id)
                ):
                    found = self._look(key)  # it may have been answered, and taken from its stream, just now
                    if found is None:
                        raise RequestLost(entry_id, stream)
                is_doubtful = False
            except Unavailable:
                pause_s = next(pauses)
                if left_s < pause_s:
                    raise
                is_doubtful = True
                time.sleep(pause_s)
                continue
            if found is not None:
                answer: dict[str, Any] = loads(found)
                return answer
            if left_s <= 0:
                raise NoReply(entry_id, within_s)
            time.sleep(0.01)  # fakeredis answers at once instead of waiting

    def _wait(self, key: str, wait_s: float) -> str | None:
        """BLMOVE onto itself waits like a pop, and leaves what it finds."""
        with translate_errors():
            found: Any = self._client.blmove(key, key, max(wait_s, 0.01), "LEFT", "LEFT")  # type: ignore[arg-type]
        return None if found is None else str(found)

    def _look(self, key: str) -> str | None:
        with translate_errors():
            found: Any = self._client.lindex(key, 0)
        return None if found is None else str(found)
