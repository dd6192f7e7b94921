"""Filters of executions, as they stand in a URL: of the page, and of the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from starlette.datastructures import ImmutableMultiDict

from orchestrator.application.records.status import WorkflowStatus
from orchestrator.redis_rq.queries.listing import ExecutionFilter
from orchestrator.web.problems import Problem

MAX_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Filters:
    """The filter of a list, and the texts that it was read from, by their names in the URL."""

    wanted: ExecutionFilter
    texts: Mapping[str, Any] = field(default_factory=dict)
    failure: str | None = None


NAMES = ("status", "workflow", "group", "label", "since", "until", "text", "failure")


def read_filters(query: ImmutableMultiDict[str, str]) -> Filters:
    """Read the filters of a URL; raises Problem for one that is wrong. An empty one counts as not given."""
    return make_filters({name: query.getlist(name) for name in NAMES})


def make_filters(given: Mapping[str, Sequence[str]]) -> Filters:
    """Read filters by their names; of one that can have one value, the last counts."""
    texts = {name: [one for one in given.get(name, ()) if one.strip()] for name in NAMES}
    wanted = ExecutionFilter(
        statuses=[_read_status(one) for one in texts["status"]],
        name=_last(texts["workflow"]),
        group=_last(texts["group"]),
        labels=dict(map(_read_label, texts["label"])),
        since_ms=_read_time("since", _last(texts["since"])),
        until_ms=_read_time("until", _last(texts["until"])),
        text=_last(texts["text"]),
    )
    return Filters(wanted, texts, _last(texts["failure"]))


def read_limit(query: Mapping[str, str], default: int = 50) -> int:
    text = query.get("limit", "") or str(default)
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= MAX_LIMIT):
        raise Problem(400, "bad_query", f"limit must be a number from 1 to {MAX_LIMIT}, not {text[:40]!r}")
    return int(text)


def format_times(wanted: ExecutionFilter) -> dict[str, str]:
    """The times of a filter as the fields of a form take them, in UTC."""
    times = {"since": wanted.since_ms, "until": wanted.until_ms}
    return {name: "" if ms is None else _format_time(ms) for name, ms in times.items()}


def _format_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).isoformat()[:19]


def _read_status(text: str) -> WorkflowStatus:
    try:
        return WorkflowStatus(text)
    except ValueError:
        known = ", ".join(status.value for status in WorkflowStatus)
        raise Problem(400, "bad_query", f"status must be one of {known}, not {text[:40]!r}") from None


def _read_label(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (separator and name and value):
        raise Problem(400, "bad_query", f"label must be written as KEY=VALUE, not {text[:80]!r}")
    return name, value


def _read_time(name: str, text: str | None) -> int | None:
    """A time as in ISO 8601; without a zone it is in UTC."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        found = found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise Problem(
            400, "bad_query", f"{name} must be a time such as 2026-01-31T12:00, not {text[:40]!r}"
        ) from None
    return int(found.timestamp() * 1000)


def _last(texts: list[str]) -> str | None:
    return texts[-1] if texts else None
