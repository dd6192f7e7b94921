"""Passes large values by reference: stores those that a client sends, and loads those that it reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from orchestrator.application.errors import StartRejected, TooLarge
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.values.payload_refs import (
    OffloadedText,
    PayloadStore,
    fetch_payload,
    has_references,
    load_payloads,
    offload_inputs,
)
from orchestrator.payload_stores import PayloadSettings
from orchestrator.redis_rq.connection import Client
from orchestrator.redis_rq.json_codec import dumps
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.store import RedisStore
from orchestrator.settings import Settings


class ClientPayloads:
    """Uses the given payload store, or else the one of the settings, opened on first use. Reading renews no
    payload in Redis: a client may be a user that can only read."""

    def __init__(
        self,
        client: Client,
        keys: Keys,
        definitions: RedisStore,
        store: PayloadStore | None,
        settings: Settings,
    ) -> None:
        self._client, self._keys, self._opened_store = client, keys, store
        self._definitions, self._settings = definitions, settings

    def offload(self, inputs: Mapping[str, Any]) -> OffloadedText:
        """Encode inputs as JSON, with references in place of large values; put() stores the values."""
        try:
            return offload_inputs(dumps(dict(inputs)), self._settings.payload_max_bytes)
        except TooLarge as error:
            raise StartRejected(str(error)) from error

    def put(self, offloaded: OffloadedText) -> None:
        """Store the values that offload() replaced."""
        if offloaded.payloads:
            offloaded.put_into(self._store)

    def find_definition(self, workflow: str) -> LoadedSpec | None:
        """Return a registered workflow; None if there is none: the coordinator rejects the start then."""
        try:
            return self._definitions.load_definition(workflow)
        except KeyError:
            return None

    def load_references(self, value: Any, what: str) -> Any:
        """Replace references in a value by their payloads; raises PayloadMissing if one no longer exists."""
        if not has_references(value):
            return value
        return load_payloads(value, self._store.get, self._settings.payload_max_bytes, what)

    def load_payload(self, payload_id: str) -> Any:
        """Load one value by the id in its reference."""
        return json.loads(fetch_payload(payload_id, self._store.get, self._settings.payload_max_bytes))

    @property
    def _store(self) -> PayloadStore:
        if self._opened_store is None:
            payload_settings = PayloadSettings.from_settings(self._settings)
            self._opened_store = payload_settings.open(self._client, self._keys, renews=False)
        return self._opened_store
