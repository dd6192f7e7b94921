"""Commits as the words of commit.lua: all that a decision writes, in one place.

The script checks versions and events, writes the jobs, and then runs plain commands; which ones is said here.
Some of them are for keys that most decisions write to: those are gathered, and run once for a whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import OutgoingEvent, ScheduleEvent, StartEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES
from orchestrator.application.records.timers import Timer
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.tag_routes import TagRoutes
from orchestrator.backend.ports import Commit
from orchestrator.backend.shared_state import scope_owner
from orchestrator.redis_rq.event_codec import canonical_json, dumps, event_fields
from orchestrator.redis_rq.indexes import ended_index_entry, ended_member, permanent_indexes, score_of
from orchestrator.redis_rq.job_codec import job_args, lease_of_step
from orchestrator.redis_rq.keys import GROUP, Keys, OwnStreams, schedule_address, slot_member, timer_member
from orchestrator.redis_rq.record_codec import changed_fields, created_fields, dropped_fields
from orchestrator.redis_rq.scripts import Call

REPLY_TTL_S = 3_600
RETENTION_MARGIN_S = 86_400
"""By how much what executions share may outlive the retention of the last of them."""
DOCUMENT_CACHE_SIZE = 256
MAX_ARGS_PER_COMMAND = 2_000
"""Lua's stack bounds how many words one command may have inside a script."""
MAX_ARGS_PER_CALL = 20_000
"""After so many the next commits go into a call of their own: while a script runs, nobody else is served."""
PENDING_LOOKUP_BATCH = 1_000
"""How many entries of a stream are asked for at once, to see whether they are pending."""

Command = list[str | int | float]


