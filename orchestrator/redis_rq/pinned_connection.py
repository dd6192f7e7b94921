"""PinnedConnection: a Redis client with little overhead per call.

An ordinary client takes a connection from its pool for each call, checks it, keeps statistics and prepares
retries. That takes longer than a short call itself. A pinned connection only writes and reads.
"""

from __future__ import annotations

import time
from typing import Any

import redis
from redis.client import Pipeline
from redis.exceptions import ResponseError

from orchestrator.redis_rq.connection import Client

IDLE_S = 1.0
"""A connection that was idle for longer is checked again: the server may have closed it."""


class PinnedConnection(redis.Redis):
    """A client for one thread. It keeps one connection of another client's pool."""

    def __init__(self, client: Client) -> None:
        super().__init__(connection_pool=client.connection_pool)
        self._kept: Any = None
        self._used_at = 0.0

    def execute_command(self, *args: Any, **options: Any) -> Any:
        connection = self._send([args])
        return self.parse_response(connection, args[0], **options)

    def parse_response(self, connection: Any, command_name: Any, **options: Any) -> Any:
        """Read a reply. If none comes, the connection is closed: the next reply on it would be this one.

        A connection that sentinels have named does not close itself after a timeout. It would also stay with
        a primary that has been replaced.
        """
        try:
            return super().parse_response(connection, command_name, **options)  # type: ignore[no-untyped-call]
        except ResponseError:
            raise
        except BaseException:
            connection.disconnect()
            self._used_at = 0.0  # so that the pool connects it again, to the primary of that time
            raise

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        """A transaction uses the pool, as with any other client."""
        return super().pipeline(transaction, shard_hint) if transaction else PinnedPipeline(self)

    def _send(self, commands: list[tuple[Any, ...]]) -> Any:
        """Write all commands at once; returns the connection to read their replies from."""
        if time.monotonic() - self._used_at > IDLE_S:
            if self._kept is not None:
                self.connection_pool.release(self._kept)
            self._kept = None
            self._kept = self.connection_pool.get_connection()
        packed = [piece for command in commands for piece in self._kept.pack_command(*command)]
        self._kept.send_packed_command([b"".join(packed)])
        self._used_at = time.monotonic()
        return self._kept


class PinnedPipeline(Pipeline):
    """A pipeline of a PinnedConnection: commands in one round trip, without a transaction."""

    def __init__(self, client: PinnedConnection) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, False, None)
        self._client = client

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        stack, self.command_stack = self.command_stack, []
        connection = self._client._send([command for command, _ in stack])
        replies = [self._read_reply(connection, command[0], options) for command, options in stack]
        error = next((reply for reply in replies if isinstance(reply, Exception)), None)
        if error is not None and raise_on_error:
            raise error
        return replies

    def _read_reply(self, connection: Any, name: str, options: dict[str, Any]) -> Any:
        try:
            return self._client.parse_response(connection, name, **options)
        except ResponseError as error:
            return error
