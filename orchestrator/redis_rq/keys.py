"""Every Redis key we own, and the few of RQ that we write.

<p>:starts                    stream  workflow-start events from producers
<p>:events:<n>                stream  step results and what else moves executions; n spreads executions
<p>:dead                      stream  refused events: reason, source, entry, and their own fields
<p>:spec:<workflow_id>        hash    document (JSON); how many executions are open, how many names registered
                                      and when the last of them was
<p>:definitions               hash    name -> workflow_id
<p>:workflow:<wf_exec_id>     hash    the record: plain fields, step:<id> and state:<key> as JSON
<p>:execution:<execution_id>  string  -> workflow_execution_id
<p>:history:<wf_exec_id>      list    one JSON object per transition
<p>:lines:<wf_exec_id>        stream  what executors said: step, run_id, attempt, at, text
<p>:answer:<entry_id>         list    one JSON object: what became of that start; expires
<p>:answer:<reply>            list    the same of a control or a signal that named it as its reply
<p>:leases                    zset    one member per dispatch that is out; score = due in ms, or while its job
                                      waits in a queue its sequence there, which is beyond all times
<p>:signals:<execution_id>    list    signals that came before their execution did; expires
<p>:dispatched:<queue>        zset    of earlier releases: members of the leases whose jobs wait in a queue,
                                      by their sequence; their score among the leases is +inf
<p>:timers                    zset    one member per timer; score = due, in ms
<p>:index:status:<status>     zset    workflow_execution_id by the time of its beginning, in ms
<p>:index:name:<name>         zset    the same by the name of the workflow
<p>:index:group:<group>       zset    the same by group
<p>:index:label:<key>=<value> zset    the same by label
<p>:ended                     zset    executions that have ended, by the time of that, in ms; see ended_member
<p>:leaving                   zset    the same of those with a retention of their own, by when they go
<p>:concurrency:held:<key>    zset    who has a place under a concurrency key; score = since, in ms
<p>:concurrency:line:<key>    zset    who waits for one, in order
<p>:kv:global:<execution_id>  hash    the global scope of an execution and its children, as JSON; expires
<p>:kv:group:<group>          hash    the scope flow_group of a group, as JSON; expires
<p>:groups                    hash    group -> how many of its executions are open
<p>:idempotency:<root>        string  -> workflow_execution_id of the first start; expires
<p>:payload:<id>              string  a large value as JSON, compressed with zlib if that pays; expires
<p>:schedules                 hash    name -> what is known of its schedule, as JSON
<p>:scheduled                 hash    execution_id -> the entry of its start, while it is open to its schedule
<p>:coordinators              zset    coordinator by its last beat, in ms
<p>:partitions                string  the largest number of event streams that was ever used
<p>:full                      string  how many jobs wait, while that are too many to begin executions; expires
<p>:sequences                 hash    queue -> the sequence of the last job that was put on it; see WAITING
<p>:counters                  hash    stale, late, lost, dead; not_shared: values that could not be written;
                                      conflicts: decisions made again, as another coordinator was first
<p>:done:<wf_exec_id>         channel the status an execution ended with

rq:job:<token>, rq:queue:<p>.<queue>, rq:queues, rq:failed:<p>.<queue>: RQ's own, written only by our
scripts and by RQ. Queues carry the prefix so that a team's own jobs and ours never meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha1
from urllib.parse import quote, unquote

GROUP = "coordinator"

FIRST_SEQUENCE, SEQUENCES_PER_QUEUE = 2**44, 2**40
"""The sequences of each queue are a range of their own, from here on: as scores they are beyond all times.
lease_in.lua has the same numbers."""


@dataclass(frozen=True, slots=True)
class Keys:
    prefix: str = "orchestrator"
    partitions: int = 8

    @property
    def starts(self) -> str:
        return f"{self.prefix}:starts"

    @staticmethod
    def from_leases_key(leases: str) -> Keys:
        """The keys of whoever has these leases."""
        return Keys(leases.removesuffix(":leases"))

    @staticmethod
    def from_events_key(events: str) -> Keys:
        """The keys of whoever reads this stream of events: all that a job says of its prefix."""
        return Keys(events.rpartition(":events:")[0])

    def events(self, partition: int) -> str:
        return f"{self.prefix}:events:{partition}"

    def streams(self, partitions: int) -> list[str]:
        """What coordinators read: the starts, and so many streams of events."""
        return [self.starts, *map(self.events, range(partitions))]

    def events_of(self, workflow_execution_id: str) -> str:
        return self.events(self.partition_of(workflow_execution_id))

    def partition_of(self, workflow_execution_id: str) -> int:
        """Which stream brings the events of an execution: the same one to the same coordinator.

        Only speed depends on it, never correctness. sweep.lua computes the same.
        """
        digest = sha1(workflow_execution_id.encode(), usedforsecurity=False).hexdigest()
        return int(digest[:8], 16) % self.partitions

    @property
    def dead(self) -> str:
        return f"{self.prefix}:dead"

    def spec(self, workflow_id: str) -> str:
        """With no id, the prefix of these keys."""
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

    def lines(self, workflow_execution_id: str) -> str:
        return f"{self.prefix}:lines:{workflow_execution_id}"

    def answer(self, entry_id: str) -> str:
        return f"{self.prefix}:answer:{entry_id}"

    @property
    def leases(self) -> str:
        return f"{self.prefix}:leases"

    def signals(self, execution_id: str) -> str:
        return f"{self.prefix}:signals:{execution_id}"

    @property
    def dispatched(self) -> str:
        """The prefix of these keys: what follows is the name of an RQ queue."""
        return f"{self.prefix}:dispatched:"

    @property
    def timers(self) -> str:
        return f"{self.prefix}:timers"

    def index(self, status: str) -> str:
        return f"{self.prefix}:index:status:{status}"

    @property
    def indexes(self) -> str:
        """What all indexes begin with."""
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
    def leaving(self) -> str:
        return f"{self.prefix}:leaving"

    def places(self, key: str) -> str:
        return f"{self.prefix}:concurrency:held:{key}"

    def line(self, key: str) -> str:
        return f"{self.prefix}:concurrency:line:{key}"

    def shared(self, scope: str, owner: str) -> str:
        """The values of a scope: `global` of a root execution, or `flow_group` of a group."""
        return f"{self.prefix}:kv:{'global' if scope == 'global' else 'group'}:{owner}"

    @property
    def groups(self) -> str:
        return f"{self.prefix}:groups"

    def idempotency(self, root: str) -> str:
        return f"{self.prefix}:idempotency:{root}"

    def payload(self, payload_id: str) -> str:
        """By the SHA-256 of its JSON."""
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
    def full(self) -> str:
        return f"{self.prefix}:full"

    @property
    def sequences(self) -> str:
        return f"{self.prefix}:sequences"

    @property
    def counters(self) -> str:
        return f"{self.prefix}:counters"

    def done(self, workflow_execution_id: str) -> str:
        return f"{self.prefix}:done:{workflow_execution_id}"

    def queue(self, name: str, priority: int = 3) -> str:
        """The name under which RQ knows one of our queues; each priority but the usual one has its own."""
        return f"{self.prefix}.{name}" if priority == 3 else f"{self.prefix}.{name}:{priority}"

    def queues(self, name: str) -> list[str]:
        """The RQ queues behind one of ours, the most urgent first."""
        return [self.queue(name, priority) for priority in range(1, 6)]

    @staticmethod
    def rq_queue(queue: str) -> str:
        return f"rq:queue:{queue}"

    @staticmethod
    def rq_job(token: str) -> str:
        return f"rq:job:{token}"

    @staticmethod
    def rq_failed(queue: str) -> str:
        return f"rq:failed:{queue}"


class OwnStreams:
    """The streams of events that a coordinator reads itself. What it dispatches answers to one of these, so
    that a result meets the record in the cache of whoever has it; who reads none, to the execution's own."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.partitions: Sequence[int] = ()

    def events_of(self, workflow_execution_id: str) -> str:
        own = self._keys.partition_of(workflow_execution_id)
        if self.partitions and own not in self.partitions:
            own = self.partitions[own % len(self.partitions)]
        return self._keys.events(own)


