"""The large values of a client: those that it sends are put away first, those that it gives are loaded."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from orchestrator.application.errors import StartRejected, TooLarge
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.values.payload_refs import (
    OffloadedText,
    PayloadStore,
    fetch_payload,
    has_references,
    load,
    offload_inputs,
)
from orchestrator.payload_stores import PayloadSettings
from orchestrator.redis_rq.connection import Client
from orchestrator.redis_rq.event_codec import dumps
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.store import RedisStore


class ClientPayloads:
    """The store of payloads is where the environment says, unless it is given; it is opened when needed."""

    def __init__(
        self, client: Client, keys: Keys, definitions: RedisStore, given: PayloadStore | None = None
    ) -> None:
        self._client, self._keys, self._given = client, keys, given
        self._definitions = definitions

    def offload(self, inputs: Mapping[str, Any]) -> OffloadedText:
        """Inputs as JSON, with references to what they have too much of; nothing is put yet."""
        try:
            return offload_inputs(dumps(dict(inputs)), self._settings.max_bytes)
        except TooLarge as error:
            raise StartRejected(str(error)) from error

    def put(self, stowed: OffloadedText) -> None:
        if stowed.payloads:
            stowed.put_into(self._payloads)

    def find(self, workflow: str) -> LoadedSpec | None:
        """A registered workflow; None when there is none, which is for the coordinator to say."""
        try:
            return self._definitions.definition(workflow)
        except KeyError:
            return None

    def loaded(self, value: Any, what: str) -> Any:
        """What an execution has put out, whole; PayloadMissing names what is not there any more."""
        if not has_references(value):
            return value
        return load(value, self._payloads.get, self._settings.max_bytes, what)

    def payload(self, payload_id: str) -> Any:
        """One value, by the id in its reference."""
        return json.loads(fetch_payload(payload_id, self._payloads.get, self._settings.max_bytes))

    @property
    def _payloads(self) -> PayloadStore:
        if self._given is None:
            self._given = self._settings.open(self._client, self._keys)
        return self._given

    @property
    def _settings(self) -> PayloadSettings:
        return PayloadSettings.from_environment(os.environ)
