"""Listing: pages of executions from the indexes, the newest first. The cost of a page does not depend on the
number of executions.

Each filter is one index, or several of which one must contain the execution, as with statuses. The filter
with the fewest executions is scanned, and its executions are looked up in the others. If few of them match, a
page ends before it is full, with a cursor to continue from.

An execution moves between two indexes in one step, so indexes are read in one transaction: an execution that
moved between two reads would be missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.errors import OrchestratorError
from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.json_codec import loads
from orchestrator.redis_rq.keys import Keys

SCAN_BATCH_SIZE = 500
MAX_SCANS = 10
SAME_SCORE_MARGIN = 16
"""How many executions with the same score one read expects; more are rare, and cause a larger read."""

_SUMMARY_FIELDS = ("status", "name", "group", "labels", "created_at", "ended_at", "parent")


class InvalidCursor(OrchestratorError):
    """The cursor was not returned by a page."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class ExecutionFilter:
    """Which executions to list: those that match every given filter. Creation times are in ms: `since_ms` is
    included, `until_ms` is not. `text` is a part of the id, the name, the group or a label, in any case."""

    statuses: Sequence[WorkflowStatus] = ()
    name: str | None = None
    group: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    since_ms: int | None = None
    until_ms: int | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """An execution in a list, without its inputs, outputs and outcome."""

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

    @property
    def took_s(self) -> float | None:
        """From its creation to its end; None while it is open."""
        if self.ended_at is None:
            return None
        return max(parse_iso_ms(self.ended_at) - parse_iso_ms(self.created_at), 0) / 1000


@dataclass(frozen=True, slots=True)
class Page:
    """Some executions, and the cursor of the next page; None at the end."""

    executions: list[Summary]
    cursor: str | None = None


Entry = tuple[float, str]
"""An entry of an index: its score, and the id of its execution."""

Predicate = Callable[[Sequence[Summary]], Sequence[bool]]
"""Whether each of some executions is wanted, by what no index and no summary has."""


class Listing:
    def __init__(self, client: Client, keys: Keys) -> None:
        self._client, self._keys = client, keys

    def page(
        self,
        wanted: ExecutionFilter,
        limit: int = 50,
        cursor: str | None = None,
        keep: Predicate | None = None,
    ) -> Page:
        """A page of the executions that match a filter, and for which `keep` is true if it is given."""
        if limit < 1:
            raise ValueError(f"the limit of a page must be at least 1, not {limit}")
        after = None if cursor is None else _read_cursor(cursor)
        leading, *others = self._plan(wanted)
        found: list[Summary] = []
        has_condition = wanted.text is not None or keep is not None
        for _ in range(MAX_SCANS):
            is_sparse = bool(others) or has_condition
            max_entries = SCAN_BATCH_SIZE if is_sparse else limit + 1 - len(found)
            entries = self._scan(leading, wanted, after, max_entries)
            rest = self._matching(entries, others)
            while rest:
                batch = rest if has_condition else rest[: limit + 1 - len(found)]
                for summary, entry in _keep(list(self._summaries(batch, wanted)), keep):
                    if len(found) == limit:
                        return Page(found, _cursor(after))
                    found.append(summary)
                    after = entry
                rest = rest[len(batch) :]
            if len(entries) < max_entries:
                return Page(found)
            after = entries[-1]
        return Page(found, _cursor(after))

    def all(self, wanted: ExecutionFilter, page_size: int = 500) -> Iterator[Summary]:
        """Every matching execution, page by page."""
        cursor: str | None = None
        while True:
            page = self.page(wanted, page_size, cursor)
            yield from page.executions
            cursor = page.cursor
            if cursor is None:
                return

    def find(self, executions: Iterable[str], wanted: ExecutionFilter) -> list[Summary]:
        """Those of some executions that match a filter, whatever index they are in."""
        entries = [(0.0, execution) for execution in executions]
        found = (summary for summary, _ in self._summaries(entries, wanted))
        return [one for one in found if _is_in_time(one, wanted)]

    def _plan(self, wanted: ExecutionFilter) -> list[list[str]]:
        """The indexes of each filter; the filter with the fewest executions comes first."""
        keys = self._keys
        filters = [[keys.index_of_label(name, value)] for name, value in wanted.labels.items()]
        if wanted.name is not None:
            filters.append([keys.index_of_name(wanted.name)])
        if wanted.group is not None:
            filters.append([keys.index_of_group(wanted.group)])
        if wanted.statuses or not filters:
            filters.append(
                [keys.index(status) for status in dict.fromkeys(wanted.statuses or WorkflowStatus)]
            )
        if len(filters) == 1:
            return filters
        with translate_errors(), self._client.pipeline(transaction=False) as pipe:
            for index in (index for indexes in filters for index in indexes):
                pipe.zcard(index)
            sizes: Iterator[int] = iter(pipe.execute())
        by_size = [(sum(next(sizes) for _ in indexes), indexes) for indexes in filters]
        return [indexes for _, indexes in sorted(by_size)]

    def _scan(
        self, indexes: Sequence[str], wanted: ExecutionFilter, after: Entry | None, max_entries: int
    ) -> list[Entry]:
        """The next entries of some indexes together, the newest first."""
        newest: float | str = "+inf" if wanted.until_ms is None else f"({wanted.until_ms}"
        if after is not None and (wanted.until_ms is None or after[0] < wanted.until_ms):
            newest = after[0]
        oldest: float | str = "-inf" if wanted.since_ms is None else wanted.since_ms
        count = max_entries + SAME_SCORE_MARGIN
        while True:
            with translate_errors(), self._client.pipeline(transaction=len(indexes) > 1) as pipe:
                for index in indexes:
                    # Entries with the score of the last one are read again, and told apart by their ids.
                    pipe.zrevrangebyscore(index, newest, oldest, 0, count, withscores=True)
                rows: list[list[tuple[str, float]]] = pipe.execute()
            found = [{(score, member) for member, score in row} for row in rows]
            left = [{entry for entry in entries if after is None or entry < after} for entries in found]
            if all(
                len(one) < count or len(rest) >= max_entries for one, rest in zip(found, left, strict=True)
            ):
                return sorted(set().union(*left), reverse=True)[:max_entries]
            count *= 8  # more entries share one score than were read

    def _matching(self, entries: Sequence[Entry], filters: Sequence[Sequence[str]]) -> list[Entry]:
        """The entries that are in the indexes of the other filters too."""
        if not entries or not filters:
            return list(entries)
        members = [member for _, member in entries]
        with translate_errors(), self._client.pipeline(transaction=True) as pipe:
            for index in (index for indexes in filters for index in indexes):
                pipe.zmscore(index, members)
            scores: Iterator[list[float | None]] = iter(pipe.execute())
        kept = list(entries)
        for indexes in filters:
            known: set[str] = set()
            for found in (next(scores) for _ in indexes):
                known.update(one for one, score in zip(members, found, strict=True) if score is not None)
            kept = [entry for entry in kept if entry[1] in known]
        return kept

    def _summaries(
        self, entries: Sequence[Entry], wanted: ExecutionFilter
    ) -> Iterator[tuple[Summary, Entry]]:
        """The summaries of entries; an execution that was deleted or changed since the scan is left out."""
        with translate_errors(), self._client.pipeline(transaction=False) as pipe:
            for _, member in entries:
                pipe.hmget(self._keys.workflow(member), *_SUMMARY_FIELDS)
            rows: list[Any] = pipe.execute(raise_on_error=False)
        for entry, row in zip(entries, rows, strict=True):
            summary = _summary(entry[1], row)
            if summary is not None and _is_wanted(summary, wanted):
                yield summary, entry


