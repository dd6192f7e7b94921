"""CommitArgs: commits as the arguments of commit.lua. Everything that a commit writes is decided here.

The script checks versions and events, writes the jobs, and then runs plain Redis commands. Commands for keys
that many commits write to are batched: the script runs them once per key, after the last commit of the call.

One call writes several commits. `n *` means a number, then that many of what follows; `0 | 1 ...` means 0, or
1 and then what follows.

    KEYS  leases, sequences, counters, the prefix of records, the executions written in part, the prefix of
          the channels of changes, the counters of the metrics, the concurrency keys that are in use
    ARGV  group, how many pending entries to look up at a time
          n * spec of a new execution: key, document
          n * stream with entries that must still be pending: name, lowest and highest entry id
          then the commits, each: the number of its arguments, and
              n * event that must still be pending: stream, entry id
              the record's key, the version that was decided on
              0 | 1 new execution: the key of its pointer, its full id, the position of its spec,
                    the key of its early signals, how many of them the decision includes,
                    0 | 1 parent: its record, the field of the waiting step, its token, the child's id
                    0 | 1 idempotency root: key, window in s
                    0 | 1 replaced execution: full id, record, version
                    the key of global values to delete, or ""
              n * queue: name, then n * job: id, data, timeout, lease
              fragile commands: the number of args, then the args; 0 ends them
              commands that write the record: likewise
              n * id of a job to revoke
              n * idempotency root to release: key, the execution that must own it
              n * shared value: "set" or "add", key, field, value
              n * slot: 1 to acquire or 0 to release, holders, waiters, member
              0 | 1 end of the execution: the spec's key and its TTL in s, the retention in s,
                    the key of its global values or "", the pointer of its root or "" if it is the root,
                    the groups, its group or "", the values of the group
              other commands: likewise
              batched commands (ZREM, HINCRBY, ZADD, XACK, COUNT): the number of args, then the args.
                    COUNT is no command of Redis: "workflow" or "queue", its name, n * (field, number)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from orchestrator.application.errors import NoRoute
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.delta import build_delta
from orchestrator.application.records.events import ContinueEvent, OutgoingEvent, ScheduleEvent, StartEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES
from orchestrator.application.records.timers import Timer
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.tag_routes import TagRoutes
from orchestrator.backend.ports import Commit, EventRef
from orchestrator.backend.shared_state import scope_owner
from orchestrator.backend.sized_cache import SizedCache
from orchestrator.redis_rq.ended_executions import end_command
from orchestrator.redis_rq.event_codec import event_fields
from orchestrator.redis_rq.indexes import ended_index_entry, ended_member, permanent_indexes, score_of
from orchestrator.redis_rq.job_codec import job_args, lease_of_step
from orchestrator.redis_rq.json_codec import canonical_json, dumps
from orchestrator.redis_rq.keys import (
    GROUP,
    Keys,
    OwnStreams,
    job_id_of,
    schedule_address,
    slot_member,
    timer_member,
)
from orchestrator.redis_rq.metric_args import count_commands
from orchestrator.redis_rq.record_codec import changed_fields, created_fields, dropped_fields
from orchestrator.redis_rq.reply_limits import encode_reply
from orchestrator.redis_rq.scripts import Call
from orchestrator.settings import RETENTION_MARGIN_S

REPLY_TTL_S = 3_600
MAX_CACHED_DOCUMENTS, MAX_CACHED_DOCUMENT_BYTES = 256, 16 * 1024 * 1024
MAX_ARGS_PER_COMMAND = 2_000
"""Lua's stack limits the number of args of one command inside a script."""
MAX_ARGS_PER_CALL = 20_000
"""Further commits go into another call: while a script runs, Redis serves no other client."""
PENDING_LOOKUP_BATCH = 1_000
"""How many pending entries of a stream one command looks up."""

Command = list[str | int | float]


