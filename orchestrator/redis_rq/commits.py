"""A commit as the words of commit.lua: all that one decision writes, in one place.

The script checks versions and events, writes the jobs, and then runs plain commands; which ones is said here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.application.decisions import DispatchJob
from orchestrator.application.events import Post, ScheduleEvent, StartEvent
from orchestrator.application.record import WorkflowRecord
from orchestrator.application.routes import Routes
from orchestrator.application.states import FINAL_WORKFLOWS
from orchestrator.application.timers import Timer
from orchestrator.application.validation import LoadedSpec
from orchestrator.backend.commons import owner_of
from orchestrator.backend.ports import Commit
from orchestrator.redis_rq.codec import dumps, event_fields
from orchestrator.redis_rq.indexes import ended_member, lasting_indexes, score_of
from orchestrator.redis_rq.jobs import job_words, lease_of
from orchestrator.redis_rq.keys import GROUP, Keys, place_member, schedule_address, timer_member
from orchestrator.redis_rq.record_codec import changed_fields, created_fields, dropped_fields
from orchestrator.redis_rq.scripts import Call

ANSWER_S = 3_600
SPARE_S = 86_400
"""By how much keys may outlive their retention: coordinators drop them in time, this is for want of any."""
DOCUMENTS_KEPT = 256
WORDS_PER_COMMAND = 2_000
"""Lua's stack bounds how many words one command may have inside a script."""

JOBS_PER_COMMAND = WORDS_PER_COMMAND // 2

Command = list[str | int | float]


