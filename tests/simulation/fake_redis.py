"""fakeredis as the server of a simulation: written by others, slower, and right in other places.

Its time is that of the simulation while `surroundings` last.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from fakeredis import FakeRedis, FakeServer
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.retry import Retry

NO_STREAM = "The XGROUP subcommand requires the key to exist"
NO_GROUP = "NOGROUP No such key or consumer group in XREADGROUP with GROUP option"
"""What a reader of a stream that is not there hears from fakeredis, and from Redis."""


class FakeRedisServer:
    script_error: Any = None
    """Has no effect: scripts run out of reach."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._server = FakeServer()
        self._client = FakeRedis(
            server=self._server, protocol=2, decode_responses=True, retry=Retry(NoBackoff(), 0)
        )
        self._client.response_callbacks.clear()  # raw replies: the client of the line parses them

    def execute(self, *words: Any) -> Any:
        try:
            return self._client.execute_command(*words)  # type: ignore[no-untyped-call]
        except ResponseError as error:
            if words[0] == "XREADGROUP" and str(error).startswith(NO_STREAM):
                raise ResponseError(NO_GROUP) from error
            raise

    def copy(self) -> Any:
        database: Any = self._server.dbs[0]
        return deepcopy((database._dict, database._expiry_heap))

    def restore(self, kept: Any) -> None:
        database: Any = self._server.dbs[0]
        database._dict, database._expiry_heap = deepcopy(kept)

    def forget_scripts(self) -> None:
        self.execute("SCRIPT", "FLUSH")

    def is_behind(self, stream: str, group: str) -> bool:
        if not self.execute("EXISTS", stream):
            return False
        last = self.execute("XREVRANGE", stream, "+", "-", "COUNT", "1")
        for flat in self.execute("XINFO", "GROUPS", stream):
            named = dict(zip(flat[::2], flat[1::2], strict=True))
            return bool(last) and _number(last[0][0]) > _number(named["last-delivered-id"])
        return bool(last)

    def pending_ms(self, stream: str, group: str) -> list[int]:
        if not self.execute("EXISTS", stream) or not self.execute("XINFO", "GROUPS", stream):
            return []
        return [idle_ms for _, _, idle_ms, _ in self.execute("XPENDING", stream, group, "-", "+", "1000")]

    def is_answered(self, stream: str, group: str, entry: str) -> bool:
        for flat in self.execute("XINFO", "GROUPS", stream):
            named = dict(zip(flat[::2], flat[1::2], strict=True))
            if _number(entry) <= _number(named["last-delivered-id"]):
                return not self.execute("XPENDING", stream, group, entry, entry, "1")
        return False


def _number(entry_id: str) -> tuple[int, ...]:
    return tuple(map(int, entry_id.split("-")))
