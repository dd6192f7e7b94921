"""Waits for the replies of coordinators, without polling.

An outage of Redis in between is waited for too. Redis may come back without its last writes, and the request
may be among them. So after an outage, the client checks whether the request still exists, and raises
RequestLost if it does not.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.application.errors import OrchestratorError, Unavailable
from orchestrator.redis_rq.connection import (
    BLOCK_MS,
    Client,
    backoff_delays,
    execute_pipeline,
    translate_errors,
)
from orchestrator.redis_rq.json_codec import loads
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.pending_events import find_held_queue, has_entry

REPLY_TIMEOUT_S = 10.0


class NoReply(OrchestratorError):
    """No coordinator replied in time. The request stays in the stream for the next coordinator, or is held
    until a full queue has room."""

    def __init__(self, entry_id: str, waited_s: float, held_for: str | None = None) -> None:
        if held_for:
            text = (
                f"the queue {held_for!r} is full, and the start is held until it has room: start more workers"
                f" (orchestrator worker {held_for.partition(':')[0]}). The start waits as {entry_id}"
            )
        else:
            text = (
                f"no coordinator replied within {waited_s:g} s; check that one is running (orchestrator"
                f" coordinator). The request waits in the stream as {entry_id}"
            )
        super().__init__(text)
        self.entry_id = entry_id


class RequestLost(NoReply):
    """The request is no longer in its stream and has no reply: no coordinator will handle it."""

    def __init__(self, entry_id: str, stream: str) -> None:
        OrchestratorError.__init__(
            self,
            f"the request {entry_id} is no longer in {stream}, and there is no reply to it: Redis lost its"
            " last writes in an outage, or was flushed; send the request again",
        )
        self.entry_id = entry_id


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """A reply to wait for: its name, and the request in its stream."""

    name: str
    entry_id: str
    stream: str


class Replies:
    def __init__(self, client: Client, keys: Keys) -> None:
        self._client, self._keys = client, keys

    def wait(
        self, name: str, timeout_s: float, entry_id: str | None = None, stream: str | None = None
    ) -> dict[str, Any]:
        """Wait for the reply with this name to the request `entry_id` of a stream; by default, to a start.

        The reply stays in Redis, so that others can read it too.
        """
        key, deadline = self._keys.reply(name), time.monotonic() + timeout_s
        entry_id, stream = entry_id or name, stream or self._keys.starts
        delays, may_be_lost = backoff_delays(), False
        while True:
            left_s = deadline - time.monotonic()
            try:
                reply = self._block(key, min(left_s, BLOCK_MS / 1000))
                if reply is None and (may_be_lost or left_s <= 0):
                    reply = self._read_unless_waiting(key, stream, entry_id)
                may_be_lost = False
            except Unavailable:
                delay_s = next(delays)
                if left_s < delay_s:
                    raise
                may_be_lost = True
                time.sleep(delay_s)
                continue
            if reply is not None:
                parsed: dict[str, Any] = loads(reply)
                return parsed
            if left_s <= 0:
                raise NoReply(entry_id, timeout_s, self._find_held_queue(stream, entry_id))
            time.sleep(0.01)  # fakeredis returns at once instead of blocking

    def wait_many(self, entry_ids: Sequence[str], timeout_s: float) -> list[dict[str, Any] | NoReply]:
        """Wait for the replies to starts, together no longer than `timeout_s`; NoReply in place of one that
        does not come. It waits for one reply at a time, and reads all others that exist by then."""
        deadline, found = time.monotonic() + timeout_s, dict[str, dict[str, Any] | NoReply]()
        missing = list(dict.fromkeys(entry_ids))
        while missing:
            replies = zip(missing, self.read_many(missing), strict=True)
            found |= {entry_id: reply for entry_id, reply in replies if reply is not None}
            missing = [entry_id for entry_id in missing if entry_id not in found]
            if not missing:
                break
            left_s = deadline - time.monotonic()
            try:
                found[missing[0]] = self.wait(missing[0], max(left_s, 0))
            except NoReply as error:
                found[missing[0]] = error
        return [found[entry_id] for entry_id in entry_ids]

    def request_for_start(self, entry_id: str) -> ReplyRequest:
        return ReplyRequest(entry_id, entry_id, self._keys.starts)

    def read_many(self, names: Sequence[str]) -> list[dict[str, Any] | None]:
        """Return the replies that exist by now, in one round trip; None for the others."""
        with self._client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.lindex(self._keys.reply(name), 0)
            found = execute_pipeline(pipe)
        return [loads(one) if isinstance(one, str) else None for one in found]

    def read_unless_waiting(self, request: ReplyRequest) -> dict[str, Any] | None:
        """Return None while a request waits in its stream or is held, else its reply; RequestLost if it has
        none."""
        reply = self._read_unless_waiting(self._keys.reply(request.name), request.stream, request.entry_id)
        return None if reply is None else loads(reply)

    def read_at_last(self, request: ReplyRequest, waited_s: float) -> dict[str, Any]:
        """Return the reply when the time is over; NoReply or RequestLost if there is none."""
        reply = self.read_unless_waiting(request)
        if reply is None:
            held_for = self._find_held_queue(request.stream, request.entry_id)
            raise NoReply(request.entry_id, waited_s, held_for)
        return reply

    def _read_unless_waiting(self, key: str, stream: str, entry_id: str) -> str | None:
        """Return None while the request waits in its stream, else its reply; RequestLost if it has none. A
        start may be held: then it has left its stream, and has no reply yet."""
        if has_entry(self._client, stream, entry_id):
            return None
        if self._find_held_queue(stream, entry_id) is not None:
            return None
        reply = self._read(key)  # a coordinator may just have replied and removed the request from its stream
        if reply is None:
            raise RequestLost(entry_id, stream)
        return reply

    def _find_held_queue(self, stream: str, entry_id: str) -> str | None:
        is_start = stream == self._keys.starts
        return find_held_queue(self._client, self._keys, entry_id) if is_start else None

    def _block(self, key: str, wait_s: float) -> str | None:
        """Wait for a reply and leave it where it is: BLMOVE onto the same key blocks like a pop."""
        with translate_errors():
            found: Any = self._client.blmove(key, key, max(wait_s, 0.01), "LEFT", "LEFT")  # type: ignore[arg-type]
        return None if found is None else str(found)

    def _read(self, key: str) -> str | None:
        with translate_errors():
            found: Any = self._client.lindex(key, 0)
        return None if found is None else str(found)