class CommitArgs:
    def __init__(self, keys: Keys, retention_s: int, routes: TagRoutes, own_streams: OwnStreams) -> None:
        self._keys, self._retention_s, self._routes, self._home = keys, retention_s, routes, own_streams
        self._documents: dict[str, str] = {}

    def calls(self, commits: Sequence[Commit], versions: Sequence[str]) -> Iterator[Call]:
        """The calls of commit.lua that write these, each with as many of them as it may hold up others."""
        specs, require_pending, words = dict[str, LoadedSpec](), dict[str, list[str]](), Command()
        for commit, version in zip(commits, versions, strict=True):
            if len(words) >= MAX_ARGS_PER_CALL:
                yield self._call(specs, require_pending, words)
                specs, require_pending, words = {}, {}, []
            for ref in commit.require_pending:
                require_pending.setdefault(ref.stream, []).append(ref.entry_id)
            if commit.creates:
                specs.setdefault(commit.record.workflow_id, commit.record.loaded)
            own = self.of(
                commit, version, list(specs).index(commit.record.workflow_id) + 1 if commit.creates else 0
            )
            words.append(len(own))
            words += own
        if words:
            yield self._call(specs, require_pending, words)

    def _call(
        self, specs: Mapping[str, LoadedSpec], require_pending: Mapping[str, list[str]], words: Command
    ) -> Call:
        keys = self._keys
        args: Command = [GROUP, PENDING_LOOKUP_BATCH, len(specs)]
        for workflow_id, loaded in specs.items():
            args += [keys.spec(workflow_id), self._document(loaded)]
        args.append(len(require_pending))
        for stream, ids in require_pending.items():
            args += [stream, min(ids, key=_place), max(ids, key=_place)]
        args += words
        return [keys.leases, keys.sequences, keys.counters, keys.workflow("")], args

    def of(self, commit: Commit, version: str, spec: int = 0) -> Command:
        """The words of one commit, in the order of commit.lua; a new execution has this one of the specs."""
        record, changes, keys = commit.record, commit.changes, self._keys
        args: Command = [len(commit.require_pending)]
        for ref in commit.require_pending:
            args += [ref.stream, ref.entry_id]
        args += [keys.workflow(record.workflow_execution_id), record.version]
        args += self._beginning(commit, spec) if commit.creates else [0]
        groups = _by_queue(changes.jobs, keys, self._routes)
        args.append(len(groups))
        if groups:
            events = self._home.events_of(record.workflow_execution_id)
        for queue, jobs in groups.items():
            args += [queue, len(jobs)]
            for job in jobs:
                args += job_args(job, events)
        args += [len(changes.revoked), *(step.token or "" for _, step in changes.revoked)]
        args += self._root_words(commit)
        args += self._shared_words(commit)
        args += self._slot_words(commit)
        args += self._end_words(commit) if _ends(commit) else [0]
        for command in self._commands(commit, version):
            args.append(len(command))
            args += command
        args.append(0)
        for command in self._gathered(commit):
            args.append(len(command))
            args += command
        return args

    def _beginning(self, commit: Commit, spec: int) -> Command:
        keys, record = self._keys, commit.record
        words: Command = [1, keys.execution(record.execution_id), record.workflow_execution_id, spec]
        words += [keys.signals(record.execution_id), len(record.signals)]
        words += self._conditions(commit)
        words += self._replaced_words(commit.replaces)
        may_find_values = record.loaded.uses_shared_values or commit.replaces is not None
        is_root = record.parent is None
        words.append(keys.shared("global", record.execution_id) if is_root and may_find_values else "")
        return words

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
        return [*words, 1, keys.idempotency(name), window_s]

    def _replaced_words(self, replaced: WorkflowRecord | None) -> Command:
        if replaced is None:
            return [0]
        weid = replaced.workflow_execution_id
        return [1, weid, self._keys.workflow(weid), replaced.version]

    def _root_words(self, commit: Commit) -> Command:
        """The idempotency root of an execution that goes; one that takes its place has its own."""
        gone = commit.record if commit.changes.deletes_execution else commit.replaces
        if gone is None or gone.idempotency_root is None:
            return [0]
        return [1, self._keys.idempotency(gone.idempotency_root), gone.workflow_execution_id]

    def _shared_words(self, commit: Commit) -> Command:
        words: Command = [len(commit.changes.shared)]
        for one in commit.changes.shared:
            key = self._keys.shared(one.scope, scope_owner(commit.record, one.scope))
            words += ["add" if one.is_increment else "set", key, one.key, dumps(one.value)]
        return words

    def _slot_words(self, commit: Commit) -> Command:
        keys, weid = self._keys, commit.record.workflow_execution_id
        words: Command = [len(commit.changes.slots)]
        for one in commit.changes.slots:
            slot = one.slot
            member = slot_member(slot.limit, keys.events_of(weid), weid, one.step_id, slot.token)
            words += [int(one.is_acquire), keys.places(slot.key), keys.line(slot.key), member]
        return words

    def _end_words(self, commit: Commit) -> Command:
        """What an execution leaves behind when it ends, and when that goes."""
        keys, record = self._keys, commit.record
        group, retention_s = record.group or "", retention_of(record, self._retention_s)
        return [
            1,
            keys.spec(record.workflow_id),
            retention_s + RETENTION_MARGIN_S,
            retention_s,
            keys.shared("global", record.root) if _may_leave_values(record) else "",
            keys.execution(record.root) if record.parent is not None else "",
            keys.groups,
            group,
            keys.shared("flow_group", group),
        ]

    def _document(self, loaded: LoadedSpec) -> str:
        """The spec as it is stored: made once for each, since a start carries it every time."""
        if loaded.workflow_id not in self._documents:
            if len(self._documents) >= DOCUMENT_CACHE_SIZE:
                self._documents.clear()
            self._documents[loaded.workflow_id] = canonical_json(loaded.document)
        return self._documents[loaded.workflow_id]

    def _commands(self, commit: Commit, version: str) -> list[Command]:
        """What a commit writes to keys of its own, as plain commands."""
        record, changes, keys = commit.record, commit.changes, self._keys
        weid = record.workflow_execution_id
        commands: list[Command] = []
        if record.is_final and "status" in changes.fields:
            commands += self._reopening(record)
        if commit.replaces is not None:
            commands += self._removal(commit.replaces)
        if changes.deletes_execution:
            commands += self._removal(record)
            commands.append(["DEL", keys.execution(record.execution_id)])
            if record.parent is None:
                commands.append(["DEL", keys.shared("global", record.execution_id)])
        elif changes_record(commit):
            fields = {"version": version, **(created_fields(record) if commit.creates else {})}
            fields.update(changed_fields(changes))
            commands += _chunked(["HSET", keys.workflow(weid)], [w for pair in fields.items() for w in pair])
        commands += _chunked(["HDEL", keys.workflow(weid)], dropped_fields(changes))
        if changes.history and not changes.deletes_execution:
            commands += _chunked(["RPUSH", keys.history(weid)], [dumps(entry) for entry in changes.history])
        if commit.creates and record.group is not None:
            commands.append(["HINCRBY", keys.groups, record.group, 1])
            commands.append(["PERSIST", keys.shared("flow_group", record.group)])
        if changes.more:
            commands.append(["XADD", self._home.events_of(weid), "*", "type", "continue", "execution", weid])
        for post in changes.posts:
            commands.append(
                ["XADD", keys.events_of(_addressee(post)), "*", *flatten_fields(event_fields(post))]
            )
        if _ends(commit):
            commands.append(["PUBLISH", keys.done(weid), changes.fields["status"]])
            if record.schedule is not None:
                commands.append(schedule_hint_command(record.schedule, keys))
            if record.parent is not None:  # by which `verify` sees of a child that it has ended
                term_s = retention_of(record, self._retention_s) + RETENTION_MARGIN_S
                commands.append(["EXPIRE", keys.execution(record.execution_id), term_s])
        for name, answer in commit.replies.items():
            commands += reply_commands(keys.answer(name), answer)
        return commands

    def _gathered(self, commit: Commit) -> list[Command]:
        """What a commit writes to keys that others of the same call write to as well."""
        record, changes, keys = commit.record, commit.changes, self._keys
        weid = record.workflow_execution_id
        ended = [*changes.finished_dispatches, *changes.revoked]
        leases = [lease_of_step(weid, unit, step) for unit, step in ended if step.child is None]
        commands: list[Command] = [["ZREM", keys.leases, *leases]] if leases else []
        if changes.timers_by_name_to_disarm:
            commands.append(
                ["ZREM", keys.timers, *(_member(weid, timer) for timer in changes.timers_to_disarm)]
            )
        for timer in changes.timers:
            commands.append(["ZADD", keys.timers, timer.due_ms, _member(weid, timer)])
        if not changes.deletes_execution:
            commands += self._index_moves(commit)
        for name, count in changes.counted.items():
            commands.append(["HINCRBY", keys.counters, name, count])
        for stream, ids in _by_stream(commit).items():
            commands.append(["XACK", stream, *ids])
        return commands

    def _index_moves(self, commit: Commit) -> Iterator[Command]:
        """The indexes follow the status; an execution that ends stands where it waits for being dropped."""
        record, keys, weid = commit.record, self._keys, commit.record.workflow_execution_id
        status, score = commit.changes.fields.get("status", record.status), score_of(record)
        if commit.creates:
            for index in permanent_indexes(record, keys):
                yield ["ZADD", index, score, weid]
        elif "status" in commit.changes.fields:
            yield ["ZREM", keys.index(record.status), weid]
        else:
            return
        yield ["ZADD", keys.index(status), score, weid]
        if status in FINAL_WORKFLOW_STATUSES:
            place, ended_ms = ended_index_entry(record, keys, commit.changes.at_ms)
            yield ["ZADD", place, ended_ms, ended_member(record, keys)]

    def _reopening(self, record: WorkflowRecord) -> list[Command]:
        """An execution that had ended counts again, and nothing that it needs has a term; its own keys may
        have one that was given by an earlier release."""
        keys, spec = self._keys, self._keys.spec(record.workflow_id)
        kept = [*_own(record, keys), keys.execution(record.execution_id), spec]
        kept.append(keys.shared("global", record.root))
        commands: list[Command] = [["HINCRBY", spec, "executions", 1]]
        commands.append(["ZREM", ended_index_entry(record, keys, 0)[0], ended_member(record, keys)])
        if record.group is not None:
            kept.append(keys.shared("flow_group", record.group))
            commands.append(["HINCRBY", keys.groups, record.group, 1])
        commands += (["PERSIST", key] for key in kept)
        return commands

    def _removal(self, record: WorkflowRecord) -> list[Command]:
        """All that is kept of an execution that has ended, but for its name and its global values: who takes
        its place has the one by now, and has begun with none of the others."""
        keys, weid = self._keys, record.workflow_execution_id
        indexes = [keys.index(record.status), *permanent_indexes(record, keys)]
        place, _ = ended_index_entry(record, keys, 0)
        commands: list[Command] = [["DEL", *_own(record, keys)], ["ZREM", place, ended_member(record, keys)]]
        commands += (["ZREM", index, weid] for index in indexes)
        return commands


