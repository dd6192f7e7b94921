"""RedisPayloads: one string per payload, which expires. Replies are not decoded: they may be compressed."""

from __future__ import annotations

from typing import Any

from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.keys import Keys
from orchestrator.settings import RETENTION_MARGIN_S, RETENTION_S


class RedisPayloads:
    def __init__(self, client: Client, keys: Keys, ttl_s: int = RETENTION_S + RETENTION_MARGIN_S) -> None:
        self._client, self._keys, self._ttl_s = client, keys, ttl_s

    def put(self, payload_id: str, data: bytes) -> None:
        with translate_errors():
            self._client.set(self._keys.payload(payload_id), data, ex=self._ttl_s)

    def get(self, payload_id: str) -> bytes | None:
        with translate_errors():
            found: Any = self._client.execute_command(  # type: ignore[no-untyped-call]
                "GETEX", self._keys.payload(payload_id), "EX", self._ttl_s, NEVER_DECODE=True
            )
        return found if found is None else bytes(found)
