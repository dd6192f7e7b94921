"""The executors of a worker, published beside its registration with RQ.

`explain` and `doctor` read the names. A worker that could run another step also wakes the steps that wait for
one of its executors, because workers without it have declined them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from redis.exceptions import ResponseError
from rq import Worker

from orchestrator.redis_rq.declined import Waker
from orchestrator.redis_rq.json_codec import dumps
from orchestrator.redis_rq.keys import EXECUTORS_FIELD, Keys

logger = logging.getLogger(__name__)


class PublishedExecutors:
    """Publishes these names for one worker, which runs up to `slots` steps at once."""

    def __init__(self, worker: Worker, keys: Keys, names: Iterable[str], slots: int = 1) -> None:
        self._worker, self._names, self._slots = worker, sorted(set(names)), slots
        self._waker: Waker | None = Waker(worker.connection, keys, worker.queue_names(), self._names)

    def refresh(self, running: int) -> None:
        """Publish the names, if Redis does not have them, and wake steps, if another one could run. To be
        called after every heartbeat, with the number of running steps."""
        client, key = self._worker.connection, self._worker.key
        if not client.hexists(key, EXECUTORS_FIELD):
            client.hset(key, EXECUTORS_FIELD, dumps(self._names))
        if running < self._slots:
            self._wake()

    def _wake(self) -> None:
        try:
            found = 0 if self._waker is None else self._waker.wake()
        except ResponseError as error:  # the Redis user lacks a right, or the key has another type
            logger.warning("cannot wake steps that wait for an executor; they wait for up to 5 s: %s", error)
            self._waker = None
            return
        if found:
            logger.info("%d declined steps wait for an executor of this worker", found)