def _own(record: WorkflowRecord, keys: Keys) -> tuple[str, str, str]:
    """The keys that carry the id of an execution."""
    weid = record.workflow_execution_id
    return keys.workflow(weid), keys.history(weid), keys.lines(weid)


def retention_of(record: WorkflowRecord, default_s: int) -> int:
    """For how long an execution is kept after its end, in s: its document may say."""
    own_s = record.spec.retention_s
    return default_s if own_s is None else math.ceil(own_s)


def schedule_hint_command(schedule: str, keys: Keys) -> Command:
    """Say that there is something to see at a schedule."""
    stream = keys.events_of(schedule_address(schedule))
    return ["XADD", stream, "*", *flatten_fields(event_fields(ScheduleEvent(schedule)))]


def reply_commands(key: str, answer: Mapping[str, object]) -> list[Command]:
    """An answer is alone under its name: who uses one again does not find what was said the last time, and
    whatever else somebody has put there does not break a commit in two."""
    return [["DEL", key], ["RPUSH", key, dumps(answer)], ["EXPIRE", key, REPLY_TTL_S]]


def _addressee(post: OutgoingEvent) -> str:
    """By whose stream a post travels. A child is named by its execution id before it has another."""
    return post.execution_id or "" if isinstance(post, StartEvent) else post.workflow_execution_id


