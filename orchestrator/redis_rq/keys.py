"""Every Redis key we own, and the few of RQ that we write.

<p>:starts                    stream  workflow-start events from producers
<p>:held:<queue>              stream  starts that wait for a full queue; start_event is their id in <p>:starts
<p>:held                      hash    the id of a held start in <p>:starts -> the queue that it waits for
<p>:events:<n>                stream  step results, signals, controls, due timers; n spreads executions
<p>:dead                      stream  rejected events: reason, stream, entry, the event's fields, what was cut
<p>:spec:<workflow_id>        hash    document (JSON), number of open executions, number of registered names,
                                      time of the last registration
<p>:definitions               hash    name -> workflow_id
<p>:workflow:<wf_exec_id>     hash    the record: plain fields, step:<id> and state:<key> as JSON
<p>:execution:<execution_id>  string  -> workflow_execution_id
<p>:history:<wf_exec_id>      list    one JSON object per transition, and with `history: full` one per commit
<p>:lines:<wf_exec_id>        stream  the step log: step, run_id, attempt, at, text
<p>:answer:<entry_id>         list    the reply to a start: one JSON object; expires
<p>:answer:<reply>            list    the reply to a control or a signal that named it as its reply; expires
<p>:leases                    zset    one member per dispatch that has not ended; score = due in ms, or while
                                      its job waits in a queue its sequence there, which is beyond all times
<p>:signals:<execution_id>    list    signals that arrived before their execution was created; expires
<p>:timers                    zset    one member per timer; score = due, in ms
<p>:index:status:<status>     zset    workflow_execution_id by creation time, in ms
<p>:index:name:<name>         zset    the same, by the name of the workflow
<p>:index:group:<group>       zset    the same, by group
<p>:index:label:<key>=<value> zset    the same, by label
<p>:ended                     zset    ended executions by their end, in ms; see ended_member
<p>:ends                      stream  ended executions whose traces are not exported yet; only if
                                      `orchestrator traces` has created it; about MAX_ENDS at most
<p>:leaving                   zset    ended executions with a retention of their own, by their deletion time
<p>:concurrency:held:<key>    zset    the slot holders of a concurrency key; score = since, in ms
<p>:concurrency:line:<key>    zset    the slot waiters of a concurrency key, in order
<p>:kv:global:<execution_id>  hash    the global scope of an execution and its children, as JSON; expires
<p>:kv:group:<group>          hash    the flow_group scope of a group, as JSON; expires
<p>:groups                    hash    group -> number of its open executions
<p>:idempotency:<root>        string  -> workflow_execution_id of the first start; expires
<p>:payload:<id>              string  a large value as JSON, compressed with zlib if that is smaller; expires
<p>:schedules                 hash    name -> its schedule, as JSON
<p>:scheduled                 hash    execution_id -> entry id of its start, while its schedule counts it
<p>:coordinators              zset    coordinator by its last heartbeat, in ms; see sweep.lua for the
                                      half of a ms in it
<p>:partitions                string  the largest number of event streams ever used
<p>:full                      string  the full queues, each with its number of jobs and the limit; expires
<p>:partial                   set     until they are repaired: executions written without some of their keys,
                                      and members that could not be removed, as <key> LF <member>
<p>:sequences                 hash    queue -> the sequence of its last job; see FIRST_SEQUENCE
<p>:declined                  zset    steps that workers without their executor declined in the last minute:
                                      [queue, executor, execution, step, event stream] as JSON, by the time
                                      in ms; expires
<p>:counters                  hash    stale, late, lost, dead; declined: steps that a worker without their
                                      executor gave back; not_shared: values that could not be written;
                                      conflicts: decisions repeated because another coordinator was first
<p>:metrics                   hash    counters of the metrics; see commit_metrics.lua and metric_counts.py
<p>:slots                     zset    the concurrency keys with holders or waiters; score = the number of
                                      waiters times SLOT_WAITER, plus that of holders
<p>:done:<wf_exec_id>         channel the final status of an execution
<p>:changed:<wf_exec_id>      channel an empty message per commit of an execution, and one for its deletion

rq:job:<job id>, rq:queue:<p>.<queue>, rq:queues, rq:failed:<p>.<queue>: RQ's own, written only by our
scripts and by RQ. Queues carry the prefix so that a team's own jobs and ours never mix. A job id begins with
the queue, so that a user of Redis can be limited to the jobs of one queue; see job_id_prefix.

rq:worker:<name>: RQ's own. `orchestrator worker` adds two fields: current_step, the id of the job that it
runs, and executors, the names of its executors as a JSON list ("*" for every name). By a push to the list
rq:worker:<name>:interrupt, which expires, it ends its own wait for a job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha1
from urllib.parse import quote, unquote

from orchestrator.application.values.dispatch_tokens import dispatch_id, has_secret

GROUP = "coordinator"

EXECUTORS_FIELD = "executors"
"""The field of a registered worker with the names of its executors."""

FIRST_SEQUENCE, SEQUENCES_PER_QUEUE = 2**44, 2**40
"""Each queue has its own range of sequences, from the first one on. As scores they are larger than any time
in ms. job_lease.lua has the same numbers."""

SLOT_WAITER = 2**26
"""What a waiter adds to the score of a concurrency key in use. grant_slots.lua has the same number."""

PREFIX_RULE = "must have 1 to 64 letters, digits, '_', '-', '.' or ':'"
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


def is_prefix(text: str) -> bool:
    return _PREFIX.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Keys:
    prefix: str = "orchestrator"
    partitions: int = 8

    @staticmethod
    def with_prefix(prefix: str) -> Keys:
        """The keys with this prefix; ValueError if it cannot be one."""
        if not is_prefix(prefix):
            raise ValueError(f"a prefix {PREFIX_RULE}, not {prefix[:100]!r}")
        return Keys(prefix)

    @property
    def starts(self) -> str:
        return f"{self.prefix}:starts"

    def held(self, queue: str) -> str:
        """The starts that wait for an RQ queue; with an empty name, the prefix of these keys."""
        return f"{self.prefix}:held:{self.queue_name(queue)}"

    @property
    def held_queues(self) -> str:
        """The queue that each held start waits for, by the entry id under which it was sent."""
        return f"{self.prefix}:held"

    def is_held(self, stream: str) -> bool:
        """Whether a stream has held starts."""
        return stream.startswith(f"{self.prefix}:held:")

    @staticmethod
    def from_leases_key(leases: str) -> Keys:
        """The keys with the same prefix as a leases key."""
        return Keys(leases.removesuffix(":leases"))

    @staticmethod
    def from_events_key(events: str) -> Keys:
        """The keys with the same prefix as an event stream, which is all that a job names."""
        return Keys(events.rpartition(":events:")[0])

    def events(self, partition: int) -> str:
        return f"{self.prefix}:events:{partition}"

    def streams(self, partitions: int) -> list[str]:
        """The streams that coordinators read: the starts, and this number of event streams."""
        return [self.starts, *map(self.events, range(partitions))]

    def events_of(self, workflow_execution_id: str) -> str:
        return self.events(self.partition_of(workflow_execution_id))

    def partition_of(self, workflow_execution_id: str) -> int:
        """The event stream of an execution: all its events reach the same coordinator.

        Only speed depends on this, not correctness. sweep.lua computes the same.
        """
        digest = sha1(workflow_execution_id.encode(), usedforsecurity=False).hexdigest()
        return int(digest[:8], 16) % self.partitions

    @property
    def dead_letters(self) -> str:
        return f"{self.prefix}:dead"

    def spec(self, workflow_id: str) -> str:
        """The key of a spec; with an empty id, the prefix of these keys."""
        return f"{self.prefix}:spec:{workflow_id}"

    @property
    def definitions(self) -> str:
        return f"{self.prefix}:definitions"

    def workflow(self, workflow_execution_id: str) -> str:
        return f"{self.prefix}:workflow:{workflow_execution_id}"

    def execution(self, execution_id: str) -> str:
        return f"{self.prefix}:execution:{execution_id}"

    def history(self, workflow_execution_id: str) -> str:
        return f"{self.prefix}:history:{workflow_execution_id}"

    def step_log(self, workflow_execution_id: str) -> str:
        return f"{self.prefix}:lines:{workflow_execution_id}"

    def reply(self, entry_id: str) -> str:
        return f"{self.prefix}:answer:{entry_id}"

    @property
    def leases(self) -> str:
        return f"{self.prefix}:leases"

    def signals(self, execution_id: str) -> str:
        return f"{self.prefix}:signals:{execution_id}"

    @property
    def timers(self) -> str:
        return f"{self.prefix}:timers"

    def index(self, status: str) -> str:
        return f"{self.prefix}:index:status:{status}"

    @property
    def indexes(self) -> str:
        """The prefix of all index keys."""
        return f"{self.prefix}:index:"

    def index_of_name(self, name: str) -> str:
        return f"{self.indexes}name:{name}"

    def index_of_group(self, group: str) -> str:
        return f"{self.indexes}group:{group}"

    def index_of_label(self, name: str, value: str) -> str:
        return f"{self.indexes}label:{name}={value}"

    @property
    def ended(self) -> str:
        return f"{self.prefix}:ended"

    @property
    def ends(self) -> str:
        return f"{self.prefix}:ends"

    @property
    def leaving(self) -> str:
        return f"{self.prefix}:leaving"

    def slot_holders(self, key: str) -> str:
        return f"{self.prefix}:concurrency:held:{key}"

    def slot_waiters(self, key: str) -> str:
        return f"{self.prefix}:concurrency:line:{key}"

    def shared(self, scope: str, owner: str) -> str:
        """The values of a scope: `global`, owned by a root execution, or `flow_group`, owned by a group."""
        return f"{self.prefix}:kv:{'global' if scope == 'global' else 'group'}:{owner}"

    @property
    def groups(self) -> str:
        return f"{self.prefix}:groups"

    def idempotency(self, root: str) -> str:
        return f"{self.prefix}:idempotency:{root}"

    def payload(self, payload_id: str) -> str:
        """The key of a payload; its id is the SHA-256 of its JSON."""
        return f"{self.prefix}:payload:{payload_id}"

    @property
    def schedules(self) -> str:
        return f"{self.prefix}:schedules"

    @property
    def scheduled(self) -> str:
        return f"{self.prefix}:scheduled"

    @property
    def coordinators(self) -> str:
        return f"{self.prefix}:coordinators"

    @property
    def max_partitions(self) -> str:
        return f"{self.prefix}:partitions"

    @property
    def partial(self) -> str:
        return f"{self.prefix}:partial"

    @property
    def intake_paused(self) -> str:
        return f"{self.prefix}:full"

    @property
    def sequences(self) -> str:
        return f"{self.prefix}:sequences"

    @property
    def declined(self) -> str:
        return f"{self.prefix}:declined"

    @property
    def counters(self) -> str:
        return f"{self.prefix}:counters"

    @property
    def metrics(self) -> str:
        return f"{self.prefix}:metrics"

    @property
    def slots(self) -> str:
        return f"{self.prefix}:slots"

    def done(self, workflow_execution_id: str) -> str:
        return f"{self.prefix}:done:{workflow_execution_id}"

    def changed(self, workflow_execution_id: str) -> str:
        """The channel of the changes of an execution; with an empty id, the prefix of these channels."""
        return f"{self.prefix}:changed:{workflow_execution_id}"

    def queue(self, name: str, priority: int = 3) -> str:
        """The RQ queue of one of our queues; each priority other than the default has its own."""
        return f"{self.prefix}.{name}" if priority == 3 else f"{self.prefix}.{name}:{priority}"

    def queue_name(self, queue: str) -> str:
        """The name of an RQ queue without our prefix; it keeps a priority."""
        return queue.removeprefix(f"{self.prefix}.")

    def queues(self, name: str) -> list[str]:
        """The RQ queues of one of our queues, the most urgent first."""
        return [self.queue(name, priority) for priority in range(1, 6)]

    @staticmethod
    def rq_queue(queue: str) -> str:
        return f"rq:queue:{queue}"

    @staticmethod
    def rq_job(job_id: str) -> str:
        return f"rq:job:{job_id}"

    @staticmethod
    def rq_failed(queue: str) -> str:
        return f"rq:failed:{queue}"


def job_id_of(queue: str, token: str) -> str:
    """The id of a job on an RQ queue. A token without a secret is the id itself, as in the last release."""
    return f"{job_id_prefix(queue)}{dispatch_id(token)}" if has_secret(token) else token


@lru_cache(maxsize=1_024)
def job_id_prefix(queue: str) -> str:
    """How the ids of all jobs of a queue begin, in all its priorities, and those of no other queue.

    RQ allows letters, digits, "-" and "_" in a job id. Every other byte, and "_", is written as "_" and two
    hexadecimal digits, so "__" occurs only at the end: orchestrator.default becomes orchestrator_2Edefault__.
    """
    name = _PRIORITY.sub("", queue).encode()
    return re.sub(rb"[^A-Za-z0-9-]", lambda found: b"_%02X" % ord(found[0]), name).decode() + "__"


_PRIORITY = re.compile(r":[1-5]$")


class OwnStreams:
    """The event streams that a coordinator reads itself. The results of its dispatches go to one of these, so
    that its cache has the record. Without any, they go to the event stream of the execution."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.partitions: Sequence[int] = ()

    @property
    def streams(self) -> list[str]:
        return [self._keys.events(partition) for partition in self.partitions]

    def events_of(self, workflow_execution_id: str) -> str:
        own = self._keys.partition_of(workflow_execution_id)
        if self.partitions and own not in self.partitions:
            own = self.partitions[own % len(self.partitions)]
        return self._keys.events(own)


