"""Mutants: the orchestrator with one fence removed. The simulation must notice each of them.

    with MUTANTS["no version check"].alive():
        simulate(7)                # raises Failure, for this seed or for one of the next hundred

A mutant changes one line of a script, or one function. If that line no longer exists, making the mutant
fails, so a fence that moves must take its mutant along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any
from unittest.mock import patch

from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.outputs import make_error_result
from orchestrator.application.engine.results import apply_result
from orchestrator.application.records.delta import DeltaMark
from orchestrator.application.records.events import AvailableEvent, DeclinedEvent, make_failure
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.dispatch_tokens import dispatch_id
from orchestrator.backend.ports import Commit, Committed, Delivery
from orchestrator.redis_rq import scripts
from orchestrator.redis_rq.commit_args import CommitArgs
from orchestrator.redis_rq.connection import translate_errors
from orchestrator.redis_rq.event_log import RedisEventLog
from orchestrator.redis_rq.job_codec import job_args
from orchestrator.redis_rq.keys import FIRST_SEQUENCE, GROUP, Keys
from orchestrator.redis_rq.store import RedisStore

Change = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`fence` describes what is removed."""

    name: str
    fence: str
    changes: Sequence[Change]

    @contextmanager
    def alive(self) -> Iterator[None]:
        with ExitStack() as stack:
            for change in self.changes:
                stack.enter_context(change())
            yield


# ---- ways to change something


def script(name: str, before: str, after: str) -> Change:
    """Replace a text in a script."""

    def change() -> AbstractContextManager[Any]:
        text = scripts.script_text(name)
        assert text.count(before) == 1, f"{name}.lua has {text.count(before)} times: {before}"
        known = scripts.script_text
        other = text.replace(before, after)
        return patch.object(scripts, "script_text", lambda one: other if one == name else known(one))

    return change


def function(where: str, other: Callable[..., Any]) -> Change:
    """Replace a function or method; the new one gets the old one as its first argument."""

    def change() -> AbstractContextManager[Any]:
        module, _, name = where.partition(":")
        owner: Any = import_module(module)
        *path, name = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        known = getattr(owner, name)
        return patch.object(owner, name, lambda *args, **named: other(known, *args, **named))

    return change


# ---- replacements


def _bare_version(known: Any, version: str, nonce: str) -> str:
    return str(int(version or 0) + 1)


def _any_token(known: Any, unit: StepRecord, event: Any) -> bool:
    return unit.status == "in_progress" and unit.token is not None


def _public_part(known: Any, unit: StepRecord, event: Any) -> bool:
    token = unit.token if unit.token and event.token == dispatch_id(unit.token) else event.token
    return bool(known(unit, replace(event, token=token)))


def _whole_token(known: Any, unit: StepRecord, event: Any) -> bool:
    return bool(known(unit, event)) and event.token in (None, unit.token)


def _any_status(known: Any, unit: StepRecord, event: Any) -> bool:
    return event.run_id in (None, unit.run_id) and event.attempt in (None, unit.attempt)


def _never(known: Any, *args: Any) -> bool:
    return False


def _same_nonce(known: Any, world: Any) -> str:
    return "n"


def _nonce_of_version(known: Any, coordinator: Any, delivery: Delivery) -> Any:
    return replace(known(coordinator, delivery), nonce=delivery.ref.entry_id.replace("-", "_"))


def _acknowledge_first(known: Any, log: RedisEventLog, *args: Any) -> list[Delivery]:
    found: list[Delivery] = known(log, *args)
    with translate_errors():
        for delivery in found:
            log._client.xack(delivery.ref.stream, GROUP, delivery.ref.entry_id)
    return found


def _without_jobs(known: Any, words: CommitArgs, commit: Commit, *rest: Any) -> Any:
    return known(words, replace(commit, changes=replace(commit.changes, jobs=[])), *rest)


def _dispatch_after(known: Any, store: RedisStore, commits: Sequence[Commit]) -> list[Committed]:
    results: list[Committed] = known(store, commits)
    for commit, result in zip(commits, results, strict=True):
        if result is Committed.YES:
            for job in commit.changes.jobs:
                _push(store, job)
    return results


