"""StreamHealth: finds and repairs streams whose last id lies far in the future.

Redis gives a new entry an id after the last one. Any client with the right to write can choose an id, so the
last one may be the largest of all, and then no entry can be added: no start, no result, no timer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import redis

from orchestrator.redis_rq.connection import Client, clock_ms, execute_pipeline, translate_errors
from orchestrator.redis_rq.keys import GROUP, Keys
from orchestrator.redis_rq.scripts import Script

logger = logging.getLogger(__name__)

MAX_FUTURE_MS = 86_400_000
"""An id that is further ahead of the clock is absurd."""


class StreamHealth:
    def __init__(self, client: Client, keys: Keys) -> None:
        self._client, self._keys = client, keys
        self._heal = Script(client, "heal_stream", "stream_info")

    def absurd(self, streams: Sequence[str]) -> dict[str, str]:
        """The streams whose last id lies far in the future, and that id."""
        with self._client.pipeline(transaction=False) as pipe:
            for stream in streams:
                pipe.xinfo_stream(stream)
            found = execute_pipeline(pipe)
        limit_ms = clock_ms(self._client) + MAX_FUTURE_MS
        last_ids = {
            stream: str(info["last-generated-id"])
            for stream, info in zip(streams, found, strict=True)
            if not isinstance(info, Exception)
        }
        return {stream: last for stream, last in last_ids.items() if int(last.partition("-")[0]) >= limit_ms}

    def heal(self, streams: Sequence[str]) -> None:
        """Repair these streams and the dead letters. A stream that takes entries stays as it is until its
        entries with absurd ids are handled."""
        for stream, last_id in self.absurd([*streams, self._keys.dead_letters]).items():
            group = "" if stream == self._keys.dead_letters else GROUP
            now_ms = clock_ms(self._client)
            args: list[Any] = [group, now_ms + MAX_FUTURE_MS, f"{now_ms}-0"]
            try:
                with translate_errors():
                    result = self._heal([stream], args)
            except redis.exceptions.ResponseError as error:
                logger.error(
                    "the stream %s, whose last id is %s, cannot be repaired: %s", stream, last_id, error
                )
            else:
                if result == 1:
                    logger.warning("the stream %s is repaired: its last id was %s", stream, last_id)
