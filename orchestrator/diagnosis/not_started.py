"""Explains why an execution does not exist: its start waits, or is held, or was rejected, or never arrived.

Signals may have been sent to it before its start; they are kept for a day.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

from orchestrator.application.explain.reasons import Reason
from orchestrator.application.explain.text import format_duration, join_names
from orchestrator.diagnosis.dispatches import worker_command
from orchestrator.diagnosis.snapshot import RedisReasonCode, RedisSnapshot
from orchestrator.redis_rq.connection import translate_errors
from orchestrator.redis_rq.held_starts import read_held_start
from orchestrator.redis_rq.queries.inspection import Stream
from orchestrator.redis_rq.queries.rq_workers import RqQueue, rq_queues

MAX_DEAD_LETTERS_READ = 1_000
_ENTRY_ID = re.compile(r"\d{1,20}-\d{1,20}")


def execution_of_start(snapshot: RedisSnapshot, entry_id: str) -> str | None:
    """Return the execution that a start created, by the id of its entry in the stream of starts."""
    reply = _read_reply(snapshot, entry_id)
    return reply.get("workflow_execution_id") if reply else None


def explain_missing_execution(snapshot: RedisSnapshot, execution_id: str) -> list[Reason]:
    """Explain why no execution has this id; empty if the id appears nowhere."""
    return [
        *_explain_waiting_start(snapshot, execution_id),
        *_explain_held_start(snapshot, execution_id),
        *_explain_rejected_start(snapshot, execution_id),
        *_explain_kept_signals(snapshot, execution_id),
    ]


def _explain_waiting_start(snapshot: RedisSnapshot, execution_id: str) -> list[Reason]:
    [starts, *events] = snapshot.streams()
    for stream in (starts, *events):
        entry_id = _find_waiting_start(snapshot, stream, execution_id, is_child=stream is not starts)
        if entry_id is not None:
            age = format_duration(snapshot.now - int(entry_id.partition("-")[0]))
            words = f"its start event {entry_id} has waited in {stream.name} for {age}"
            coordinators = snapshot.explain_coordinators(execution_id, starts=stream is starts)
            return [Reason(RedisReasonCode.START_WAITS, words), *coordinators]
    return []


def _explain_held_start(snapshot: RedisSnapshot, execution_id: str) -> list[Reason]:
    """Explain that a start is held, because its first steps need a full queue."""
    for queue in rq_queues(snapshot):
        entry_id = _find_held_start(snapshot, queue, execution_id) if queue.held else None
        if entry_id is not None:
            age = format_duration(snapshot.now - int(entry_id.partition("-")[0]))
            held = f"its start event {entry_id} has waited for {age}: it is held in"
            words = (
                f"its first steps need the queue {queue.name}, which is full or was a moment ago"
                f" (ORCHESTRATOR_MAX_QUEUED): jobs that wait for workers: {queue.depth}, starts that are"
                f" held: {queue.held}"
            )
            advice = f"start more workers: {worker_command(snapshot, queue.name)}"
            is_served = snapshot.has_live_coordinator
            return [
                Reason(RedisReasonCode.START_WAITS, f"{held} {snapshot.keys.held(queue.name)}"),
                Reason(RedisReasonCode.QUEUES_FULL, words, advice=advice),
                *([] if is_served else snapshot.explain_coordinators(execution_id, starts=True)),
            ]
    return []


def _find_held_start(snapshot: RedisSnapshot, queue: RqQueue, execution_id: str) -> str | None:
    """Return the entry id under which a start was sent, if it is held for this queue."""
    keys = snapshot.keys
    if _ENTRY_ID.fullmatch(execution_id):
        with translate_errors():
            held_for: Any = snapshot.client.hget(keys.held_queues, execution_id)
        return execution_id if held_for == keys.queue_name(queue.name) else None
    [stream] = snapshot.streams([keys.held(queue.name)])
    for entry_id, fields in (*snapshot.pending(stream), *snapshot.unread(stream)):
        if fields.get("execution_id") == execution_id:
            origin, _ = read_held_start(fields, keys)
            return origin.entry_id if origin is not None else entry_id
    return None


def _find_waiting_start(
    snapshot: RedisSnapshot, stream: Stream, execution_id: str, is_child: bool
) -> str | None:
    """Return the entry id of an unhandled start. The start of a child is in an event stream."""
    for entry_id, fields in (*snapshot.pending(stream), *snapshot.unread(stream)):
        if is_child and fields.get("type") != "child":
            continue
        if fields.get("execution_id") == execution_id or (entry_id == execution_id and not is_child):
            return entry_id
    return None


def _explain_rejected_start(snapshot: RedisSnapshot, execution_id: str) -> list[Reason]:
    reply = _read_reply(snapshot, execution_id)
    if reply and not reply.get("ok"):
        return [_rejected(str(reply.get("reason")), "")]
    with translate_errors():
        letters: Any = snapshot.client.xrevrange(snapshot.keys.dead_letters, count=MAX_DEAD_LETTERS_READ)
    for letter_id, letter in letters:
        with suppress(ValueError, AttributeError):
            event = json.loads(letter.get("event", ""))
            is_start = letter.get("stream") == snapshot.keys.starts or event.get("type") == "child"
            if is_start and execution_id in (event.get("execution_id"), letter.get("entry")):
                age = format_duration(snapshot.now - int(letter_id.partition("-")[0]))
                return [_rejected(str(letter.get("reason")), f" {age} ago")]
    return []


def _rejected(reason: str, ago: str) -> Reason:
    words = f"its start was rejected{ago}: {reason}"
    return Reason(RedisReasonCode.START_REJECTED, words, advice="fix the problem and start it again")


def _explain_kept_signals(snapshot: RedisSnapshot, execution_id: str) -> list[Reason]:
    key = snapshot.keys.signals(execution_id)
    with translate_errors():
        kept: Any = snapshot.client.lrange(key, 0, 99)
        ttl_s: Any = snapshot.client.ttl(key)
    if not kept:
        return []
    names = []
    for text in kept:
        with suppress(ValueError, KeyError, TypeError):
            names.append(str(json.loads(text)["name"]))
    words = (
        f"{len(kept)} signals ({join_names(dict.fromkeys(names))}) are kept for its start, for another"
        f" {format_duration(ttl_s * 1000)}"
    )
    advice = f"start an execution with the id {execution_id}"
    return [Reason(RedisReasonCode.SIGNALS_KEPT, words, advice=advice)]


def _read_reply(snapshot: RedisSnapshot, entry_id: str) -> dict[str, Any] | None:
    """Return the reply to a start event; None if there is none, or if this is not an entry id."""
    if not _ENTRY_ID.fullmatch(entry_id):
        return None
    with translate_errors():
        found: Any = snapshot.client.lindex(snapshot.keys.reply(entry_id), 0)
    with suppress(ValueError, TypeError):
        reply = json.loads(found)
        return reply if isinstance(reply, dict) else None
    return None