class CommitWords:
    def __init__(self, keys: Keys, retention_s: int, routes: Routes) -> None:
        self._keys, self._retention_s, self._routes = keys, retention_s, routes
        self._term_s = retention_s + SPARE_S
        self._documents: dict[str, str] = {}

    def of(self, commit: Commit, version: str) -> Call:
        """The words of commit.lua, in its order."""
        record, changes, keys = commit.record, commit.changes, self._keys
        spec = keys.spec(record.workflow_id)
        args: Command = [len(commit.once)]
        for ref in commit.once:
            args += [ref.stream, GROUP, ref.entry_id]
        if commit.creates:
            args += [1, keys.execution(record.execution_id), spec, self._document(record.loaded)]
            args += [keys.signals(record.execution_id), len(record.signals)]
            args += self._conditions(commit)
            args += self._replaced_words(commit.replaces)
            may_find_values = record.loaded.is_sharing or commit.replaces is not None
            is_root = record.parent is None
            args.append(keys.shared("global", record.execution_id) if is_root and may_find_values else "")
        else:
            args.append(0)
        args.append(record.version)
        groups = _by_queue(changes.jobs, keys, self._routes)
        args.append(len(groups))
        for queue, jobs in groups:
            args += [queue, len(jobs)]
            for job in jobs:
                args += job_words(job, keys)
        args += [len(changes.revoked), *(step.token or "" for _, step in changes.revoked)]
        args += self._root_words(commit)
        args += self._shared_words(commit)
        args += self._slot_words(commit)
        args += self._end_words(commit, spec) if _ends(commit) else [0]
        for command in self._commands(commit, version):
            args.append(len(command))
            args += command
        record_key = keys.workflow(record.workflow_execution_id)
        return [record_key, keys.leases, keys.sequences, keys.dispatched, keys.counters], args

    def _conditions(self, commit: Commit) -> Command:
        """What else must be so for an execution to begin: a parent that waits, a root that is free."""
        keys, parent, root = self._keys, commit.record.parent, commit.root
        words: Command = [0]
        if parent is not None:
            words = [1, keys.workflow(parent["execution"]), f"step:{parent['step_id']}"]
            words += [parent["token"], commit.record.execution_id]
        if root is None:
            return [*words, 0]
        name, window_s = root
        return [*words, 1, keys.idempotency(name), window_s, commit.record.workflow_execution_id]

    def _replaced_words(self, replaced: WorkflowRecord | None) -> Command:
        if replaced is None:
            return [0]
        weid = replaced.workflow_execution_id
        return [1, weid, self._keys.workflow(weid), replaced.version]

    def _root_words(self, commit: Commit) -> Command:
        """The idempotency root of an execution that goes; one that takes its place has its own."""
        gone = commit.record if commit.changes.deletes else commit.replaces
        if gone is None or gone.idempotency_root is None:
            return [0]
        return [1, self._keys.idempotency(gone.idempotency_root), gone.workflow_execution_id]

    def _shared_words(self, commit: Commit) -> Command:
        words: Command = [len(commit.changes.shared)]
        for one in commit.changes.shared:
            key = self._keys.shared(one.scope, owner_of(commit.record, one.scope))
            words += ["add" if one.is_added else "set", key, one.key, dumps(one.value)]
        return words

    def _slot_words(self, commit: Commit) -> Command:
        keys, weid = self._keys, commit.record.workflow_execution_id
        words: Command = [len(commit.changes.slots)]
        for one in commit.changes.slots:
            slot = one.slot
            member = place_member(slot.limit, keys.events_of(weid), weid, one.step_id, slot.token)
            words += [int(one.is_wanted), keys.places(slot.key), keys.line(slot.key), member]
        return words

    def _end_words(self, commit: Commit, spec: str) -> Command:
        """What an execution leaves behind when it ends, and when that goes."""
        keys, record = self._keys, commit.record
        group = record.group or ""
        return [
            1,
            spec,
            self._term_s,
            self._retention_s,
            keys.shared("global", record.root),
            keys.execution(record.root) if record.parent is not None else "",
            keys.groups,
            group,
            keys.shared("flow_group", group),
        ]

    def _document(self, loaded: LoadedSpec) -> str:
        """The spec as it is stored: made once for each, since a start carries it every time."""
        if loaded.workflow_id not in self._documents:
            if len(self._documents) >= DOCUMENTS_KEPT:
                self._documents.clear()
            self._documents[loaded.workflow_id] = dumps(loaded.document)
        return self._documents[loaded.workflow_id]

    def _commands(self, commit: Commit, version: str) -> list[Command]:
        """Everything of a commit that is a plain command, for commit.lua to run after its checks."""
        record, changes, keys = commit.record, commit.changes, self._keys
        weid = record.workflow_execution_id
        commands: list[Command] = []
        if record.is_final and "status" in changes.fields:
            commands += self._reopening(record)
        if commit.replaces is not None:
            commands += self._removal(commit.replaces)
        if changes.deletes:
            commands += self._removal(record)
            if record.parent is None:
                commands.append(["DEL", keys.shared("global", record.execution_id)])
        elif writes(commit):
            fields = {"version": version, **(created_fields(record) if commit.creates else {})}
            fields.update(changed_fields(changes))
            commands += _chunked(["HSET", keys.workflow(weid)], [w for pair in fields.items() for w in pair])
        commands += _chunked(["HDEL", keys.workflow(weid)], dropped_fields(changes))
        if changes.history and not changes.deletes:
            commands += _chunked(["RPUSH", keys.history(weid)], [dumps(entry) for entry in changes.history])
        if commit.creates:
            commands.append(["SET", keys.execution(record.execution_id), weid])
            score = score_of(record)
            commands += (["ZADD", index, score, weid] for index in lasting_indexes(record, keys))
            if record.group is not None:
                commands.append(["HINCRBY", keys.groups, record.group, 1])
                commands.append(["PERSIST", keys.shared("flow_group", record.group)])
        commands += self._releases(commit)
        commands += _chunked(["ZREM", keys.timers], [_member(weid, timer) for timer in changes.disarmed])
        for timer in changes.timers:
            commands.append(["ZADD", keys.timers, timer.due_ms, _member(weid, timer)])
        if commit.creates or ("status" in changes.fields and not changes.deletes):
            commands += self._status_moves(commit)
        if changes.more:
            commands.append(["XADD", keys.events_of(weid), "*", "type", "continue", "execution", weid])
        for post in changes.posts:
            commands.append(["XADD", keys.events_of(_addressee(post)), "*", *flat(event_fields(post))])
        for name, count in changes.counted.items():
            commands.append(["HINCRBY", keys.counters, name, count])
        for name, answer in commit.answers.items():
            commands += answer_commands(keys.answer(name), answer)
        for stream, ids in _by_stream(commit).items():
            commands += _chunked(["XACK", stream, GROUP], ids)
        return commands

    def _releases(self, commit: Commit) -> list[Command]:
        """Dispatches that ended: their leases go."""
        weid = commit.record.workflow_execution_id
        ended = [
            (unit, step)
            for unit, step in (*commit.changes.settled, *commit.changes.revoked)
            if step.child is None
        ]
        return _chunked(["ZREM", self._keys.leases], [lease_of(weid, unit, step) for unit, step in ended])

    def _status_moves(self, commit: Commit) -> list[Command]:
        """The indexes follow the status; an execution that ends gets its term, and who waits hears of it."""
        record, keys, weid = commit.record, self._keys, commit.record.workflow_execution_id
        status = commit.changes.fields.get("status", record.status)
        commands: list[Command] = []
        if not commit.creates:
            commands.append(["ZREM", keys.index(record.status), weid])
        commands.append(["ZADD", keys.index(status), score_of(record), weid])
        kept = (*_own(record, keys), keys.execution(record.execution_id))
        if status in FINAL_WORKFLOWS:
            commands += (["EXPIRE", key, self._term_s] for key in kept)
            commands.append(["ZADD", keys.ended, commit.changes.at_ms, ended_member(record, keys)])
            commands.append(["PUBLISH", keys.done(weid), status])
            if record.schedule is not None:
                commands.append(hint_to(record.schedule, keys))
        return commands

    def _reopening(self, record: WorkflowRecord) -> list[Command]:
        """An execution that had ended counts again, and nothing that it needs has a term. It may end in the
        same commit: then it gets a new one."""
        keys, spec = self._keys, self._keys.spec(record.workflow_id)
        kept = [*_own(record, keys), keys.execution(record.execution_id), spec]
        kept.append(keys.shared("global", record.root))
        commands: list[Command] = [["HINCRBY", spec, "executions", 1]]
        commands.append(["ZREM", keys.ended, ended_member(record, keys)])
        if record.group is not None:
            kept.append(keys.shared("flow_group", record.group))
            commands.append(["HINCRBY", keys.groups, record.group, 1])
        commands += (["PERSIST", key] for key in kept)
        return commands

    def _removal(self, record: WorkflowRecord) -> list[Command]:
        """All that is kept of an execution that has ended, but for its global values: who takes its place
        has begun with none, and may have written some by now."""
        keys, weid = self._keys, record.workflow_execution_id
        gone = (*_own(record, keys), keys.execution(record.execution_id))
        indexes = [keys.index(record.status), *lasting_indexes(record, keys)]
        commands: list[Command] = [["DEL", *gone], ["ZREM", keys.ended, ended_member(record, keys)]]
        commands += (["ZREM", index, weid] for index in indexes)
        return commands