def _push(store: RedisStore, job: Any) -> None:
    keys: Keys = store._keys
    queue = keys.queue("default", job.priority)
    job_id, data, _, lease = job_args(job, keys.events_of(job.workflow_execution_id), queue)
    with store._client.pipeline(transaction=False) as pipe:
        fields: dict[Any, Any] = {"data": data, "description": lease, "status": "queued", "origin": queue}
        pipe.hset(keys.rq_job(str(job_id)), mapping=fields)
        pipe.zadd(keys.leases, {str(lease): FIRST_SEQUENCE + 1})
        pipe.rpush(keys.rq_queue(queue), job_id)
        pipe.execute()


def _sent_at_first(known: Any, script: Any, calls: Any) -> Any:
    if not getattr(script, "is_sent", False):
        script._client.script_load(script._text)
        script.is_sent = True
    return known(script, calls)


def _none_unfinished(known: Any, *args: Any) -> list[Delivery]:
    return []


def _delivered_once(known: Any, log: Any, *args: Any) -> list[Delivery]:
    return [replace(delivery, delivery_count=1) for delivery in known(log, *args)]


def _not_once(known: Any, record: Any, changes: Any, deliveries: Any, answers: Any = None) -> Any:
    return replace(known(record, changes, deliveries, answers), pending_refs=[])


def _from_now_on(known: Any, client: Any, stream: str, group: str, **named: Any) -> Any:
    return known(client, stream, group, **{**named, "id": "$"})


def _due_at_once(known: Any, step_id: str, unit: StepRecord) -> Iterator[Any]:
    for timer in known(step_id, unit):
        yield replace(timer, due_ms=0)


def _failed_by_decline(known: Any, draft: Draft, event: DeclinedEvent, record: StepRecord) -> Any:
    failure = make_failure("exception", f"no executor is called {event.executor!r}")
    return apply_result(draft, event.step_id, *make_error_result(failure))


def _no_end_of_wait(known: Any, step_id: str, unit: StepRecord) -> Iterator[Any]:
    return (timer for timer in known(step_id, unit) if unit.status != "in_progress" or timer.kind != "retry")


def _any_available(known: Any, draft: Draft, event: AvailableEvent, record: StepRecord | None) -> None:
    if record is not None:
        draft.amend(event.step_id, not_before_ms=None)


def _nothing_done(known: Any, *args: Any) -> None:
    return None


def _all_applied(known: Any, record: Any, events: Sequence[Any], *rest: Any) -> Any:
    return replace(known(record, events, *rest), applied=len(events))


def _changed(**fields: Any) -> Callable[..., Any]:
    """The commands of a commit with other changes."""

    def other(known: Any, words: CommitArgs, commit: Commit, *rest: Any) -> Any:
        return known(words, replace(commit, changes=replace(commit.changes, **fields)), *rest)

    return other


def _without_state(known: Any, changes: Any) -> dict[str, Any]:
    return {name: value for name, value in known(changes).items() if not name.startswith("state:")}


def _never_a_gap(known: Any, record: Any, *args: Any, **named: Any) -> Any:
    mark = DeltaMark.parse(record.delta)
    record.delta = str(mark._replace(version=record.version)) if mark.version else record.delta
    return known(record, *args, **named)


# ---- the table

