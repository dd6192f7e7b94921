"""Mutants: the orchestrator with one fence taken away. A simulation that cannot tell is worth nothing.

    with MUTANTS["no version check"].alive():
        simulate(7)                # raises Failure, for this seed or for one of the next hundred

A mutant is a change of one line of a script, or of one function. Where the line is no longer there, making
the mutant fails: a fence that moves takes its mutant along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any
from unittest.mock import patch

from orchestrator.application.records.step_record import StepRecord
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
    """`fence` says what is taken away."""

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
    """Other words in a script."""

    def change() -> AbstractContextManager[Any]:
        text = scripts.text_of(name)
        assert text.count(before) == 1, f"{name}.lua has {text.count(before)} times: {before}"
        known = scripts.text_of
        other = text.replace(before, after)
        return patch.object(scripts, "text_of", lambda one: other if one == name else known(one))

    return change


def function(where: str, other: Callable[..., Any]) -> Change:
    """Another function, or method, under a name; it is given the one that it replaces, first."""

    def change() -> AbstractContextManager[Any]:
        module, _, name = where.partition(":")
        owner: Any = import_module(module)
        *path, name = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        known = getattr(owner, name)
        return patch.object(owner, name, lambda *args, **named: other(known, *args, **named))

    return change


# ---- what is done instead


def _bare_version(known: Any, version: str) -> str:
    return str(int(version or 0) + 1)


def _any_token(known: Any, unit: StepRecord, event: Any) -> bool:
    return unit.status == "in_progress" and unit.token is not None


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
    token, data, _, lease = job_args(job, keys.events_of(job.workflow_execution_id))
    queue = keys.queue("default", job.priority)
    with store._client.pipeline(transaction=False) as pipe:
        fields: dict[Any, Any] = {"data": data, "description": lease, "status": "queued", "origin": queue}
        pipe.hset(keys.rq_job(str(token)), mapping=fields)
        pipe.zadd(keys.leases, {str(lease): FIRST_SEQUENCE + 1})
        pipe.rpush(keys.rq_queue(queue), token)
        pipe.execute()


def _sent_at_first(known: Any, script: Any, calls: Any) -> Any:
    if not getattr(script, "is_sent", False):
        script._client.script_load(script._text)
        script.is_sent = True
    return known(script, calls)


def _nobody_unfinished(known: Any, *args: Any) -> list[Delivery]:
    return []


def _delivered_once(known: Any, log: Any, *args: Any) -> list[Delivery]:
    return [replace(delivery, deliveries=1) for delivery in known(log, *args)]


def _not_once(known: Any, record: Any, changes: Any, deliveries: Any, answers: Any = None) -> Any:
    return replace(known(record, changes, deliveries, answers), require_pending=[])


def _from_now_on(known: Any, client: Any, stream: str, group: str, **named: Any) -> Any:
    return known(client, stream, group, **{**named, "id": "$"})


def _due_at_once(known: Any, step_id: str, unit: StepRecord) -> Iterator[Any]:
    for timer in known(step_id, unit):
        yield replace(timer, due_ms=0)


def _changed(**fields: Any) -> Callable[..., Any]:
    """The commands of a commit that has other changes."""

    def other(known: Any, words: CommitArgs, commit: Commit, *rest: Any) -> Any:
        return known(words, replace(commit, changes=replace(commit.changes, **fields)), *rest)

    return other


# ---- the table

_MUTANTS = [
    Mutant(
        "no version check",
        "F1: a commit is made upon the record that was read",
        [
            script(
                "commit", 'elseif redis.call("HGET", record, "version") ~= version then', "elseif false then"
            )
        ],
    ),
    Mutant(
        "bare version counter",
        "F1: a version is a counter and a nonce, so that none comes again when Redis was put back",
        [function("orchestrator.redis_rq.store:_next_version", _bare_version)],
    ),
    Mutant(
        "no token",
        "F2: a result counts under the token of the dispatch that is out",
        [function("orchestrator.application.engine.transitions:_is_current", _any_token)],
    ),
    Mutant(
        "token from a counter",
        "F3: a token is never used again, whatever Redis has forgotten",
        [function("simulation.world:World.nonce", _same_nonce)],
    ),
    Mutant(
        "settled is not settled",
        "F5: a step that is not in progress takes no result",
        [function("orchestrator.application.engine.transitions:_is_current", _any_status)],
    ),
    Mutant(
        "ended is not ended",
        "F5: a workflow that has ended takes no events",
        [function("orchestrator.application.engine.transitions:_is_late", _never)],
    ),
    Mutant(
        "no start dedupe",
        "F6: an execution id is taken once",
        [
            script("commit", "  if found ~= version then", "  if false then"),
            script("commit", "  if not takes_its_name(one) then", "  if takes_its_name(one) == nil then"),
        ],
    ),
    Mutant(
        "no idempotency root",
        "F6: a root starts one execution, and who comes second has its answer",
        [script("commit", 'if one.root and redis.call("EXISTS", one.root) == 1 then', "if false then")],
    ),
    Mutant(
        "split dispatch",
        "F7: jobs are written with the decision",
        [
            function("orchestrator.redis_rq.commit_args:CommitArgs.of", _without_jobs),
            function("orchestrator.redis_rq.store:RedisStore.commit", _dispatch_after),
        ],
    ),
    Mutant(
        "acknowledged first",
        "F8: an event is acknowledged with what was decided upon it, and not before",
        [
            function("orchestrator.redis_rq.event_log:RedisEventLog.read", _acknowledge_first),
            script("commit", "    if not is_pending(once[n][1], once[n][2]) then", "    if false then"),
        ],
    ),
    Mutant(
        "signal counted twice",
        "a signal is taken by whoever still has it pending",
        [function("orchestrator.coordinator.loop:build_commit", _not_once)],
    ),
    Mutant(
        "nobody takes over",
        "what was read by somebody who died is handled by another",
        [
            function("orchestrator.redis_rq.event_log:RedisEventLog.reclaim", _nobody_unfinished),
            function("orchestrator.redis_rq.event_log:RedisEventLog.unfinished", _nobody_unfinished),
        ],
    ),
    Mutant(
        "no count of deliveries",
        "F11: an event that kills whoever handles it is dead after five deliveries",
        [function("orchestrator.redis_rq.event_log:RedisEventLog._claimed", _delivered_once)],
    ),
    Mutant(
        "timer believed",
        "a timer is a hint: the record says whether its time has come",
        [function("orchestrator.application.engine.timer_events:timers_for_step", _due_at_once)],
    ),
    Mutant(
        "orphan begins",
        "a child begins if its parent waits for it",
        [script("commit", "if one.parent and not is_awaited(one.parent) then", "if false then")],
    ),
    Mutant(
        "place given twice",
        "no more are under a concurrency key than its limit",
        [
            script(
                "hand_on",
                'redis.call("ZCARD", held) >= tonumber(limit)',
                'redis.call("ZCARD", held) > tonumber(limit)',
            )
        ],
    ),
    Mutant(
        "signal lost at the beginning",
        "a signal that comes while its execution begins is not lost",
        [script("commit", 'if redis.call("LLEN", one.signals) ~= one.known_signals then', "if false then")],
    ),
    Mutant(
        "early signal not kept",
        "a signal for an execution that is yet to come waits for it",
        [script("keep_signal", '  redis.call("RPUSH", KEYS[2], ARGV[1])\n', "")],
    ),
    Mutant(
        "lost pop",
        "a job that left its queue and was begun by nobody gets a term",
        [script("sweep", "    if first >= WAITING then", "    if false then")],
    ),
    Mutant(
        "lost worker",
        "a lease that nobody beats is a lost dispatch",
        [script("sweep", 'if ARGV[7] == "1" then', "if false then")],
    ),
    Mutant(
        "lease gone before its event",
        "a lease is taken away in the same script that says that it is lost",
        [script("sweep", "    lost(due[i], is_unstarted", "    string.len(due[i], is_unstarted")],
    ),
    Mutant(
        "pending events trimmed",
        "I7: what is not acknowledged is not trimmed",
        [script("trim", '      if group["pending"] > 0 then', "      if false then")],
    ),
    Mutant(
        "no word to others",
        "what executions say to each other is written with the decision",
        [function("orchestrator.redis_rq.commit_args:CommitArgs._commands", _changed(posts=[]))],
    ),
    Mutant(
        "disarmed timers stay",
        "a timer that nobody needs is taken away with the decision",
        [
            function(
                "orchestrator.redis_rq.commit_args:CommitArgs._gathered",
                _changed(timers_by_name_to_disarm={}),
            )
        ],
    ),
    Mutant(
        "refused twice",
        "who holds an event that somebody else has answered has nothing to say",
        [script("dismiss", 'if redis.call("XACK", KEYS[1], ARGV[1], ARGV[2]) == 0 then', "if false then")],
    ),
    Mutant(
        "groups begin now",
        "a group begins with the first entry, so that what was sent before is not lost",
        [function("redis:Redis.xgroup_create", _from_now_on)],
    ),
    Mutant(
        "dead horses stay",
        "what RQ calls failed is taken up, and taken away",
        [
            script(
                "sweep",
                '  for _, token in ipairs(ask("ZRANGE", failed, 0, most - 1) or {}) do',
                "  for _, token in ipairs({}) do",
            )
        ],
    ),
    Mutant(
        "scripts known for ever",
        "a script that Redis has forgotten is sent again",
        [
            function("orchestrator.redis_rq.scripts:_is_unknown", _never),
            function("orchestrator.redis_rq.scripts:Script.run", _sent_at_first),
        ],
    ),
]

MUTANTS = {mutant.name: mutant for mutant in _MUTANTS}