def flatten_fields(fields: Mapping[str, str]) -> list[str]:
    """Fields as the words of a command."""
    return [word for pair in fields.items() for word in pair]


def _member(workflow_execution_id: str, timer: Timer) -> str:
    return timer_member(timer.kind, workflow_execution_id, timer.step_id, timer.token)


def changes_record(commit: Commit) -> bool:
    """Whether the record itself changes; a stale result only counts and is acknowledged."""
    return commit.creates or not commit.changes.is_empty


def _may_leave_values(record: WorkflowRecord) -> bool:
    """Whether there may be global values when an execution ends: its own, its children's, or its root's."""
    is_of_family = record.parent is not None or any(step.child is not None for step in record.spec.steps)
    return record.loaded.uses_shared_values or is_of_family


def _ends(commit: Commit) -> bool:
    """Whether an execution comes to its end by this: one that had ended was opened again before."""
    return commit.changes.fields.get("status") in FINAL_WORKFLOW_STATUSES


def _chunked(head: Command, words: Sequence[str | int]) -> list[Command]:
    """One command, or several when it has too many words; the pairs of HSET stay together."""
    return [
        [*head, *words[at : at + MAX_ARGS_PER_COMMAND]] for at in range(0, len(words), MAX_ARGS_PER_COMMAND)
    ]


def _by_queue(jobs: Sequence[DispatchJob], keys: Keys, routes: TagRoutes) -> dict[str, list[DispatchJob]]:
    """Jobs by queue, in order."""
    queues: dict[str, list[DispatchJob]] = {}
    for job in jobs:
        queue = routes.queue_of(job.tags, job.queue, job.step_id)
        queues.setdefault(keys.queue(queue, job.priority), []).append(job)
    return queues


def _place(entry_id: str) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number)


def _by_stream(commit: Commit) -> dict[str, list[str | int]]:
    ids: dict[str, list[str | int]] = {}
    for ref in commit.events:
        ids.setdefault(ref.stream, []).append(ref.entry_id)
    return ids
