"""Large values of one job: loaded before the executor is called, stored before its result is published.

    crashed after        left behind                       repaired by
    storing a payload    a payload without a reference     its expiry
    publishing           nothing

While the payload store is unavailable, a call is retried with back-off, as publishing is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from orchestrator.application.errors import OrchestratorError, PayloadMissing, TooLarge
from orchestrator.application.records.events import make_failure
from orchestrator.application.values.payload_refs import (
    PayloadStore,
    has_references,
    load_payloads,
    offload_output,
)
from orchestrator.payload_stores import PayloadSettings
from orchestrator.redis_rq.connection import Client, retry_until_available
from orchestrator.redis_rq.keys import Keys
from orchestrator.settings import Settings

logger = logging.getLogger(__name__)

Error = dict[str, Any]
T = TypeVar("T")


class JobPayloads:
    """The large values of one job. The default store is opened when the first value needs it."""

    def __init__(
        self,
        client: Client,
        job: Mapping[str, Any],
        store: PayloadStore | None,
        give_up_after_s: float,
        settings: Settings,
    ) -> None:
        self._client, self._job, self._store = client, job, store
        self._give_up_after_s, self._settings = give_up_after_s, settings

    def load(self) -> tuple[dict[str, Any], Error | None]:
        """Replace references in the inputs by their values. The second item is the failure, if any."""
        inputs: dict[str, Any] = self._job["inputs"]
        is_webhook = self._job["step"].startswith("#")  # its body keeps references
        if is_webhook or not has_references(inputs):
            return inputs, None
        try:
            return load_payloads(inputs, self._fetch, self._settings.payload_max_bytes, "inputs"), None
        except PayloadMissing as error:
            return inputs, make_failure("payload_missing", str(error))
        except TooLarge as error:
            return inputs, make_failure("expression", str(error))
        except OrchestratorError as error:
            return inputs, make_failure(
                "exception", f"its inputs cannot be loaded: {error}", type(error).__name__
            )

    def offload(self, text: str) -> tuple[str | None, Error | None]:
        """Store the large parts of an output. Returns the output with references, or the failure."""
        limit, step = self._job["max_output_bytes"], self._job["step"]
        try:
            offloaded = offload_output(text, limit, self._settings.payload_max_bytes, step)
            self._retry(lambda: offloaded.put_into(self._payloads))
        except TooLarge as error:
            return None, make_failure("bad_output", str(error))
        except OrchestratorError as error:
            return None, make_failure(
                "exception", f"its output cannot be stored: {error}", type(error).__name__
            )
        return offloaded.text, None

    def _fetch(self, payload_id: str) -> bytes | None:
        return self._retry(lambda: self._payloads.get(payload_id))

    def _retry(self, call: Callable[[], T]) -> T:
        def on_wait(cause: Exception) -> None:
            logger.warning("the payload store is unavailable; retrying: %s", cause)

        return retry_until_available(call, self._give_up_after_s, on_wait)

    @property
    def _payloads(self) -> PayloadStore:
        if self._store is None:
            payload_settings = PayloadSettings.from_settings(self._settings)
            self._store = payload_settings.open(self._client, Keys.from_leases_key(self._job["leases"]))
        return self._store