class CommitArgs:
    def __init__(self, keys: Keys, retention_s: int, routes: TagRoutes, own_streams: OwnStreams) -> None:
        self._keys, self._retention_s = keys, retention_s
        self._routes, self._own_streams = routes, own_streams
        self._documents = SizedCache[str, str](MAX_CACHED_DOCUMENTS, MAX_CACHED_DOCUMENT_BYTES)

    def calls(self, commits: Sequence[Commit], versions: Sequence[str]) -> Iterator[Call]:
        """The calls of commit.lua that write these commits: as few as MAX_ARGS_PER_CALL allows."""
        specs, pending_refs, args = dict[str, LoadedSpec](), dict[str, list[str]](), Command()
        for commit, version in zip(commits, versions, strict=True):
            if len(args) >= MAX_ARGS_PER_CALL:
                yield self._call(specs, pending_refs, args)
                specs, pending_refs, args = {}, {}, []
            for ref in commit.pending_refs:
                pending_refs.setdefault(ref.stream, []).append(ref.entry_id)
            if commit.creates:
                specs.setdefault(commit.record.workflow_id, commit.record.loaded)
            own = self.args_of(
                commit, version, list(specs).index(commit.record.workflow_id) + 1 if commit.creates else 0
            )
            args.append(len(own))
            args += own
        if args:
            yield self._call(specs, pending_refs, args)

    def _call(
        self, specs: Mapping[str, LoadedSpec], pending_refs: Mapping[str, list[str]], commits: Command
    ) -> Call:
        keys = self._keys
        args: Command = [GROUP, PENDING_LOOKUP_BATCH, len(specs)]
        for workflow_id, loaded in specs.items():
            args += [keys.spec(workflow_id), self._document(loaded)]
        args.append(len(pending_refs))
        for stream, ids in pending_refs.items():
            args += [stream, min(ids, key=_parse_entry_id), max(ids, key=_parse_entry_id)]
        args += commits
        shared = [keys.leases, keys.sequences, keys.counters, keys.workflow(""), keys.partial]
        return [*shared, keys.changed(""), keys.metrics, keys.slots], args

    def args_of(self, commit: Commit, version: str, spec: int = 0) -> Command:
        """The arguments of one commit; `spec` is the position of a new execution's spec in the call."""
        record, changes, keys = commit.record, commit.changes, self._keys
        args: Command = [len(commit.pending_refs)]
        for ref in commit.pending_refs:
            args += [ref.stream, ref.entry_id]
        args += [keys.workflow(record.workflow_execution_id), record.version]
        args += self._creation_args(commit, spec) if commit.creates else [0]
        queues = _by_queue(changes.jobs, keys, self._routes)
        args.append(len(queues))
        if queues:
            events = self._own_streams.events_of(record.workflow_execution_id)
        for queue, jobs in queues.items():
            args += [queue, len(jobs)]
            for job in jobs:
                args += job_args(job, events, queue)
        args += _command_args(self._fragile_commands(commit))
        args += _command_args(self._record_commands(commit, version))
        revoked = [(unit, step.token) for unit, step in changes.revoked if step.token and not step.child]
        args += [len(revoked), *(self._job_id(record, unit, token) for unit, token in revoked)]
        args += self._released_root_args(commit)
        args += self._shared_value_args(commit)
        args += self._slot_args(commit)
        args += self._end_args(commit) if _ends(commit) else [0]
        args += _command_args(self._other_commands(commit))
        for command in self._batched_commands(commit):
            args.append(len(command))
            args += command
        return args

    def _job_id(self, record: WorkflowRecord, unit: str, token: str) -> str:
        """The id of the job of a unit. If the routes of its tags have changed since its dispatch, there is no
        such job: its worker then finds by the lease that it is not needed."""
        return job_id_of(self._keys.queue(self._queue_of(record, unit)), token)

    def _queue_of(self, record: WorkflowRecord, unit: str) -> str:
        spec = record.loaded.unit_spec(unit)
        try:
            return self._routes.queue_of(spec.tags, spec.queue, unit)
        except NoRoute:
            return spec.queue

    def _creation_args(self, commit: Commit, spec: int) -> Command:
        keys, record = self._keys, commit.record
        args: Command = [1, keys.execution(record.execution_id), record.workflow_execution_id, spec]
        args += [keys.signals(record.execution_id), len(record.signals)]
        args += self._condition_args(commit)
        args += self._replaced_args(commit.replaces)
        may_find_values = record.loaded.uses_shared_values or commit.replaces is not None
        is_root = record.parent is None
        args.append(keys.shared("global", record.execution_id) if is_root and may_find_values else "")
        return args

    def _condition_args(self, commit: Commit) -> Command:
        """The conditions of a creation: the parent still waits, the idempotency root is free."""
        keys, parent, root = self._keys, commit.record.parent, commit.idempotency_root
        args: Command = [0]
        if parent is not None:
            args = [1, keys.workflow(parent.execution), f"step:{parent.step_id}"]
            args += [parent.token, commit.record.execution_id]
        if root is None:
            return [*args, 0]
        name, window_s = root
        return [*args, 1, keys.idempotency(name), window_s]

    def _replaced_args(self, replaced: WorkflowRecord | None) -> Command:
        if replaced is None:
            return [0]
        weid = replaced.workflow_execution_id
        return [1, weid, self._keys.workflow(weid), replaced.version]

    def _released_root_args(self, commit: Commit) -> Command:
        """The idempotency root of an execution that is deleted or replaced."""
        gone = commit.record if commit.changes.deletes_execution else commit.replaces
        if gone is None or gone.idempotency_root is None:
            return [0]
        return [1, self._keys.idempotency(gone.idempotency_root), gone.workflow_execution_id]

    def _shared_value_args(self, commit: Commit) -> Command:
        args: Command = [len(commit.changes.shared)]
        for one in commit.changes.shared:
            key = self._keys.shared(one.scope, scope_owner(commit.record, one.scope))
            args += ["add" if one.is_increment else "set", key, one.key, dumps(one.value)]
        return args

    def _slot_args(self, commit: Commit) -> Command:
        keys, weid = self._keys, commit.record.workflow_execution_id
        args: Command = [len(commit.changes.slots)]
        for one in commit.changes.slots:
            slot = one.slot
            member = slot_member(slot.limit, keys.events_of(weid), weid, one.step_id, slot.token)
            args += [int(one.is_acquire), keys.slot_holders(slot.key), keys.slot_waiters(slot.key), member]
        return args

    def _end_args(self, commit: Commit) -> Command:
        """The data that outlives an execution, and when it expires."""
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
        """The spec as it is stored; cached, because every start of it carries the document."""
        document = self._documents.get(loaded.workflow_id)
        if document is None:
            document = canonical_json(loaded.document)
            self._documents.put(loaded.workflow_id, document, len(document))
        return document

    def _fragile_commands(self, commit: Commit) -> list[Command]:
        """The events for other executions, and for itself. Without them an execution would wait for ever, so
        they are written before the record. If the commit is then given up, they do no harm: their recipients
        check them against the records."""
        changes, keys, weid = commit.changes, self._keys, commit.record.workflow_execution_id
        commands: list[Command] = []
        if changes.has_more_ready:
            stream = self._own_streams.events_of(weid)
            own = ContinueEvent(weid, changes.continue_at)
            commands.append(["XADD", stream, "*", *flatten_fields(event_fields(own))])
        for event in changes.outgoing_events:
            stream = keys.events_of(_recipient(event))
            commands.append(["XADD", stream, "*", *flatten_fields(event_fields(event))])
        if _ends(commit) and commit.record.schedule is not None:
            commands.append(schedule_hint_command(commit.record.schedule, keys))
        return commands

    def _record_commands(self, commit: Commit, version: str) -> list[Command]:
        """The commands that write the record and its history, or delete them."""
        record, changes, keys = commit.record, commit.changes, self._keys
        weid = record.workflow_execution_id
        commands: list[Command] = []
        if commit.replaces is not None:
            commands.append(self._deletion_command(commit.replaces))
        if changes.deletes_execution:
            commands.append(self._deletion_command(record))
        elif changes_record(commit):
            entries = [dumps(entry) for entry in changes.history]
            fields = {"version": version, **(created_fields(record) if commit.creates else {})}
            fields.update(changed_fields(changes))
            if commit.has_delta:
                commit.delta = build_delta(record, changes, version, dumps, fields, creates=commit.creates)
                fields["delta"] = commit.delta.mark
                entries += [commit.delta.text] if commit.delta.text else []
            commands += _chunked(["RPUSH", keys.history(weid)], entries)
            commit.written_bytes = sum(map(len, fields.values()))
            pairs = [arg for pair in fields.items() for arg in pair]
            commands += _chunked(["HSET", keys.workflow(weid)], pairs)
        return commands

    def _other_commands(self, commit: Commit) -> list[Command]:
        """The remaining commands for keys that only this commit writes."""
        record, changes, keys = commit.record, commit.changes, self._keys
        weid = record.workflow_execution_id
        commands: list[Command] = []
        if record.is_final and "status" in changes.fields:
            commands += self._reopening_commands(record)
        if commit.replaces is not None:
            commands += self._unlisting_commands(commit.replaces)
        if changes.deletes_execution:
            commands += self._unlisting_commands(record)
            commands.append(["DEL", keys.execution(record.execution_id)])
            if record.parent is None:
                commands.append(["DEL", keys.shared("global", record.execution_id)])
        commands += _chunked(["HDEL", keys.workflow(weid)], dropped_fields(changes))
        if commit.creates and record.group is not None:
            commands.append(["HINCRBY", keys.groups, record.group, 1])
            commands.append(["PERSIST", keys.shared("flow_group", record.group)])
        if _ends(commit):
            commands.append(["PUBLISH", keys.done(weid), changes.fields["status"]])
            commands.append(end_command(weid, keys))
            if record.parent is not None:  # `verify` recognizes an ended child by this TTL
                ttl_s = retention_of(record, self._retention_s) + RETENTION_MARGIN_S
                commands.append(["EXPIRE", keys.execution(record.execution_id), ttl_s])
        for ref in commit.events:
            if commit.creates and keys.is_held(ref.stream):
                commands += release_commands(ref, record.start_event or "", keys)
        for name, reply in commit.replies.items():
            commands += reply_commands(keys.reply(name), reply)
        return commands

    def _batched_commands(self, commit: Commit) -> list[Command]:
        """The commands for keys that other commits of the same call write too."""
        record, changes, keys = commit.record, commit.changes, self._keys
        weid = record.workflow_execution_id
        ended = [*changes.finished_dispatches, *changes.revoked]
        leases = [lease_of_step(weid, unit, step) for unit, step in ended if step.child is None]
        commands: list[Command] = [["ZREM", keys.leases, *leases]] if leases else []
        if changes.timers_by_name_to_disarm:
            members = (_timer_member(weid, timer) for timer in changes.timers_to_disarm)
            commands.append(["ZREM", keys.timers, *members])
        for timer in changes.timers_to_arm:
            commands.append(["ZADD", keys.timers, timer.due_ms, _timer_member(weid, timer)])
        if not changes.deletes_execution:
            commands += self._index_commands(commit)
        for name, count in changes.counter_increments.items():
            commands.append(["HINCRBY", keys.counters, name, count])
        for stream, ids in _by_stream(commit).items():
            commands.append(["XACK", stream, *ids])
        commands += count_commands(commit, self._queue_of)
        return commands

    def _index_commands(self, commit: Commit) -> Iterator[Command]:
        """Move an execution to the index of its new status; an ended one is also listed for its deletion."""
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
            index, ended_score = ended_index_entry(record, keys, commit.changes.at_ms)
            yield ["ZADD", index, ended_score, ended_member(record, keys)]

    def _reopening_commands(self, record: WorkflowRecord) -> list[Command]:
        """An execution that had ended counts as open again, and nothing that it needs expires."""
        keys, spec = self._keys, self._keys.spec(record.workflow_id)
        kept = [keys.execution(record.execution_id), spec, keys.shared("global", record.root)]
        commands: list[Command] = [["HINCRBY", spec, "executions", 1]]
        commands.append(["ZREM", ended_index_entry(record, keys, 0)[0], ended_member(record, keys)])
        if record.group is not None:
            kept.append(keys.shared("flow_group", record.group))
            commands.append(["HINCRBY", keys.groups, record.group, 1])
        commands += (["PERSIST", key] for key in kept)
        return commands

    def _deletion_command(self, record: WorkflowRecord) -> Command:
        """Delete an execution that has ended, except its pointer and its global values: an execution that
        replaces it gets the pointer, and was created without the values."""
        keys, weid = self._keys, record.workflow_execution_id
        return ["DEL", keys.workflow(weid), keys.history(weid), keys.step_log(weid)]

    def _unlisting_commands(self, record: WorkflowRecord) -> list[Command]:
        """Remove an execution that has ended from all indexes."""
        keys, weid = self._keys, record.workflow_execution_id
        ended, _ = ended_index_entry(record, keys, 0)
        indexes = [keys.index(record.status), *permanent_indexes(record, keys)]
        commands: list[Command] = [["ZREM", ended, ended_member(record, keys)]]
        commands += (["ZREM", index, weid] for index in indexes)
        return commands


