"""RedisPayloads: one string per payload, which expires. Replies are not decoded: they may be compressed."""

from __future__ import annotations

from typing import Any

from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.keys import Keys
from orchestrator.settings import RETENTION_MARGIN_S, RETENTION_S


class RedisPayloads:
    """`renews`: whether reading a payload sets its TTL again. A user of Redis that may only read cannot."""

    def __init__(
        self,
        client: Client,
        keys: Keys,
        ttl_s: int = RETENTION_S + RETENTION_MARGIN_S,
        renews: bool = True,
    ) -> None:
        self._client, self._keys, self._ttl_s, self._renews = client, keys, ttl_s, renews

    def put(self, payload_id: str, data: bytes) -> None:
        with translate_errors():
            self._client.set(self._keys.payload(payload_id), data, ex=self._ttl_s)

    def get(self, payload_id: str) -> bytes | None:
        key = self._keys.payload(payload_id)
        command = ("GETEX", key, "EX", self._ttl_s) if self._renews else ("GET", key)
        with translate_errors():
            found: Any = self._client.execute_command(*command, NEVER_DECODE=True)  # type: ignore[no-untyped-call]
        return found if found is None else bytes(found)
