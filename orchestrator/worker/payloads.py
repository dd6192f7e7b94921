"""What is too large for a job or a result: loaded before the executor is called, put away before its result
is published.

    died after    what is left                            who repairs it
    put           a payload that nobody refers to         nobody: it expires
    publish       nothing                                 nobody needs to

A payload store that is away is waited for, as Redis is by whoever publishes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from orchestrator.application.errors import OrchestratorError, PayloadMissing, TooLarge
from orchestrator.application.records.events import failure
from orchestrator.application.values.payload_refs import PayloadStore, has_references, load, offload_output
from orchestrator.payload_stores import PayloadSettings
from orchestrator.redis_rq.connection import Client, retry_until_available
from orchestrator.redis_rq.keys import Keys

logger = logging.getLogger(__name__)

Error = dict[str, Any]
T = TypeVar("T")


class JobPayloads:
    """Of one job; the store is opened when the first value needs it."""

    def __init__(
        self, client: Client, job: Mapping[str, Any], given: PayloadStore | None, give_up_after_s: float
    ) -> None:
        self._client, self._job, self._given = client, job, given
        self._give_up_after_s = give_up_after_s

    def load(self) -> tuple[dict[str, Any], Error | None]:
        """The inputs as the executor wants them, or why it cannot have them."""
        inputs: dict[str, Any] = self._job["inputs"]
        is_webhook = self._job["step"].startswith("#")  # whose body says that there is a large value, no more
        if is_webhook or not has_references(inputs):
            return inputs, None
        try:
            return load(inputs, self._fetch, self._settings.max_bytes, "inputs"), None
        except PayloadMissing as error:
            return inputs, failure("payload_missing", str(error))
        except TooLarge as error:
            return inputs, failure("expression", str(error))
        except OrchestratorError as error:
            return inputs, failure("exception", f"its inputs cannot be loaded: {error}", type(error).__name__)

    def offload(self, text: str) -> tuple[str | None, Error | None]:
        """An output that has more bytes than it may, with references to what it has too much of."""
        limit, step = self._job["max_output_bytes"], self._job["step"]
        try:
            stowed = offload_output(text, limit, self._settings.max_bytes, step)
            self._persist(lambda: stowed.put_into(self._payloads))
        except TooLarge as error:
            return None, failure("bad_output", str(error))
        except OrchestratorError as error:
            return None, failure("exception", f"its output cannot be kept: {error}", type(error).__name__)
        return stowed.text, None

    def _fetch(self, payload_id: str) -> bytes | None:
        return self._persist(lambda: self._payloads.get(payload_id))

    def _persist(self, call: Callable[[], T]) -> T:
        def on_wait(cause: Exception) -> None:
            logger.warning("waits for the payload store: %s", cause)

        return retry_until_available(call, self._give_up_after_s, on_wait)

    @property
    def _payloads(self) -> PayloadStore:
        if self._given is None:
            self._given = self._settings.open(self._client, Keys.from_leases_key(self._job["leases"]))
        return self._given

    @property
    def _settings(self) -> PayloadSettings:
        return PayloadSettings.from_environment(os.environ)