def retention_of(record: WorkflowRecord, default_s: int) -> int:
    """How long an execution is kept after its end, in s: its document may set it."""
    own_s = record.spec.retention_s
    return default_s if own_s is None else math.ceil(own_s)


def schedule_hint_command(schedule: str, keys: Keys) -> Command:
    """Publish an event that lets a coordinator check a schedule."""
    stream = keys.events_of(schedule_address(schedule))
    return ["XADD", stream, "*", *flatten_fields(event_fields(ScheduleEvent(schedule)))]


def reply_commands(key: str, reply: Mapping[str, object]) -> list[Command]:
    """Write a reply. The key is deleted first: a reply name that is used again must not return the old reply,
    and a value of another type under the key must not make half a commit fail."""
    return [["DEL", key], ["RPUSH", key, encode_reply(reply)], ["EXPIRE", key, REPLY_TTL_S]]


def release_commands(ref: EventRef, start_event: str, keys: Keys) -> list[Command]:
    """Remove a held start that is handled: from its stream, and from the list of held starts."""
    return [["XDEL", ref.stream, ref.entry_id], ["HDEL", keys.held_queues, start_event]]


def _recipient(event: OutgoingEvent) -> str:
    """The execution whose event stream carries an event. A child that is yet to be created has only its
    execution id."""
    return event.execution_id or "" if isinstance(event, StartEvent) else event.workflow_execution_id


