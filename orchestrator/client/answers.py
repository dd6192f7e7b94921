"""Answers: what a coordinator says to those who sent it something. They are waited for, not polled."""

from __future__ import annotations

import time
from typing import Any

from orchestrator.application.errors import OrchestratorError
from orchestrator.redis_rq.codec import loads
from orchestrator.redis_rq.connection import BLOCK_MS, Client, translated
from orchestrator.redis_rq.keys import Keys

ANSWER_WITHIN_S = 10.0


class NoAnswer(OrchestratorError):
    """No coordinator answered in time; what was sent is in the stream and will be served by the next one."""

    def __init__(self, entry_id: str, waited_s: float) -> None:
        super().__init__(
            f"no coordinator answered within {waited_s:g} s: is one running (orchestrator coordinator)?"
            f" What was sent waits in the stream as {entry_id}"
        )
        self.entry_id = entry_id


class Answers:
    def __init__(self, client: Client, keys: Keys) -> None:
        self._client, self._keys = client, keys

    def wait(self, name: str, within_s: float, entry_id: str | None = None) -> dict[str, Any]:
        """The answer under a name, to what was sent as `entry_id`; it stays there for others to read."""
        key, until = self._keys.answer(name), time.monotonic() + within_s
        while True:
            wait_s = min(until - time.monotonic(), BLOCK_MS / 1000)
            with translated():
                # BLMOVE onto itself waits like a pop, and leaves what it finds.
                found = self._client.blmove(key, key, max(wait_s, 0.01), "LEFT", "LEFT")  # type: ignore[arg-type]
            if found is not None:
                answer: dict[str, Any] = loads(str(found))
                return answer
            if time.monotonic() >= until:
                raise NoAnswer(entry_id or name, within_s)
            time.sleep(0.01)  # fakeredis answers at once instead of waiting
