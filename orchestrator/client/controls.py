"""Controls: what an operator tells an execution, and the answer to it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.errors import OrchestratorError
from orchestrator.application.records.events import ControlEvent, SignalEvent
from orchestrator.client.replies import Replies
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.event_codec import event_fields
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.scripts import batches

CONTROL_BATCH_SIZE = 500


class ControlRejected(OrchestratorError):
    """What was asked for cannot be done; the reason says why."""

    exit_code = 2

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ControlResult:
    """A control was followed: the workflow's status after it; `changed` is false when it was so before."""

    status: str
    changed: bool = True


@dataclass(slots=True)
class BulkResult:
    """What became of a control to many: who followed it, and who refused it and why."""

    done: list[str] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)


class Controls:
    """Sends controls and signals, and waits for what the coordinators say to them."""

    def __init__(self, client: Client, keys: Keys, answers: Replies) -> None:
        self._client, self._keys, self._replies = client, keys, answers

    def send_and_wait(self, event: ControlEvent | SignalEvent, within_s: float) -> Mapping[str, Any]:
        """Send one, and wait for its answer; ControlRejected when that is a no."""
        [(entry_id, reply)] = self._send([event])
        answer = self._replies.wait(reply, within_s, entry_id, self._stream(event))
        if not answer["ok"]:
            raise ControlRejected(answer["reason"])
        return answer

    def send(self, event: ControlEvent | SignalEvent) -> str:
        """Send one without asking for an answer; returns its entry id."""
        with translate_errors():
            return str(self._client.xadd(self._stream(event), dict(event_fields(event))))  # type: ignore[arg-type]

    def send_all_and_wait(self, events: Iterable[ControlEvent], within_s: float) -> BulkResult:
        """Send many, so many in each round trip; those that are gone or have moved on refuse. However long
        it takes, the next answer must come within this time."""
        bulk = BulkResult()
        for some in batches(events, CONTROL_BATCH_SIZE):
            for event, (entry_id, reply) in zip(some, self._send(some), strict=True):
                answer = self._replies.wait(reply, within_s, entry_id, self._stream(event))
                if answer["ok"]:
                    bulk.done.append(event.workflow_execution_id)
                else:
                    bulk.rejected[event.workflow_execution_id] = answer["reason"]
        return bulk

    def _send(self, events: Iterable[ControlEvent | SignalEvent]) -> list[tuple[str, str]]:
        """The entry id of each, and under which name it will be answered."""
        replies = []
        with translate_errors(), self._client.pipeline(transaction=False) as pipe:
            for event in events:
                replies.append(secrets.token_hex(12))
                pipe.xadd(self._stream(event), {**event_fields(event), "reply": replies[-1]})  # type: ignore[dict-item]
            sent: list[str] = pipe.execute()
        return list(zip(sent, replies, strict=True))

    def _stream(self, event: ControlEvent | SignalEvent) -> str:
        return self._keys.events_of(event.workflow_execution_id)
