"""A client for those who have no time: with as little as possible around each call.

What a client does around each call takes longer than a short one: its pool hands out a connection and looks
whether it is still good, statistics are kept, retries are prepared. By a direct one, a call is what is
written and what is read.
"""

from __future__ import annotations

import time
from typing import Any

import redis
from redis.client import Pipeline
from redis.exceptions import ResponseError

from orchestrator.redis_rq.connection import Client

IDLE_S = 1.0
"""A connection that nobody used for so long is looked at again: its server may have closed it."""


class PinnedConnection(redis.Redis):
    """For one thread. It keeps its connection, which is one of another client's pool."""

    def __init__(self, client: Client) -> None:
        super().__init__(connection_pool=client.connection_pool)
        self._kept: Any = None
        self._used_at = 0.0

    def execute_command(self, *args: Any, **options: Any) -> Any:
        connection = self._send([args])
        return self.parse_response(connection, args[0], **options)  # type: ignore[no-untyped-call]

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        """A transaction goes by the pool, as by any other client."""
        return super().pipeline(transaction, shard_hint) if transaction else PinnedPipeline(self)

    def _send(self, commands: list[tuple[Any, ...]]) -> Any:
        """Write all of them at once; their answers are to be read from what is returned."""
        if time.monotonic() - self._used_at > IDLE_S:
            if self._kept is not None:
                self.connection_pool.release(self._kept)
            self._kept = None
            self._kept = self.connection_pool.get_connection()
        packed = [piece for words in commands for piece in self._kept.pack_command(*words)]
        self._kept.send_packed_command([b"".join(packed)])
        self._used_at = time.monotonic()
        return self._kept


class PinnedPipeline(Pipeline):
    """Commands in one round trip, each with an answer of its own."""

    def __init__(self, client: PinnedConnection) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, False, None)
        self._client = client

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        stack, self.command_stack = self.command_stack, []
        connection = self._client._send([words for words, _ in stack])
        answers = [self._answer(connection, words[0], options) for words, options in stack]
        error = next((one for one in answers if isinstance(one, Exception)), None)
        if error is not None and raise_on_error:
            raise error
        return answers

    def _answer(self, connection: Any, name: str, options: dict[str, Any]) -> Any:
        try:
            return self._client.parse_response(connection, name, **options)  # type: ignore[no-untyped-call]
        except ResponseError as error:
            return error
