"""Jobs taken from RQ queues by a worker that runs several at once.

A job that was taken and that nobody begins, because its worker died right here, has left its queue: the
sweep finds that, and it is dispatched again.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from orchestrator.redis_rq.connection import Client, translated
from orchestrator.redis_rq.jobs import read_payload
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.scripts import Script


class Taker:
    """Takes for one worker, on a client that does not decode replies: RQ may have compressed a job's data."""

    def __init__(self, client: Client, queues: Sequence[str], worker: str) -> None:
        self._client, self._worker = client, worker
        self._queues = [Keys.rq_queue(queue) for queue in queues]
        self._script = Script(client, "take")

    def take(self, most: int, wait_s: float = 0.0) -> list[tuple[str, dict[str, Any] | None]]:
        """Up to so many jobs, each as its token and its payload, which is None if the job is not one of ours.
        When there is none, the first that comes within `wait_s`; none while RQ's workers are suspended."""
        with translated():
            found = self._run(most)
            if found is None:
                time.sleep(wait_s)
            if found is None or found or not wait_s:
                return _read(found or [])
            popped: Any = self._client.blpop(self._queues, timeout=wait_s)
            return _read(self._run(most, popped[1]) or []) if popped else []

    def _run(self, most: int, *tokens: bytes) -> list[bytes] | None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        found: list[bytes] | None = self._script(self._queues, [most, self._worker, now, *tokens])
        return found

    def drop(self, token: str) -> None:
        """A job that is done with leaves nothing behind."""
        with translated():
            self._client.delete(Keys.rq_job(token))


def _read(found: list[bytes]) -> list[tuple[str, dict[str, Any] | None]]:
    pairs = zip(found[0::2], found[1::2], strict=True)
    return [(token.decode(errors="replace"), read_payload(_text(data))) for token, data in pairs]


def _text(data: bytes) -> str:
    with suppress(zlib.error):
        data = zlib.decompress(data)
    return data.decode(errors="replace")
