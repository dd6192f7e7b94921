"""Reads the state of Redis after a torture run as plain data, without checking it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rq import Queue, Worker
from rq.intermediate_queue import IntermediateQueue
from rq.registry import StartedJobRegistry
from rq.serializers import JSONSerializer

from orchestrator.redis_rq.connection import Client
from orchestrator.redis_rq.keys import GROUP, Keys, schedule_member
from torture.poison import mark_of

Json = dict[str, Any]
KEYS = Keys()
FAR_FUTURE, FOR_EVER = 4_000_000_000, -1
OF_RQ = {"jobs", "running in RQ", "popped in RQ"}
"""Leftovers that RQ's own maintenance removes eventually."""
FINAL = ("complete", "failed", "halted", "cancelled")


@dataclass
class Execution:
    """One record as it is stored, and its history."""

    execution_id: str
    status: str
    outcome: Any = None
    error: Json | None = None
    units: dict[str, Json] = field(default_factory=dict)
    """Steps and items, `each` and `each#0`."""
    history: list[Json] = field(default_factory=list)
    created_at: str = ""
    ended_at: str = ""


@dataclass
class Letter:
    """A dead letter. `mark` identifies its poison event, if it is one."""

    mark: str | None
    reason: str


@dataclass
class Facts:
    executions: dict[str, Execution] = field(default_factory=dict)
    left: dict[str, list[str]] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    """The sum over all executions of a group."""
    findings: list[str] = field(default_factory=list)
    """The findings of `orchestrator verify`."""
    counters: dict[str, int] = field(default_factory=dict)
    schedules: dict[str, Json] = field(default_factory=dict)


def read_execution(client: Client, weid: str) -> Execution:
    record: Any = client.hgetall(KEYS.workflow(weid))
    entries: Any = client.lrange(KEYS.history(weid), 0, -1)
    units = {
        _unit(name): json.loads(value)
        for name, value in record.items()
        if name.startswith(("step:", "item:"))
    }
    return Execution(
        record["execution_id"],
        record["status"],
        json.loads(record.get("outcome", "null")),
        json.loads(record.get("error", "null")),
        units,
        [json.loads(entry) for entry in entries],
        str(record.get("created_at", "")),
        str(record.get("ended_at", "")),
    )


def _unit(field_name: str) -> str:
    kind, _, rest = field_name.partition(":")
    return rest if kind == "step" else "#".join(rest.rsplit(":", 1))


def read_executions(client: Client) -> dict[str, Execution]:
    prefix = KEYS.workflow("")
    found = [
        read_execution(client, str(key).removeprefix(prefix)) for key in client.scan_iter(f"{prefix}*", 1_000)
    ]
    return {one.execution_id: one for one in found}


def open_executions(client: Client) -> int:
    return sum(
        int(client.zcard(key)) for key in client.scan_iter(KEYS.index("*")) if not str(key).endswith(FINAL)
    )


def left_over(client: Client) -> dict[str, list[str]]:
    """Return what is left of executions after all of them have ended. There should be nothing."""
    found: dict[str, list[str]] = {
        "unread or unacknowledged": [],
        "leases": _members(client, KEYS.leases),
        "timers": _timers(client),
        "slots": [],
        "queues": [],
        "jobs": [str(key) for key in client.scan_iter("rq:job:*", 1_000) if _is_kept(client, str(key))],
        "running in RQ": [],
        "popped in RQ": [],
    }
    for stream in (KEYS.starts, *map(KEYS.events, range(KEYS.partitions))):
        found["unread or unacknowledged"] += _unfinished(client, stream)
    for pattern, name in (
        (KEYS.slot_holders("*"), "slots"),
        (KEYS.slot_waiters("*"), "slots"),
        ("rq:wip:*", "running in RQ"),
    ):
        for key in client.scan_iter(pattern, 1_000):
            found[name] += [f"{key} {member}" for member in _members(client, str(key))]
    for key in client.scan_iter("rq:queue:*", 1_000, "LIST"):
        ids: Any = client.lrange(str(key), 0, -1)
        name = "popped in RQ" if str(key).endswith(":intermediate") else "queues"
        found[name] += [f"{key} {job_id}" for job_id in ids]
    return {name: members for name, members in found.items() if members}


