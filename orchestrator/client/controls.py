"""Sends controls and signals to executions, and waits for the replies of coordinators."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.errors import OrchestratorError
from orchestrator.application.records.events import ControlEvent, SignalEvent
from orchestrator.client.replies import Replies
from orchestrator.deprecation import renamed_attribute
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.event_codec import event_fields
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.scripts import batches

CONTROL_BATCH_SIZE = 500


class ControlRejected(OrchestratorError):
    """The coordinator rejected a control or a signal; `reason` says why."""

    exit_code = 2

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ControlResult:
    """The status of the workflow after a control. `changed` is false if the control had no effect."""

    status: str
    changed: bool = True


@dataclass(slots=True)
class BulkResult:
    """The result of a control sent to many executions: those it was applied to, and those that rejected it,
    with the reasons."""

    done: list[str] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)

    refused = renamed_attribute("refused", "rejected")


class Controls:
    def __init__(self, client: Client, keys: Keys, replies: Replies) -> None:
        self._client, self._keys, self._replies = client, keys, replies

    def send_and_wait(self, event: ControlEvent | SignalEvent, timeout_s: float) -> Mapping[str, Any]:
        """Send one event and wait for its reply; raises ControlRejected if it is rejected."""
        [(entry_id, reply_name)] = self._send([event])
        reply = self._replies.wait(reply_name, timeout_s, entry_id, self._stream(event))
        if not reply["ok"]:
            raise ControlRejected(reply["reason"])
        return reply

    def send(self, event: ControlEvent | SignalEvent) -> str:
        """Send one event without requesting a reply; returns its entry id."""
        with translate_errors():
            return str(self._client.xadd(self._stream(event), dict(event_fields(event))))  # type: ignore[arg-type]

    def send_all_and_wait(self, events: Iterable[ControlEvent], timeout_s: float) -> BulkResult:
        """Send many controls in batches. Executions that are gone or have ended reject them.

        `timeout_s` is the limit for each next reply, not for all of them.
        """
        bulk = BulkResult()
        for batch in batches(events, CONTROL_BATCH_SIZE):
            for event, (entry_id, reply_name) in zip(batch, self._send(batch), strict=True):
                reply = self._replies.wait(reply_name, timeout_s, entry_id, self._stream(event))
                if reply["ok"]:
                    bulk.done.append(event.workflow_execution_id)
                else:
                    bulk.rejected[event.workflow_execution_id] = reply["reason"]
        return bulk

    def _send(self, events: Iterable[ControlEvent | SignalEvent]) -> list[tuple[str, str]]:
        """Send events; returns the entry id of each, and the name of its reply."""
        names = []
        with translate_errors(), self._client.pipeline(transaction=False) as pipe:
            for event in events:
                names.append(secrets.token_hex(12))
                pipe.xadd(self._stream(event), {**event_fields(event), "reply": names[-1]})  # type: ignore[dict-item]
            entry_ids: list[str] = pipe.execute()
        return list(zip(entry_ids, names, strict=True))

    def _stream(self, event: ControlEvent | SignalEvent) -> str:
        return self._keys.events_of(event.workflow_execution_id)