def _keep(found: list[tuple[Summary, Entry]], keep: Predicate | None) -> Iterable[tuple[Summary, Entry]]:
    if keep is None:
        return found
    kept = keep([summary for summary, _ in found])
    return (one for one, is_kept in zip(found, kept, strict=True) if is_kept)


def _summary(workflow_execution_id: str, row: Any) -> Summary | None:
    """None for a record that is deleted or unreadable: it must not hide the others."""
    if isinstance(row, Exception) or row[0] is None:
        return None
    status, name, group, labels, created_at, ended_at, parent = row
    try:
        return Summary(
            workflow_execution_id,
            WorkflowStatus(status),
            created_at,
            ended_at,
            name,
            group,
            dict(loads(labels)) if labels is not None else {},
            loads(parent)["execution"] if parent is not None else None,
        )
    except (ValueError, TypeError, LookupError):
        return None


def _is_wanted(one: Summary, wanted: ExecutionFilter) -> bool:
    """Whether a record matches now: its index entry may be older than its last change."""
    if wanted.statuses and one.status not in wanted.statuses:
        return False
    if wanted.name not in (None, one.name) or wanted.group not in (None, one.group):
        return False
    if wanted.text is not None and not _has_text(one, wanted.text.lower()):
        return False
    return wanted.labels.items() <= one.labels.items()


def _has_text(one: Summary, text: str) -> bool:
    labels = (f"{name}={value}" for name, value in one.labels.items())
    return any(text in part.lower() for part in (one.execution_id, one.name or "", one.group or "", *labels))


def _is_in_time(one: Summary, wanted: ExecutionFilter) -> bool:
    """Whether an execution was created in the time of a filter. An index compares its scores instead."""
    created_ms = parse_iso_ms(one.created_at)
    if wanted.since_ms is not None and created_ms < wanted.since_ms:
        return False
    return wanted.until_ms is None or created_ms < wanted.until_ms


def _cursor(after: Entry | None) -> str | None:
    return None if after is None else f"{after[0]!r}~{after[1]}"


def _read_cursor(cursor: str) -> Entry:
    score, separator, member = cursor.partition("~")
    try:
        if separator and member and math.isfinite(float(score)):
            return float(score), member
    except ValueError:
        pass
    raise InvalidCursor(f"{cursor!r} is not a cursor: use the one that the previous page returned")