def lease_member(workflow_execution_id: str, step_id: str, run_id: int, attempt: int, token: str) -> str:
    """A dispatch in the lease set: enough to raise its loss as an event, without any other key."""
    return f"{workflow_execution_id}|{step_id}|{run_id}|{attempt}|{token}"


def is_queue_sequence(score: float, last_sequences: Iterable[int]) -> bool:
    """Whether this is the sequence of a job that was put on one of these queues."""
    return any(last - last % SEQUENCES_PER_QUEUE < score <= last for last in last_sequences)


def slot_member(limit: int, stream: str, workflow_execution_id: str, step_id: str, token: str) -> str:
    """Somebody under a concurrency key: enough to tell them that they have a place, without any other key."""
    return f"{limit}|{stream}|{workflow_execution_id}|{step_id}|{token}"


def timer_member(kind: str, workflow_execution_id: str, step_id: str, token: str) -> str:
    """A timer in its set: the event that it becomes when it is due."""
    return f"{kind}|{workflow_execution_id}|{step_id}|{token}"


def schedule_member(name: str) -> str:
    """The timer of a schedule: there is one, at the next slot, and its event is a hint to look."""
    return timer_member("schedule", schedule_address(name), "", "")


def schedule_address(name: str) -> str:
    """The name of a schedule where others have an execution: it may have characters that part members."""
    return quote(name, safe="")


def parse_schedule_address(address: str) -> str:
    return unquote(address)