def flatten_fields(fields: Mapping[str, str]) -> list[str]:
    """Fields as the args of a command."""
    return [arg for pair in fields.items() for arg in pair]


def _timer_member(workflow_execution_id: str, timer: Timer) -> str:
    return timer_member(timer.kind, workflow_execution_id, timer.step_id, timer.token)


def changes_record(commit: Commit) -> bool:
    """Whether the record itself changes; a stale result is only counted and acknowledged."""
    return commit.creates or not commit.changes.is_empty


def _may_leave_values(record: WorkflowRecord) -> bool:
    """Whether there may be global values when an execution ends: its own, its children's, or its root's."""
    has_relatives = record.parent is not None or any(step.child is not None for step in record.spec.steps)
    return record.loaded.uses_shared_values or has_relatives


def _ends(commit: Commit) -> bool:
    """Whether a commit ends its execution."""
    return commit.changes.fields.get("status") in FINAL_WORKFLOW_STATUSES


def _command_args(commands: Iterable[Command]) -> Command:
    """Commands as arguments: the number of args of each, then its args; 0 ends them."""
    args: Command = []
    for command in commands:
        args += (len(command), *command)
    args.append(0)
    return args


def _chunked(head: Command, args: Sequence[str | int]) -> list[Command]:
    """One command, or several when it has too many args; the pairs of HSET stay together."""
    return [
        [*head, *args[at : at + MAX_ARGS_PER_COMMAND]] for at in range(0, len(args), MAX_ARGS_PER_COMMAND)
    ]


def _by_queue(jobs: Sequence[DispatchJob], keys: Keys, routes: TagRoutes) -> dict[str, list[DispatchJob]]:
    """Jobs by queue, in order."""
    queues: dict[str, list[DispatchJob]] = {}
    for job in jobs:
        queue = routes.queue_of(job.tags, job.queue, job.step_id)
        queues.setdefault(keys.queue(queue, job.priority), []).append(job)
    return queues


def _parse_entry_id(entry_id: str) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number)


def _by_stream(commit: Commit) -> dict[str, list[str | int]]:
    ids: dict[str, list[str | int]] = {}
    for ref in commit.events:
        ids.setdefault(ref.stream, []).append(ref.entry_id)
    return ids