def _is_kept(client: Client, key: str) -> bool:
    """Whether a job never expires. A stock worker that starts a job while it is revoked, and then dies,
    leaves a hash without data, which RQ itself cannot read and never removes. Such a hash does not count."""
    return client.ttl(key) == FOR_EVER and bool(client.hexists(key, "data"))


def _members(client: Client, key: str) -> list[str]:
    found: Any = client.zrange(key, 0, -1)
    return list(found)


def _timers(client: Client) -> list[str]:
    """Return all timers except those of schedules, which never end."""
    of_schedules = {schedule_member(str(name)) for name in client.hkeys(KEYS.schedules)}
    return [member for member in _members(client, KEYS.timers) if member not in of_schedules]


def _unfinished(client: Client, stream: str) -> list[str]:
    if not client.exists(stream):
        return []
    groups: Any = client.xinfo_groups(stream)
    pending: Any = client.xpending_range(stream, GROUP, "-", "+", 100)
    unread: Any = client.xrange(stream, f"({groups[0]['last-delivered-id']}", "+", 100)
    entries = [f"{stream} {one['message_id']} pending" for one in pending]
    return entries + [f"{stream} {entry_id} unread" for entry_id, _ in unread]


def read_letters(client: Client) -> list[Letter]:
    entries: Any = client.xrange(KEYS.dead_letters)
    return [Letter(mark_of(json.loads(one["event"])), one["reason"]) for _, one in entries]


def read_totals(client: Client) -> dict[str, int]:
    prefix = KEYS.shared("flow_group", "")
    return {
        str(key).removeprefix(prefix): int(str(client.hget(str(key), "total") or 0))
        for key in client.scan_iter(f"{prefix}*")
    }


def read_counters(client: Client) -> dict[str, int]:
    found: Any = client.hgetall(KEYS.counters)
    return {name: int(value) for name, value in found.items()}


def read_schedules(client: Client) -> dict[str, Json]:
    found: Any = client.hgetall(KEYS.schedules)
    return {name: json.loads(text) for name, text in found.items()}


def read_ledger(path: Path) -> Counter[tuple[str, str]]:
    """Count how often each attempt of each step was executed."""
    lines = path.read_text().splitlines() if path.exists() else []
    calls = (line.split(" ") for line in lines)
    return Counter((key, attempt) for key, _, attempt in calls)


def read_losses(executions: Iterable[Execution]) -> Counter[str]:
    """Count the reasons of lost dispatches. Each is in the history twice: with its end and its next start."""
    losses = {
        (execution.execution_id, one["step"], one["run_id"], str(one.get("reason")))
        for execution in executions
        for one in execution.history
        if "step" in one and "run_id" in one
    }
    return Counter(reason.partition(" (")[0] for *_, reason in losses if reason.startswith("its "))


def age_rq_registries(client: Client) -> None:
    """Run RQ's own maintenance now, which may take ten minutes otherwise. It fails the jobs that killed
    workers were running or had popped, and the next sweep removes them. RQ needs a client that does not
    decode."""
    for queue in Queue.all(connection=client, serializer=JSONSerializer):
        StartedJobRegistry(queue=queue).cleanup(timestamp=FAR_FUTURE)
        popped = IntermediateQueue(queue.key, client)
        for job_id in popped.get_job_ids():
            client.set(popped.get_first_seen_key(job_id), 0)
        popped.cleanup(Worker([queue], connection=client, serializer=JSONSerializer), queue)


def facts(client: Client, findings: list[str]) -> Facts:
    return Facts(
        read_executions(client),
        left_over(client),
        read_letters(client),
        read_totals(client),
        findings,
        read_counters(client),
        read_schedules(client),
    )
