"""Listing executions: pages of the indexes, the newest first. A page costs the same however many there are.

Of several filters the one with the fewest executions leads, and the others are asked about those it finds. A
page that finds little of what it looks through ends before it is full, with a cursor to go on from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.errors import OrchestratorError
from orchestrator.application.states import WorkflowStatus
from orchestrator.redis_rq.codec import loads
from orchestrator.redis_rq.connection import Client, translated
from orchestrator.redis_rq.keys import Keys

LOOKED_THROUGH = 500
MOST_LOOKS = 10
SAME_SCORE = 16
"""More executions than this never have one score: see indexes.score_of."""

_SHOWN = ("status", "name", "group", "labels", "created_at", "ended_at", "parent")


class BadCursor(OrchestratorError):
    """Not a cursor of ours."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Filter:
    """Which executions: those of which all is true that is said here. Times are of their beginning, in ms."""

    statuses: Sequence[WorkflowStatus] = ()
    name: str | None = None
    group: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    since_ms: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """An execution in a list: nothing of what it was given, made or ended with."""

    workflow_execution_id: str
    status: WorkflowStatus
    created_at: str
    ended_at: str | None = None
    name: str | None = None
    group: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    parent: str | None = None

    @property
    def execution_id(self) -> str:
        return self.workflow_execution_id.partition("#")[2]


@dataclass(frozen=True, slots=True)
class Page:
    """Some executions, and where to go on; None at the end."""

    executions: list[Summary]
    cursor: str | None = None


Entry = tuple[float, str]
"""An execution as an index has it: its score and its id."""


class Listing:
    def __init__(self, client: Client, keys: Keys) -> None:
        self._client, self._keys = client, keys

    def page(self, wanted: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        leading, asked = self._plan(wanted)
        after = None if cursor is None else _read_cursor(cursor)
        most = limit + 1 if not asked else LOOKED_THROUGH
        found: list[Summary] = []
        for _ in range(MOST_LOOKS):
            entries = self._next(leading, wanted, after, most)
            for summary, entry in self._summaries(self._asked(entries, asked), wanted):
                if len(found) == limit:
                    return Page(found, _cursor(after))
                found.append(summary)
                after = entry
            if len(entries) < most:
                return Page(found)
            after = entries[-1]
        return Page(found, _cursor(after))

    def all(self, wanted: Filter, page: int = 500) -> Iterator[Summary]:
        """Every one of them, page by page."""
        cursor: str | None = None
        while True:
            some = self.page(wanted, page, cursor)
            yield from some.executions
            cursor = some.cursor
            if cursor is None:
                return

    def _plan(self, wanted: Filter) -> tuple[list[str], list[str]]:
        """The indexes to read, all of them at once, and those that must know what is found there."""
        keys = self._keys
        single = [keys.index_of_label(name, value) for name, value in wanted.labels.items()]
        if wanted.name is not None:
            single.append(keys.index_of_name(wanted.name))
        if wanted.group is not None:
            single.append(keys.index_of_group(wanted.group))
        statuses = [keys.index(status) for status in wanted.statuses or WorkflowStatus]
        if len(statuses) == 1:
            single.append(statuses[0])
        if not single:
            return statuses, []
        if len(single) > 1:
            with translated(), self._client.pipeline(transaction=False) as pipe:
                for key in single:
                    pipe.zcard(key)
                sizes: list[int] = pipe.execute()
            single = [key for _, key in sorted(zip(sizes, single, strict=True))]
        return single[:1], single[1:]

    def _next(self, indexes: Sequence[str], wanted: Filter, after: Entry | None, most: int) -> list[Entry]:
        """The next entries of the leading indexes together, the newest first."""
        newest: float | str = "+inf" if wanted.until_ms is None else wanted.until_ms
        if after is not None:
            newest = after[0]
        oldest: float | str = "-inf" if wanted.since_ms is None else wanted.since_ms
        with translated(), self._client.pipeline(transaction=False) as pipe:
            for index in indexes:
                # Those of one score come with the last of them: they are told apart by their ids.
                pipe.zrevrangebyscore(index, newest, oldest, 0, most + SAME_SCORE, withscores=True)
            rows: list[list[tuple[str, float]]] = pipe.execute()
        entries = sorted({(score, member) for found in rows for member, score in found}, reverse=True)
        return [entry for entry in entries if after is None or entry < after][:most]

    def _asked(self, entries: Sequence[Entry], indexes: Sequence[str]) -> list[Entry]:
        """Those of the entries that are in the other indexes too."""
        if not entries or not indexes:
            return list(entries)
        members = [member for _, member in entries]
        with translated(), self._client.pipeline(transaction=False) as pipe:
            for index in indexes:
                pipe.zmscore(index, members)
            scores: list[list[float | None]] = pipe.execute()
        known = zip(*scores, strict=True)
        return [entry for entry, found in zip(entries, known, strict=True) if None not in found]

    def _summaries(self, entries: Sequence[Entry], wanted: Filter) -> Iterator[tuple[Summary, Entry]]:
        """What is shown of each; one that has expired or moved on since it was found is left out."""
        with translated(), self._client.pipeline(transaction=False) as pipe:
            for _, member in entries:
                pipe.hmget(self._keys.workflow(member), *_SHOWN)
            rows: list[Any] = pipe.execute(raise_on_error=False)
        for entry, row in zip(entries, rows, strict=True):
            summary = _summary(entry[1], row)
            if summary is not None and (not wanted.statuses or summary.status in wanted.statuses):
                yield summary, entry


def _summary(workflow_execution_id: str, row: Any) -> Summary | None:
    if isinstance(row, Exception) or row[0] is None:
        return None
    status, name, group, labels, created_at, ended_at, parent = row
    return Summary(
        workflow_execution_id,
        WorkflowStatus(status),
        created_at,
        ended_at,
        name,
        group,
        loads(labels) if labels is not None else {},
        loads(parent)["execution"] if parent is not None else None,
    )


def _cursor(after: Entry | None) -> str | None:
    return None if after is None else f"{after[0]!r}~{after[1]}"


def _read_cursor(cursor: str) -> Entry:
    score, is_one, member = cursor.partition("~")
    try:
        if is_one and member:
            return float(score), member
    except ValueError:
        pass
    raise BadCursor(f"{cursor!r} is no cursor: give the one that the page before came with")
