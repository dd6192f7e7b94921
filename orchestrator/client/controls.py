"""Sends controls and signals to executions, and waits for the replies of coordinators."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.errors import OrchestratorError
from orchestrator.application.records.events import ControlEvent, SignalEvent
from orchestrator.client.replies import Replies, ReplyRequest
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

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> ControlResult:
        return cls(reply["status"], reply["changed"])


@dataclass(slots=True)
class BulkResult:
    """The result of a control sent to many executions: those it was applied to, and those that rejected it,
    with the reasons."""

    done: list[str] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)

    refused = renamed_attribute("refused", "rejected")

    def add(self, workflow_execution_id: str, reply: Mapping[str, Any]) -> None:
        """Add the reply of one execution."""
        if reply["ok"]:
            self.done.append(workflow_execution_id)
        else:
            self.rejected[workflow_execution_id] = reply["reason"]


def check_reply(reply: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a reply that accepts a control or a signal; raises ControlRejected for another."""
    if not reply["ok"]:
        raise ControlRejected(reply["reason"])
    return reply


class Controls:
    def __init__(self, client: Client, keys: Keys, replies: Replies) -> None:
        self._client, self._keys, self._replies = client, keys, replies

    def send_and_wait(self, event: ControlEvent | SignalEvent, timeout_s: float) -> Mapping[str, Any]:
        """Send one event and wait for its reply; raises ControlRejected if it is rejected."""
        [request] = self.send_for_replies([event])
        return check_reply(self._wait(request, timeout_s))

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
            for event, request in zip(batch, self.send_for_replies(batch), strict=True):
                bulk.add(event.workflow_execution_id, self._wait(request, timeout_s))
        return bulk

    def _wait(self, request: ReplyRequest, timeout_s: float) -> Mapping[str, Any]:
        return self._replies.wait(request.name, timeout_s, request.entry_id, request.stream)

    def send_for_replies(self, events: Sequence[ControlEvent | SignalEvent]) -> list[ReplyRequest]:
        """Send events, and return the replies to wait for."""
        names = []
        with translate_errors(), self._client.pipeline(transaction=False) as pipe:
            for event in events:
                names.append(secrets.token_hex(12))
                pipe.xadd(self._stream(event), {**event_fields(event), "reply": names[-1]})  # type: ignore[dict-item]
            entry_ids: list[str] = pipe.execute()
        return [
            ReplyRequest(name, entry_id, self._stream(event))
            for name, entry_id, event in zip(names, entry_ids, events, strict=True)
        ]

    def _stream(self, event: ControlEvent | SignalEvent) -> str:
        return self._keys.events_of(event.workflow_execution_id)
