"""Executions that do not exist: their start waits, was refused, or somebody has spoken to them too early."""

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
from orchestrator.redis_rq.queries.inspection import Stream
from orchestrator.redis_rq.queries.rq_workers import rq_queues

MAX_DEAD_LETTERS_READ = 1_000
_ENTRY_ID = re.compile(r"\d{1,20}-\d{1,20}")


def execution_of_start(snapshot: RedisSnapshot, entry_id: str) -> str | None:
    """The execution that a start became, by the id of its entry in the stream of starts."""
    answer = _answer(snapshot, entry_id)
    return answer.get("workflow_execution_id") if answer else None


def explain_missing_execution(snapshot: RedisSnapshot, execution_id: str) -> list[Reason]:
    """What is known of an id that no execution has; nothing if nobody ever spoke of it."""
    return [
        *_start_waits(snapshot, execution_id),
        *_start_refused(snapshot, execution_id),
        *_signals_kept(snapshot, execution_id),
    ]


def _start_waits(snapshot: RedisSnapshot, execution_id: str) -> list[Reason]:
    [starts, *events] = snapshot.streams()
    for stream in (starts, *events):
        entry_id = _waiting_start(snapshot, stream, execution_id, is_child=stream is not starts)
        if entry_id is not None:
            age = format_duration(snapshot.now - int(entry_id.partition("-")[0]))
            words = f"its start waits in {stream.name} as {entry_id}, since {age}"
            coordinators = snapshot.explain_coordinators(execution_id, starts=stream is starts)
            held = _intake_is_held(snapshot) if stream is starts else []
            return [Reason(RedisReasonCode.START_WAITS, words), *held, *coordinators]
    return []


def _intake_is_held(snapshot: RedisSnapshot) -> list[Reason]:
    """Coordinators begin nothing while too many jobs wait for workers."""
    with translate_errors():
        full: Any = snapshot.client.get(snapshot.keys.full)
    if full is None:
        return []
    words = f"coordinators take no starts: {full} jobs wait for workers (ORCHESTRATOR_MAX_QUEUED)"
    deepest = max(rq_queues(snapshot), key=lambda queue: queue.depth)
    command = worker_command(snapshot, deepest.name)
    return [
        Reason(
            RedisReasonCode.QUEUES_FULL,
            f"{words}, most of them in {deepest.name}",
            advice=f"start more: {command}",
        )
    ]


def _waiting_start(snapshot: RedisSnapshot, stream: Stream, execution_id: str, is_child: bool) -> str | None:
    """The entry of a start that nobody has handled; a child's comes by the events."""
    for entry_id, fields in (*snapshot.pending(stream), *snapshot.unread(stream)):
        is_named = fields.get("execution_id") == execution_id
        if is_child and fields.get("type") != "child":
            continue
        if is_named or (entry_id == execution_id and not is_child):
            return entry_id
    return None


def _start_refused(snapshot: RedisSnapshot, execution_id: str) -> list[Reason]:
    answer = _answer(snapshot, execution_id)
    if answer and not answer.get("ok"):
        return [_refused(str(answer.get("reason")), "")]
    with translate_errors():
        letters: Any = snapshot.client.xrevrange(snapshot.keys.dead, count=MAX_DEAD_LETTERS_READ)
    for letter_id, letter in letters:
        with suppress(ValueError, AttributeError):
            event = json.loads(letter.get("event", ""))
            is_start = letter.get("stream") == snapshot.keys.starts or event.get("type") == "child"
            if is_start and execution_id in (event.get("execution_id"), letter.get("entry")):
                age = format_duration(snapshot.now - int(letter_id.partition("-")[0]))
                return [_refused(str(letter.get("reason")), f" {age} ago")]
    return []


def _refused(reason: str, when: str) -> Reason:
    words = f"its start was refused{when}: {reason}"
    return Reason(RedisReasonCode.START_REJECTED, words, advice="put that right and start it again")


def _signals_kept(snapshot: RedisSnapshot, execution_id: str) -> list[Reason]:
    key = snapshot.keys.signals(execution_id)
    with translate_errors():
        kept: Any = snapshot.client.lrange(key, 0, 99)
        left_s: Any = snapshot.client.ttl(key)
    if not kept:
        return []
    names = []
    for text in kept:
        with suppress(ValueError, KeyError, TypeError):
            names.append(str(json.loads(text)["name"]))
    words = (
        f"{len(kept)} signals are kept for it ({join_names(dict.fromkeys(names))}), for another"
        f" {format_duration(left_s * 1000)}: they wait for its start"
    )
    return [Reason(RedisReasonCode.SIGNALS_KEPT, words, advice=f"start it under the id {execution_id}")]


def _answer(snapshot: RedisSnapshot, entry_id: str) -> dict[str, Any] | None:
    if not _ENTRY_ID.fullmatch(entry_id):
        return None
    with translate_errors():
        found: Any = snapshot.client.lindex(snapshot.keys.answer(entry_id), 0)
    with suppress(ValueError, TypeError):
        answer = json.loads(found)
        return answer if isinstance(answer, dict) else None
    return None