def _own(record: WorkflowRecord, keys: Keys) -> tuple[str, str, str]:
    """The keys that carry the id of an execution."""
    weid = record.workflow_execution_id
    return keys.workflow(weid), keys.history(weid), keys.lines(weid)


def hint_to(schedule: str, keys: Keys) -> Command:
    """Say that there is something to see at a schedule."""
    stream = keys.events_of(schedule_address(schedule))
    return ["XADD", stream, "*", *flat(event_fields(ScheduleEvent(schedule)))]


def answer_commands(key: str, answer: Mapping[str, object]) -> list[Command]:
    """An answer is alone under its name: who uses one again does not find what was said the last time, and
    whatever else somebody has put there does not break a commit in two."""
    return [["DEL", key], ["RPUSH", key, dumps(answer)], ["EXPIRE", key, ANSWER_S]]


def _addressee(post: Post) -> str:
    """By whose stream a post travels. A child is named by its execution id before it has another."""
    return post.execution_id or "" if isinstance(post, StartEvent) else post.workflow_execution_id


def flat(fields: Mapping[str, str]) -> list[str]:
    """Fields as the words of a command."""
    return [word for pair in fields.items() for word in pair]


def _member(workflow_execution_id: str, timer: Timer) -> str:
    return timer_member(timer.kind, workflow_execution_id, timer.step_id, timer.token)


def writes(commit: Commit) -> bool:
    """Whether the record itself changes; a stale result only counts and is acknowledged."""
    return commit.creates or not commit.changes.is_empty


def _ends(commit: Commit) -> bool:
    """Whether an execution comes to its end by this: one that had ended was opened again before."""
    return commit.changes.fields.get("status") in FINAL_WORKFLOWS


def _chunked(head: Command, words: Sequence[str | int]) -> list[Command]:
    """One command, or several when it has too many words; the pairs of HSET stay together."""
    return [[*head, *words[at : at + WORDS_PER_COMMAND]] for at in range(0, len(words), WORDS_PER_COMMAND)]


def _by_queue(jobs: Sequence[DispatchJob], keys: Keys, routes: Routes) -> list[tuple[str, list[DispatchJob]]]:
    """Jobs by queue, in order, in groups that fit into one command of the script."""
    queues: dict[str, list[DispatchJob]] = {}
    for job in jobs:
        queue = routes.queue_of(job.tags, job.queue, job.step_id)
        queues.setdefault(keys.queue(queue, job.priority), []).append(job)
    return [
        (queue, found[at : at + JOBS_PER_COMMAND])
        for queue, found in queues.items()
        for at in range(0, len(found), JOBS_PER_COMMAND)
    ]


def _by_stream(commit: Commit) -> dict[str, list[str | int]]:
    ids: dict[str, list[str | int]] = {}
    for ref in commit.events:
        ids.setdefault(ref.stream, []).append(ref.entry_id)
    return ids
