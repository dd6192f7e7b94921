"""RecordQueries: what the CLI reads without loading a record: clock, versions, recent ids, names, jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from orchestrator.application.errors import RecordNotFound
from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.records.step_log import LogLine
from orchestrator.redis_rq.connection import Client, clock_ms, translate_errors
from orchestrator.redis_rq.job_codec import JOB_FIELDS, read_payload
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.jobs import find_job
from orchestrator.redis_rq.queued_units import read_status_view
from orchestrator.redis_rq.step_log import read_log_lines


@dataclass(frozen=True, slots=True)
class RecordQueries:
    client: Client
    keys: Keys

    def now_ms(self) -> int:
        return clock_ms(self.client)

    def status_view(self, record: WorkflowRecord) -> StatusView:
        """The statuses of a record as they are shown; `record` need not be read again for it."""
        return read_status_view(self.client, self.keys, record)

    def version(self, workflow_execution_id: str) -> tuple[str, WorkflowStatus]:
        """The version and status of a record: two fields instead of the whole hash."""
        with translate_errors():
            fields: Any = self.client.hmget(self.keys.workflow(workflow_execution_id), ["version", "status"])
        version, status = fields
        if version is None:
            raise RecordNotFound(workflow_execution_id)
        return version, WorkflowStatus(status)

    @contextmanager
    def subscribe_to_end(self, workflow_execution_id: str) -> Iterator[EndSubscription]:
        """Subscribe to the channel that announces the end of an execution."""
        with translate_errors():
            channel = self.client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
            try:
                channel.subscribe(self.keys.done(workflow_execution_id))
                yield EndSubscription(channel)
            finally:
                channel.close()

    def history(self, workflow_execution_id: str, start: int, count: int | None = None) -> list[str]:
        """The history entries from a position on, as they are stored: all of them, or `count`."""
        last = -1 if count is None else start + count - 1
        with translate_errors():
            found: Any = self.client.lrange(self.keys.history(workflow_execution_id), start, last)
        return list(found)

    def history_range(self, workflow_execution_id: str, first: int, count: int) -> list[str]:
        """At most `count` entries of the history from a position on, as they are stored."""
        key = self.keys.history(workflow_execution_id)
        with translate_errors():
            found: Any = self.client.lrange(key, first, first + count - 1)
        return list(found)

    def history_length(self, workflow_execution_id: str) -> int:
        with translate_errors():
            return int(self.client.llen(self.keys.history(workflow_execution_id)))

    def log_lines(self, workflow_execution_id: str, after: str = "") -> list[tuple[str, LogLine]]:
        """The step log after an entry, each line with its entry id."""
        return read_log_lines(self.client, self.keys, workflow_execution_id, after)

    def last_log_entry_id(self, workflow_execution_id: str) -> str:
        """The id of the last entry of the step log, "" for none."""
        with translate_errors():
            found: Any = self.client.xrevrange(self.keys.step_log(workflow_execution_id), count=1)
        return str(found[0][0]) if found else ""

    def inputs_of(self, token: str) -> dict[str, Any] | None:
        """The inputs of a dispatch; None when its job is deleted, which happens soon after its end."""
        found = find_job(self.client, self.keys, token, JOB_FIELDS)
        payload = None if found is None else read_payload(*found[1], job_id=found[0])
        return None if payload is None else payload["inputs"]

    def recent_executions(self, limit: int) -> list[tuple[str, str]]:
        """Execution ids and their statuses, the newest first, in one round trip."""
        statuses = [status.value for status in WorkflowStatus]
        with translate_errors(), self.client.pipeline(transaction=False) as pipe:
            for status in statuses:
                pipe.zrevrange(self.keys.index(status), 0, limit - 1, withscores=True)
            found: list[list[tuple[str, float]]] = pipe.execute()
        listed = [
            (at_ms, member.partition("#")[2], status)
            for status, members in zip(statuses, found, strict=True)
            for member, at_ms in members
        ]
        return [(execution_id, status) for _, execution_id, status in sorted(listed, reverse=True)[:limit]]

    def count_by_status(self) -> dict[WorkflowStatus, int]:
        """The number of executions of each status, in one round trip."""
        with translate_errors(), self.client.pipeline(transaction=True) as pipe:
            for status in WorkflowStatus:
                pipe.zcard(self.keys.index(status.value))
            return dict(zip(WorkflowStatus, pipe.execute(), strict=True))

    def find_full_ids(self, execution_ids: Sequence[str]) -> dict[str, str]:
        """The full ids of those of some executions that exist, by their execution ids, in one round trip."""
        if not execution_ids:
            return {}
        with translate_errors():
            found: Any = self.client.mget([self.keys.execution(one) for one in execution_ids])
        return {
            execution_id: full_id
            for execution_id, full_id in zip(execution_ids, found, strict=True)
            if full_id is not None
        }

    def names(self) -> list[str]:
        """The names of the registered workflows, sorted."""
        with translate_errors():
            found: Any = self.client.hkeys(self.keys.definitions)
        return sorted(found)


@dataclass(frozen=True, slots=True)
class EndSubscription:
    """A subscription to the end of an execution."""

    channel: Any

    def wait(self, timeout_s: float) -> None:
        """Wait until the execution has ended, or for `timeout_s`."""
        until = time.monotonic() + timeout_s
        while (remaining_s := until - time.monotonic()) > 0:
            if self.channel.get_message(timeout=remaining_s) is not None:
                return