def lease_member(workflow_execution_id: str, step_id: str, run_id: int, attempt: int, token: str) -> str:
    """The member of a dispatch among the leases: enough to publish its loss without reading another key, and
    not enough to publish its result."""
    return f"{workflow_execution_id}|{step_id}|{run_id}|{attempt}|{dispatch_id(token)}"


def is_queue_sequence(score: float, last_sequences: Iterable[int]) -> bool:
    """Whether a score is the sequence of a job on one of these queues."""
    return any(last - last % SEQUENCES_PER_QUEUE < score <= last for last in last_sequences)


def is_untaken(score: float) -> bool:
    """Whether the score of a lease says that no worker has taken the job: it waits in its queue, or it has
    left the queue and sweep.lua has marked it as not started, with half a millisecond."""
    return score >= FIRST_SEQUENCE or bool(score % 1)


def sequence_range(stored: str) -> tuple[str, str]:
    """The scores of the jobs that wait in a queue, by its last sequence, as arguments of ZCOUNT. Without a
    sequence that can be read, the range is empty."""
    last = int(stored) if stored.isdecimal() else 0
    return f"({last - last % SEQUENCES_PER_QUEUE}", str(last)


def slot_member(limit: int, stream: str, workflow_execution_id: str, step_id: str, token: str) -> str:
    """A holder or waiter of a concurrency key: enough to publish a grant without reading another key."""
    return f"{limit}|{stream}|{workflow_execution_id}|{step_id}|{token}"


def timer_member(kind: str, workflow_execution_id: str, step_id: str, token: str) -> str:
    """The member of a timer: the event that is published when it is due."""
    return f"{kind}|{workflow_execution_id}|{step_id}|{token}"


def schedule_member(name: str) -> str:
    """The timer of a schedule, due at its next slot."""
    return timer_member("schedule", schedule_address(name), "", "")


def schedule_address(name: str) -> str:
    """The name of a schedule in place of an execution id. It is quoted, since it may contain "|"."""
    return quote(name, safe="")


def parse_schedule_address(address: str) -> str:
    return unquote(address)
