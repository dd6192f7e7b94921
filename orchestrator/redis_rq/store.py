"""RedisStore: records as hashes, each decision one atomic commit."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.application.errors import RecordNotFound, StoreError
from orchestrator.application.record import FINAL_WORKFLOWS, WorkflowRecord
from orchestrator.application.validation import LoadedSpec, check_spec
from orchestrator.backend.ports import Commit, Committed
from orchestrator.redis_rq.codec import changed_fields, created_fields, dumps, loads, read_record
from orchestrator.redis_rq.connection import Client, translated
from orchestrator.redis_rq.jobs import job_words, lease_of
from orchestrator.redis_rq.keys import GROUP, Keys
from orchestrator.redis_rq.scripts import Call, Script

RETENTION_S = 7 * 86_400
ANSWER_S = 3_600
GRACE_MS = 10_000
SPECS_KEPT = 256
WORDS_PER_COMMAND = 2_000
"""Lua's stack bounds how many words one command may have inside a script."""

_STATUS = {
    1: Committed.YES,
    0: Committed.CONFLICT,
    -1: Committed.EXISTS,
    -2: Committed.GONE,
    -3: Committed.FORGED,
}


class RedisStore:
    def __init__(
        self,
        client: Client,
        keys: Keys | None = None,
        grace_ms: int = GRACE_MS,
        retention_s: int = RETENTION_S,
    ) -> None:
        self._client, self._keys = client, keys or Keys()
        self._grace_ms, self._retention_s = grace_ms, retention_s
        self._commit = Script(client, "commit")
        self._specs: OrderedDict[str, LoadedSpec] = OrderedDict()
        self._documents: dict[str, str] = {}

    # ---- reading

    def load(self, workflow_execution_id: str) -> WorkflowRecord:
        """The record, by its full id or by its execution id alone."""
        found = self.load_many([self.full_id(workflow_execution_id)])[0]
        if found is None:
            raise RecordNotFound(workflow_execution_id)
        return found

    def load_many(self, ids: Sequence[str]) -> list[WorkflowRecord | None]:
        with translated(), self._client.pipeline(transaction=False) as pipe:
            for one in ids:
                pipe.hgetall(self._keys.workflow(one))
            hashes: list[Mapping[str, str]] = pipe.execute()
        return [self._read(stored) if stored else None for stored in hashes]

    def full_id(self, execution_id: str) -> str:
        """The workflow_execution_id behind an execution id; a full id is its own."""
        if "#" in execution_id:
            return execution_id
        with translated():
            found = self._client.get(self._keys.execution(execution_id))
        if found is None:
            raise RecordNotFound(execution_id)
        return str(found)

    def history(self, workflow_execution_id: str) -> list[dict[str, object]]:
        key = self._keys.history(self.full_id(workflow_execution_id))
        with translated():
            entries: list[str] = self._client.lrange(key, 0, -1)  # type: ignore[assignment]
        return [loads(entry) for entry in entries]

    def _read(self, stored: Mapping[str, str]) -> WorkflowRecord:
        return read_record(stored, self.spec(stored["workflow_id"]))

    def spec(self, workflow_id: str) -> LoadedSpec:
        """The spec an execution is pinned to; read once, then kept, since its content never changes."""
        if workflow_id in self._specs:
            self._specs.move_to_end(workflow_id)
            return self._specs[workflow_id]
        with translated():
            document = self._client.hget(self._keys.spec(workflow_id), "document")
        if document is None:
            raise StoreError(f"the spec {workflow_id!r} is gone from Redis")
        return self.remember(check_spec(loads(str(document))))

    def remember(self, loaded: LoadedSpec) -> LoadedSpec:
        self._specs[loaded.workflow_id] = loaded
        if len(self._specs) > SPECS_KEPT:
            self._specs.popitem(last=False)
        return loaded

    # ---- registered workflows

    def register(self, name: str, loaded: LoadedSpec) -> None:
        with translated(), self._client.pipeline(transaction=True) as pipe:
            spec = self._keys.spec(loaded.workflow_id)
            pipe.hset(spec, mapping={"document": dumps(loaded.document), "registered": name})
            pipe.persist(spec)
            pipe.hset(self._keys.definitions, name, loaded.workflow_id)
            pipe.execute()

    def definition(self, name: str) -> LoadedSpec:
        with translated():
            workflow_id = self._client.hget(self._keys.definitions, name)
        if workflow_id is None:
            raise KeyError(name)
        return self.spec(str(workflow_id))

    def definitions(self) -> dict[str, str]:
        with translated():
            found: dict[str, str] = self._client.hgetall(self._keys.definitions)  # type: ignore[assignment]
        return found

    # ---- writing

    def write(self, record: WorkflowRecord) -> None:
        """Put a whole record, whatever was there: for imports and repairs, not for decisions."""
        record.version = _next_version(record.version)
        key = self._keys.workflow(record.workflow_execution_id)
        with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.delete(key)
            fields: dict[Any, Any] = {**created_fields(record), "version": record.version}
            pipe.hset(key, mapping=fields)
            pipe.hsetnx(self._keys.spec(record.workflow_id), "document", dumps(record.loaded.document))
            pipe.set(self._keys.execution(record.execution_id), record.workflow_execution_id)
            pipe.execute()

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        """All commits in one round trip; each is written whole or not at all."""
        versions = [_next_version(commit.record.version) for commit in commits]
        calls = [self._call(commit, version) for commit, version in zip(commits, versions, strict=True)]
        with translated():
            results = [_STATUS[result] for result in self._commit.run(calls)]
        for commit, version, result in zip(commits, versions, results, strict=True):
            if result is Committed.YES:
                commit.record.version = version
        return results

    def _call(self, commit: Commit, version: str) -> Call:
        """The words of commit.lua, in its order."""
        record, changes, keys = commit.record, commit.changes, self._keys
        spec = keys.spec(record.workflow_id)
        args: list[str | int] = [record.version]
        if commit.creates:
            args += [1, keys.execution(record.execution_id), spec, self._document(record.loaded)]
        else:
            args.append(0)
        args.append(len(commit.once))
        for ref in commit.once:
            args += [ref.stream, GROUP, ref.entry_id]
        args += [self._grace_ms, len(changes.jobs)]
        for job in changes.jobs:
            args += job_words(job, keys)
        args += [len(changes.revoked), *(step.token or "" for _, step in changes.revoked)]
        args += [1, spec, self._retention_s] if _ends(commit) else [0]
        for command in self._commands(commit, version):
            args.append(len(command))
            args += command
        return [keys.workflow(record.workflow_execution_id), keys.leases, keys.sequences], args

    def _document(self, loaded: LoadedSpec) -> str:
        """The spec as it is stored: made once for each, since a start carries it every time."""
        if loaded.workflow_id not in self._documents:
            if len(self._documents) >= SPECS_KEPT:
                self._documents.clear()
            self._documents[loaded.workflow_id] = dumps(loaded.document)
        return self._documents[loaded.workflow_id]

    def _commands(self, commit: Commit, version: str) -> list[list[str | int]]:
        """Everything of a commit that is a plain command, for commit.lua to run once its checks have passed."""
        record, changes, keys = commit.record, commit.changes, self._keys
        weid = record.workflow_execution_id
        commands: list[list[str | int]] = []
        if commit.creates or not changes.is_empty:
            fields = {"version": version, **(created_fields(record) if commit.creates else {})}
            fields.update(changed_fields(changes))
            commands += _chunked(["HSET", keys.workflow(weid)], [w for pair in fields.items() for w in pair])
        if changes.history:
            commands += _chunked(["RPUSH", keys.history(weid)], [dumps(entry) for entry in changes.history])
        if commit.creates:
            commands.append(["SET", keys.execution(record.execution_id), weid])
        commands += self._releases(commit)
        for timer in changes.timers:
            commands.append(
                ["ZADD", keys.timers, timer.due_ms, f"{timer.kind}|{weid}|{timer.step_id}|{timer.token}"]
            )
        if commit.creates or "status" in changes.fields:
            commands += self._status_moves(commit)
        if changes.more:
            commands.append(["XADD", keys.events_of(weid), "*", "type", "continue", "execution", weid])
        for name, count in changes.counted.items():
            commands.append(["HINCRBY", keys.counters, name, count])
        for entry_id, answer in commit.answers.items():
            commands.append(["RPUSH", keys.answer(entry_id), dumps(answer)])
            commands.append(["EXPIRE", keys.answer(entry_id), ANSWER_S])
        for stream, ids in _by_stream(commit).items():
            commands += _chunked(["XACK", stream, GROUP], ids)
        return commands

    def _releases(self, commit: Commit) -> list[list[str | int]]:
        """Dispatches that ended: their leases and timers go."""
        changes, keys, weid = commit.changes, self._keys, commit.record.workflow_execution_id
        ended = [*changes.settled, *changes.revoked]
        if not ended:
            return []
        commands = _chunked(["ZREM", keys.leases], [lease_of(weid, step_id, step) for step_id, step in ended])
        timers = [f"deadline|{weid}|{s}|{step.token}" for s, step in ended if step.deadline_ms is not None]
        commands += _chunked(["ZREM", keys.timers], timers)
        return commands

    def _status_moves(self, commit: Commit) -> list[list[str | int]]:
        """The indexes follow the status; an execution that ends gets its term, and who waits hears of it."""
        record, keys, weid = commit.record, self._keys, commit.record.workflow_execution_id
        status = commit.changes.fields.get("status", record.status)
        commands: list[list[str | int]] = []
        if not commit.creates:
            commands.append(["ZREM", keys.index(record.status), weid])
        commands.append(["ZADD", keys.index(status), commit.changes.at_ms, weid])
        if _ends(commit):
            commands += [
                ["EXPIRE", keys.workflow(weid), self._retention_s],
                ["EXPIRE", keys.history(weid), self._retention_s],
                ["EXPIRE", keys.execution(record.execution_id), self._retention_s],
                ["PUBLISH", keys.done(weid), status],
            ]
        return commands


def _ends(commit: Commit) -> bool:
    return commit.changes.fields.get("status") in FINAL_WORKFLOWS


def _next_version(version: str) -> str:
    """`<counter>-<nonce>`: a bare counter would come again after a failover or a lost tail of the AOF."""
    counter = int(version.partition("-")[0] or 0)
    return f"{counter + 1}-{secrets.token_hex(4)}"


def _chunked(head: list[str | int], words: Sequence[str | int]) -> list[list[str | int]]:
    """One command, or several when it has too many words; the pairs of HSET stay together."""
    return [[*head, *words[at : at + WORDS_PER_COMMAND]] for at in range(0, len(words), WORDS_PER_COMMAND)]


def _by_stream(commit: Commit) -> dict[str, list[str | int]]:
    ids: dict[str, list[str | int]] = {}
    for ref in commit.events:
        ids.setdefault(ref.stream, []).append(ref.entry_id)
    return ids