_MUTANTS = [
    Mutant(
        "no version check",
        "F1: a commit is written only at the version that was decided on",
        [script("commit", 'elseif must("HGET", record, "version") ~= version then', "elseif false then")],
    ),
    Mutant(
        "bare version counter",
        "F1: a version is a counter and a nonce, so that none repeats after a rollback of Redis",
        [function("orchestrator.redis_rq.store:next_version", _bare_version)],
    ),
    Mutant(
        "no token",
        "F2: a result counts only with the token of the current dispatch",
        [function("orchestrator.application.engine.transitions:_is_current", _any_token)],
    ),
    Mutant(
        "no secret",
        "F2: a result counts only with the whole token: others can read its public part in the lease",
        [function("orchestrator.application.engine.transitions:_is_current", _public_part)],
    ),
    Mutant(
        "losses need the secret",
        "a loss counts with the public part of a token: a sweep knows no more",
        [function("orchestrator.application.engine.transitions:_is_current", _whole_token)],
    ),
    Mutant(
        "token from a counter",
        "F3: a token is never used again, even after a rollback of Redis",
        [function("simulation.world:World.nonce", _same_nonce)],
    ),
    Mutant(
        "steps accept late results",
        "F5: a step that is not in progress accepts no result",
        [function("orchestrator.application.engine.transitions:_is_current", _any_status)],
    ),
    Mutant(
        "workflows accept late events",
        "F5: a workflow that has ended accepts no events",
        [function("orchestrator.application.engine.transitions:_is_late", _never)],
    ),
    Mutant(
        "no start dedupe",
        "F6: an execution id is used once",
        [
            script("commit_creation", "  if found ~= version then", "  if false then"),
            script(
                "commit_creation",
                "  if not is_id_free(new) then",
                "  if false then",
            ),
        ],
    ),
    Mutant(
        "no idempotency root",
        "F6: a root starts one execution, and a second start gets its reply",
        [script("commit_creation", 'if new.root and must("EXISTS", new.root) == 1 then', "if false then")],
    ),
    Mutant(
        "split dispatch",
        "F7: jobs are written with the decision",
        [
            function("orchestrator.redis_rq.commit_args:CommitArgs.args_of", _without_jobs),
            function("orchestrator.redis_rq.store:RedisStore.commit", _dispatch_after),
        ],
    ),
    Mutant(
        "acknowledged first",
        "F8: an event is acknowledged in the commit of its decision, not before",
        [
            function("orchestrator.redis_rq.event_log:RedisEventLog.read", _acknowledge_first),
            script("commit", "    if not is_pending(entries[n][1], entries[n][2]) then", "    if false then"),
        ],
    ),
    Mutant(
        "signal counted twice",
        "a signal counts only while it is pending",
        [function("orchestrator.coordinator.decider:build_commit", _not_once)],
    ),
    Mutant(
        "no takeover",
        "the events of a dead coordinator are handled by another",
        [
            function("orchestrator.redis_rq.event_log:RedisEventLog.reclaim", _none_unfinished),
            function("orchestrator.redis_rq.event_log:RedisEventLog.read_unfinished", _none_unfinished),
        ],
    ),
    Mutant(
        "no count of deliveries",
        "F11: an event that kills coordinators becomes a dead letter after five deliveries",
        [function("orchestrator.redis_rq.event_log:RedisEventLog._claim", _delivered_once)],
    ),
    Mutant(
        "timers are trusted",
        "a timer is a hint: the record decides whether it is due",
        [function("orchestrator.application.engine.timer_events:timers_for_step", _due_at_once)],
    ),
    Mutant(
        "declined fails",
        "a step that a worker declines does not fail: the same attempt is dispatched again",
        [function("orchestrator.application.engine.transitions:on_declined", _failed_by_decline)],
    ),
    Mutant(
        "declined waits for ever",
        "a declined step has a timer that ends its wait",
        [function("orchestrator.application.engine.draft:timers_for_step", _no_end_of_wait)],
    ),
    Mutant(
        "available is trusted",
        "an executor that becomes available is a hint: only a declined step is dispatched before its time",
        [function("orchestrator.application.engine.transitions:on_available", _any_available)],
    ),
    Mutant(
        "orphans start",
        "a child is created only if its parent waits for it",
        [script("commit_creation", "if new.parent and not is_awaited(new.parent) then", "if false then")],
    ),
    Mutant(
        "slot granted twice",
        "a concurrency key has no more holders than its limit",
        [
            script(
                "grant_slots",
                "held >= tonumber(limit)",
                "held > tonumber(limit)",
            )
        ],
    ),
    Mutant(
        "signal lost at the start",
        "a signal that arrives while its execution is created is not lost",
        [
            script(
                "commit_creation",
                'if must("LLEN", new.signals) ~= new.known_signals then',
                "if false then",
            )
        ],
    ),
    Mutant(
        "early signal not kept",
        "a signal for an execution that does not exist yet is kept for it",
        [script("keep_signal", '  redis.call("RPUSH", KEYS[2], ARGV[1])\n', "")],
    ),
    Mutant(
        "lost pop",
        "a job that left its queue and was not started becomes due",
        [script("sweep", "  if head and first >= FIRST_SEQUENCE then", "  if false then")],
    ),
    Mutant(
        "lost worker",
        "a lease that is not renewed is a lost dispatch",
        [script("sweep", 'if ARGV[7] == "1" then', "if false then")],
    ),
    Mutant(
        "lease gone before its event",
        "a lease is removed in the script that publishes its loss",
        [script("sweep", "    if publish_lost(due[i],\n", "    if string.len(due[i],\n")],
    ),
    Mutant(
        "pending events trimmed",
        "I7: an event that is not acknowledged is not trimmed",
        [script("trim", '      if group["pending"] > 0 then', "      if false then")],
    ),
    Mutant(
        "partial commits not listed",
        "an execution that was written in part is listed, so that it is repaired",
        [script("commit", '      redis.pcall("SADD", KEYS[5], written[n])\n', "")],
    ),
    Mutant(
        "delta without the state",
        "a delta has every field that its commit changed",
        [function("orchestrator.application.records.delta:changed_parts", _without_state)],
    ),
    Mutant(
        "no snapshot after a gap",
        "after a commit without a delta, the next delta is a snapshot",
        [function("orchestrator.redis_rq.commit_args:build_delta", _never_a_gap)],
    ),
    Mutant(
        "history of a failed commit stays",
        "when a record cannot be written, the new entries of its history are removed",
        [script("commit", '      redis.pcall("LTRIM", history, 0, -1 - entries)\n', "")],
    ),
    Mutant(
        "no repair of streams",
        "a stream whose last id is the largest of all is repaired",
        [function("orchestrator.redis_rq.stream_health:StreamHealth.heal", _nothing_done)],
    ),
    Mutant(
        "groups of repaired streams stay",
        "the group of a repaired stream goes on after its new last id",
        [script("heal_stream", '    redis.call("XGROUP", "SETID", KEYS[1], group["name"],', "    tostring(")],
    ),
    Mutant(
        "no events to others",
        "events from one execution to another are written with the decision",
        [
            function(
                "orchestrator.redis_rq.commit_args:CommitArgs._fragile_commands", _changed(outgoing_events=[])
            )
        ],
    ),
    Mutant(
        "divided and left",
        "a decision that stops between two steps goes on by an event in the same commit",
        [
            function(
                "orchestrator.redis_rq.commit_args:CommitArgs._fragile_commands",
                _changed(has_more_ready=False),
            )
        ],
    ),
    Mutant(
        "divided and acknowledged",
        "a decision that stops between two events acknowledges only those before",
        [function("orchestrator.coordinator.decider:decide", _all_applied)],
    ),
    Mutant(
        "disarmed timers stay",
        "a timer that is no longer needed is removed with the decision",
        [
            function(
                "orchestrator.redis_rq.commit_args:CommitArgs._batched_commands",
                _changed(timers_by_name_to_disarm={}),
            )
        ],
    ),
    Mutant(
        "rejected twice",
        "an event that another coordinator has acknowledged is not rejected again",
        [script("acknowledge", "if not is_event_pending(KEYS[1], ARGV[1], ARGV[2]) then", "if false then")],
    ),
    Mutant(
        "groups start now",
        "a group starts at the first entry, so that events sent before are not lost",
        [function("redis:Redis.xgroup_create", _from_now_on)],
    ),
    Mutant(
        "dead horses stay",
        "jobs that RQ lists as failed are published as lost, and deleted",
        [
            script(
                "sweep",
                '  for _, id in ipairs(query("ZRANGE", failed, 0, max_entries - 1) or {}) do',
                "  for _, id in ipairs({}) do",
            )
        ],
    ),
    Mutant(
        "scripts known for ever",
        "a script that Redis has lost is sent again",
        [
            function("orchestrator.redis_rq.scripts:_is_unknown", _never),
            function("orchestrator.redis_rq.scripts:Script.run", _sent_at_first),
        ],
    ),
]

MUTANTS = {mutant.name: mutant for mutant in _MUTANTS}
