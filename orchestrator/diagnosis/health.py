"""Checks for probes whether a process is responsive, not only whether it exists.

A coordinator sends its heartbeat between two batches, inside its loop, so one that is stopped or blocked in a
decision stops sending it. The TTL of an RQ worker's key in Redis shows when its next heartbeat is due.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from orchestrator.application.errors import Unavailable
from orchestrator.application.explain.text import format_duration, join_names
from orchestrator.deprecation import renamed_arguments, renamed_attribute
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.inspection import Inspection
from orchestrator.redis_rq.queries.rq_workers import rq_workers

ProcessKind = Literal["coordinator", "worker", "redis"]
PROCESSES: tuple[str, ...] = get_args(ProcessKind)
MAX_AGE_MS = 10_000


@dataclass(frozen=True, slots=True)
class ProcessHealth:
    """The health of one process. `late_ms` is how late its heartbeat is."""

    name: str
    late_ms: int
    is_healthy: bool


@dataclass(frozen=True, slots=True)
class Health:
    """The health of all selected processes of one kind; `pulses` has one entry per process."""

    process: str
    is_healthy: bool
    words: str
    pulses: tuple[ProcessHealth, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ProcessFilter:
    """Selects processes: those of a host, those whose name is `name` or starts with `name-`, or all."""

    host: str | None = None
    name: str | None = None

    def matches(self, name: str, hostname: str | None = None) -> bool:
        """Whether a process is selected. Ours are named <host>-<pid>-<nonce>; RQ stores hosts of workers."""
        if self.name is not None:
            return name == self.name or name.startswith(f"{self.name}-")
        if self.host is None:
            return True
        return hostname == self.host or bool(re.fullmatch(rf"{re.escape(self.host)}-\d+-[0-9a-f]+", name))

    are = renamed_attribute("are", "matches")

    def __str__(self) -> str:
        if self.name is not None:
            return f"with the name {self.name}"
        return "on any host" if self.host is None else f"on {self.host}"


@renamed_arguments(whose="process_filter")
def health(
    client: Client,
    keys: Keys,
    process: ProcessKind,
    process_filter: ProcessFilter | None = None,
    max_age_ms: int = MAX_AGE_MS,
) -> Health:
    """Check that every selected process sent a heartbeat within `max_age_ms`."""
    process_filter, inspection = process_filter or ProcessFilter(), Inspection(client, keys)
    try:
        if process == "redis":
            return _check_redis(client)
        check: Callable[..., Iterable[ProcessHealth]] = (
            _check_coordinators if process == "coordinator" else _check_workers
        )
        pulses = tuple(check(inspection, process_filter, max_age_ms))
    except Unavailable as error:
        return Health(process, False, f"cannot use Redis: {str(error).removeprefix('Redis: ')}")
    if not pulses:
        return Health(process, False, f"no {process} found {process_filter}")
    late = [pulse for pulse in pulses if not pulse.is_healthy]
    if late:
        names = join_names(f"{pulse.name} (late by {format_duration(pulse.late_ms)})" for pulse in late)
        return Health(process, False, f"unresponsive {process}: {names}", pulses)
    plural = "s" if len(pulses) > 1 else ""
    return Health(process, True, f"{len(pulses)} healthy {process}{plural} {process_filter}", pulses)


def _check_redis(client: Client) -> Health:
    with translate_errors():
        client.ping()
    return Health("redis", True, "Redis responds")


def _check_coordinators(
    inspection: Inspection, process_filter: ProcessFilter, max_age_ms: int
) -> Iterable[ProcessHealth]:
    now_ms = inspection.now_ms()
    for beat in inspection.coordinators():
        if process_filter.matches(beat.name):
            age_ms = max(now_ms - beat.at_ms, 0)
            yield ProcessHealth(beat.name, age_ms, age_ms <= max_age_ms)


def _check_workers(
    inspection: Inspection, process_filter: ProcessFilter, max_age_ms: int
) -> Iterable[ProcessHealth]:
    """Check the workers of our queues. One without a connection is gone, and its leftover registration is
    ignored: another worker may have been started in its place."""
    ours = f"{inspection.keys.prefix}."
    for worker in rq_workers(inspection):
        is_ours = any(name.startswith(ours) for name in worker.queues)
        if is_ours and worker.is_connected and process_filter.matches(worker.name, worker.hostname):
            late_ms = worker.late_s * 1000
            yield ProcessHealth(worker.name, late_ms, late_ms <= max_age_ms)
