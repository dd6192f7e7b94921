"""RedisStore: records as hashes, written by atomic commits."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

from redis.exceptions import ResponseError, WatchError

from orchestrator.application.errors import (
    OrchestratorError,
    RecordConflict,
    RecordExists,
    RecordNotFound,
    StoreError,
    Unavailable,
)
from orchestrator.application.records.record import SHORT_REFERENCES, WorkflowRecord
from orchestrator.application.records.step_log import LogLine
from orchestrator.application.spec.model import LoadedSpec, ScheduleSpec
from orchestrator.application.spec.tag_routes import TagRoutes
from orchestrator.application.spec.validation import load_stored_spec
from orchestrator.backend.ids import next_version
from orchestrator.backend.ports import Commit, Committed, Delivery, EventRef, check_version
from orchestrator.backend.spec_cache import SpecCache
from orchestrator.redis_rq.commit_args import CommitArgs, changes_record
from orchestrator.redis_rq.connection import Client, connect, is_transient_text, translate_errors
from orchestrator.redis_rq.json_codec import canonical_json, loads
from orchestrator.redis_rq.keys import Keys, OwnStreams
from orchestrator.redis_rq.payloads import RedisPayloads
from orchestrator.redis_rq.queued_units import read_status_view
from orchestrator.redis_rq.record_codec import created_fields, read_record
from orchestrator.redis_rq.schedules import MAX_CONFLICTS, RedisSchedules
from orchestrator.redis_rq.scripts import Script
from orchestrator.redis_rq.step_log import add_log_lines, read_log_lines
from orchestrator.settings import PREFIX, RETENTION_MARGIN_S, RETENTION_S

logger = logging.getLogger(__name__)

SPEC_CACHE_SIZE = 256
LOADS_PER_ROUND_TRIP = 25
"""How many records are requested at once by a caller that may not need them all."""

COMMIT_PARTS = (
    "errors",
    "grant_slots",
    "job_lease",
    "commit_arguments",
    "commit_pending",
    "commit_batch",
    "commit_metrics",
    "commit_creation",
    "commit_jobs",
    "commit_shared",
)
"""The files that commit.lua consists of, before itself. Each uses what the files before it define."""

_STATUS = {
    1: Committed.YES,
    0: Committed.CONFLICT,
    -1: Committed.EXISTS,
    -2: Committed.GONE,
    -3: Committed.SPEC_COLLISION,
    -4: Committed.EARLY_SIGNAL,
    -5: Committed.ORPHAN,
    -6: Committed.REPEATED,
    -7: Committed.FAILED,
}

_UNREADABLE = (LookupError, ValueError, TypeError, RecursionError, ResponseError, OrchestratorError)


class RedisStore:
    def __init__(
        self,
        client: Client,
        keys: Keys | None = None,
        retention_s: int = RETENTION_S,
        routes: TagRoutes | None = None,
        own_streams: OwnStreams | None = None,
    ) -> None:
        self._client, self._keys = client, keys or Keys()
        self._retention_s = retention_s
        self._commit_args = CommitArgs(
            self._keys, retention_s, routes or TagRoutes(), own_streams or OwnStreams(self._keys)
        )
        self._register = Script(client, "register_workflow")
        self._commit = Script(client, "commit", *COMMIT_PARTS)
        self.schedules = RedisSchedules(client, self._keys)
        self.payloads = RedisPayloads(client, self._keys, retention_s + RETENTION_MARGIN_S)
        self._specs = SpecCache[str](SPEC_CACHE_SIZE)

    @classmethod
    def from_url(cls, url: str, prefix: str = PREFIX) -> RedisStore:
        """The store on this Redis. `prefix` is ORCHESTRATOR_PREFIX of the coordinators and workers."""
        return cls(connect(url), Keys.with_prefix(prefix))

    # ---- reading

    def load(self, workflow_execution_id: str) -> WorkflowRecord:
        """The record of an execution, by its full id or by its execution id alone."""
        found = self.load_many([self.full_id(workflow_execution_id)])[0]
        if isinstance(found, StoreError):
            raise found
        return found

    def load_many(self, ids: Sequence[str]) -> list[WorkflowRecord | StoreError]:
        """All records in one round trip; one that is missing or unreadable is returned as its error."""
        return [self._read(one, stored) for one, stored in zip(ids, self._fetch(ids), strict=True)]

    def load_some(self, ids: Sequence[str], max_bytes: int) -> list[WorkflowRecord | StoreError]:
        """As load_many(), but in several round trips, and only until the records have `max_bytes`."""
        found: list[WorkflowRecord | StoreError] = []
        for at in range(0, len(ids), LOADS_PER_ROUND_TRIP):
            some = ids[at : at + LOADS_PER_ROUND_TRIP]
            for one, stored in zip(some, self._fetch(some), strict=True):
                if max_bytes <= 0:
                    return found
                found.append(self._read(one, stored))
                max_bytes -= sum(map(len, stored.values())) if isinstance(stored, dict) else 0
        return found

    def _fetch(self, ids: Sequence[str]) -> list[Mapping[str, str] | Exception]:
        with translate_errors(), self._client.pipeline(transaction=False) as pipe:
            for one in ids:
                pipe.hgetall(self._keys.workflow(one))
            hashes: list[Mapping[str, str] | Exception] = pipe.execute(raise_on_error=False)
        return hashes

    def full_id(self, execution_id: str) -> str:
        """The workflow_execution_id of an execution id; a full id is returned as it is."""
        if "#" in execution_id:
            return execution_id
        with translate_errors():
            found = self._client.get(self._keys.execution(execution_id))
        if found is None:
            raise RecordNotFound(execution_id)
        return str(found)

    def history(self, workflow_execution_id: str) -> list[dict[str, object]]:
        key = self._keys.history(self.full_id(workflow_execution_id))
        with translate_errors():
            entries: list[str] = self._client.lrange(key, 0, -1)  # type: ignore[assignment]
        return [loads(entry) for entry in entries]

    def queued_units(self, record: WorkflowRecord) -> Set[str]:
        """The units whose job no worker has taken."""
        return read_status_view(self._client, self._keys, record).queued

    def log_lines(self, workflow_execution_id: str) -> list[LogLine]:
        found = read_log_lines(self._client, self._keys, self.full_id(workflow_execution_id))
        return [line for _, line in found]

    def add_log_lines(self, workflow_execution_id: str, lines: Sequence[LogLine]) -> None:
        with translate_errors(), self._client.pipeline(transaction=False) as pipe:
            add_log_lines(pipe, self._keys, workflow_execution_id, lines)
            pipe.execute()

    def _read(
        self, workflow_execution_id: str, stored: Mapping[str, str] | Exception
    ) -> WorkflowRecord | StoreError:
        if not stored:
            return RecordNotFound(workflow_execution_id)
        try:
            if isinstance(stored, Exception):
                with translate_errors():
                    raise stored
            return read_record(stored, self._spec_of(stored))
        except Unavailable:
            raise
        except _UNREADABLE as error:
            if not self._exists(workflow_execution_id):  # Redis was rolled back between the two reads
                return RecordNotFound(workflow_execution_id)
            return StoreError(
                f"the record of {workflow_execution_id!r} cannot be read: {type(error).__name__}: {error}"
            )

    def _exists(self, workflow_execution_id: str) -> bool:
        with translate_errors():
            return bool(self._client.exists(self._keys.workflow(workflow_execution_id)))

    def _spec_of(self, stored: Mapping[str, str]) -> LoadedSpec:
        """The spec of a record, as the release that created the record understood its document."""
        loaded = self.spec(stored["workflow_id"])
        if not loaded.has_short_references or SHORT_REFERENCES in stored:
            return loaded
        return self._specs.without_short_references(loaded)

    def spec(self, workflow_id: str) -> LoadedSpec:
        """The spec an execution is pinned to; cached, because its content never changes."""
        cached = self._specs.get(workflow_id)
        if cached is not None:
            return cached
        return self._load_spec(workflow_id, self._load_document(workflow_id))

    def find_spec(self, workflow_id: str, max_bytes: int) -> LoadedSpec | str:
        cached = self._specs.get(workflow_id)
        if cached is not None:
            return cached
        document = self._load_document(workflow_id)
        return document if len(document) > max_bytes else self._load_spec(workflow_id, document)

    def _load_document(self, workflow_id: str) -> str:
        with translate_errors():
            document = self._client.hget(self._keys.spec(workflow_id), "document")
        if document is None:
            raise StoreError(f"the spec {workflow_id!r} is gone from Redis")
        return str(document)

    def _load_spec(self, workflow_id: str, document: str) -> LoadedSpec:
        return self.add_loaded(workflow_id, load_stored_spec(loads(document)))

    def add_loaded(self, workflow_id: str, loaded: LoadedSpec) -> LoadedSpec:
        if loaded.workflow_id != workflow_id:
            raise StoreError(f"the document stored as {workflow_id!r} is {loaded.workflow_id!r}")
        return self.cache_spec(loaded)

    def cache_spec(self, loaded: LoadedSpec) -> LoadedSpec:
        self._specs.put(loaded.workflow_id, loaded)
        return loaded

    # ---- shared state

    @property
    def shared_state(self) -> RedisStore:
        return self

    def load_values(self, owners: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """All values of each (scope, owner), in one round trip."""
        with translate_errors(), self._client.pipeline(transaction=False) as pipe:
            for scope, owner in owners:
                pipe.hgetall(self._keys.shared(scope, owner))
            found: list[Mapping[str, str] | Exception] = pipe.execute(raise_on_error=False)
        return [_read_shared(values) for values in found]

    def find_by_root(self, root: str) -> str | None:
        with translate_errors():
            found = self._client.get(self._keys.idempotency(root))
        return None if found is None else str(found)

    def outgoing_events(self) -> list[Delivery]:
        """None: on Redis the event streams carry them."""
        return []

    def drop_outgoing_event(self, ref: EventRef) -> None:
        """Nothing to do: the event streams carry them."""

    # ---- registered workflows

    def register(self, name: str, loaded: LoadedSpec) -> None:
        """Register a spec under a name, and start, keep or remove its schedule."""
        if not self._put(name, loaded.workflow_id, canonical_json(loaded.document), loaded.spec.schedule):
            raise StoreError(f"another document has the workflow_id {loaded.workflow_id!r}: change the spec")

    def unregister(self, name: str) -> None:
        """Remove a name and its schedule; its executions keep their spec. KeyError for an unknown name."""
        if self._put(name) == -2:
            raise KeyError(name)

    def _put(
        self, name: str, workflow_id: str = "", document: str = "", schedule: ScheduleSpec | None = None
    ) -> int:
        keys = self._keys
        for _ in range(MAX_CONFLICTS):
            schedule_args = self.schedules.registration_args(name, schedule)
            with translate_errors():
                result: int = self._register(
                    [keys.definitions, keys.spec(workflow_id), keys.schedules, keys.timers, keys.scheduled],
                    [
                        name,
                        workflow_id,
                        document,
                        keys.spec(""),
                        self._retention_s + RETENTION_MARGIN_S,
                        *schedule_args,
                    ],
                )
            if result != -1:
                return result
        raise StoreError(f"the schedule of {name!r} keeps changing: try again")

    def load_definition(self, name: str) -> LoadedSpec:
        with translate_errors():
            workflow_id = self._client.hget(self._keys.definitions, name)
        if workflow_id is None:
            raise KeyError(name)
        return self.spec(str(workflow_id))

    def find_workflow_ids(self, names: Sequence[str]) -> list[str | None]:
        with translate_errors():
            found: list[str | None] = self._client.hmget(self._keys.definitions, names)  # type: ignore[assignment]
        return found

    def definitions(self) -> dict[str, str]:
        with translate_errors():
            found: dict[str, str] = self._client.hgetall(self._keys.definitions)  # type: ignore[assignment]
        return found

    # ---- writing

    def write(self, record: WorkflowRecord) -> None:
        """Write a whole record over what is stored: for imports and repairs, not for decisions."""
        keys = self._keys
        pointer, key = keys.execution(record.execution_id), keys.workflow(record.workflow_execution_id)
        version = next_version(record.version, secrets.token_hex(4))
        fields: dict[Any, Any] = {**created_fields(record), "version": version}
        with translate_errors(), self._client.pipeline(transaction=True) as pipe:
            try:
                pipe.watch(pointer, key)  # type: ignore[no-untyped-call]
                owner, stored = pipe.get(pointer), pipe.hget(key, "version")
                if owner not in (None, record.workflow_execution_id):
                    raise RecordExists(record.execution_id)
                check_version(record, stored)  # type: ignore[arg-type]
                pipe.multi()
                pipe.delete(key)
                pipe.hset(key, mapping=fields)
                pipe.hsetnx(keys.spec(record.workflow_id), "document", canonical_json(record.loaded.document))
                pipe.set(pointer, record.workflow_execution_id)
                if stored is None and not record.is_final:
                    pipe.hincrby(keys.spec(record.workflow_id), "executions", 1)
                    if record.group is not None:
                        pipe.hincrby(keys.groups, record.group, 1)
                        pipe.persist(keys.shared("flow_group", record.group))
                pipe.execute()
            except WatchError:
                raise RecordConflict(record.workflow_execution_id, record.version) from None
        record.version = version

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        """All commits in one round trip; each is written whole or not at all. One that is written without
        some of its keys is logged, and repaired by `RedisEventLog.repair`."""
        versions = [next_version(commit.record.version, secrets.token_hex(4)) for commit in commits]
        calls = list(self._commit_args.calls(commits, versions))
        with translate_errors():
            replies = [_read_reply(reply) for reply in self._commit.run(calls)]
        results = [_STATUS[status] for statuses, _ in replies for status in statuses]
        for commit, version, result in zip(commits, versions, results, strict=True):
            if result is Committed.YES and changes_record(commit):
                commit.record.version = version
                if commit.delta is not None:
                    commit.delta.note_in(commit.record)
        if errors := [error for _, texts in replies for error in texts]:
            _report_errors(commits, results, errors)
        return results


def _read_reply(reply: Any) -> tuple[list[int], list[str]]:
    """The statuses of one call, and the errors of its commits: "" for a commit without one."""
    if reply and isinstance(reply[0], list):
        return reply[0], reply[1]
    return reply, [""] * len(reply)


def _report_errors(commits: Sequence[Commit], results: Sequence[Committed], errors: Sequence[str]) -> None:
    """Log the commits that were written in part, and give those that failed their error. Raises Unavailable
    when a commit failed because Redis cannot serve now."""
    for commit, result, error in zip(commits, results, errors, strict=True):
        if result is Committed.FAILED:
            commit.failure = error
        elif error:
            extra = {"execution": commit.record.workflow_execution_id}
            logger.error("written in part, and to be repaired: %s", error, extra=extra)
    for commit in commits:
        if commit.failure and is_transient_text(commit.failure):
            raise Unavailable(f"Redis: {commit.failure}")


def _read_shared(stored: Mapping[str, str] | Exception) -> dict[str, Any]:
    """The values of a scope. A value that is not JSON is left out: it must not stop the executions that share
    the others."""
    values: dict[str, Any] = {}
    if isinstance(stored, Exception):
        with suppress(ResponseError), translate_errors():
            raise stored
        return values
    for key, text in stored.items():
        with suppress(ValueError, RecursionError):
            values[key] = loads(text)
    return values
