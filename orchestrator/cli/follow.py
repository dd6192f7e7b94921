"""Following an execution until it ends, also through outages of Redis.

The end is published on a channel, so a follower sees it at once. Changes before the end are polled by the
version of the record; only a changed execution is read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrator.cli.errors import EXIT_INTERRUPTED
from orchestrator.cli.output.escaping import print_text
from orchestrator.cli.output.step_log import HistoryEntry, merge_log_lines

if TYPE_CHECKING:
    from orchestrator.application.records.step_log import LogLine
    from orchestrator.cli.options import Target
    from orchestrator.redis_rq.queries.record_queries import RecordQueries

T = TypeVar("T")

POLL_INTERVAL_S = 0.25


def open_record_queries(target: Target) -> RecordQueries:
    from orchestrator.redis_rq.queries.record_queries import RecordQueries
    from orchestrator.wiring import make_keys

    settings, client = target.connect()
    return RecordQueries(client, make_keys(settings))


def follow(
    queries: RecordQueries,
    workflow_execution_id: str,
    read: Callable[[], T],
    print_text: Callable[[str], None],
    poll: Callable[[], Any] = lambda: None,
) -> Iterator[T | None]:
    """Yield the result of `read` at each change of an execution, and None at each poll without a change.

    The last value is read after the execution has ended. `poll` is called at every poll, after `read`, for
    what does not change the record: log lines and leases. During an outage of Redis it waits, and prints one
    line about it.
    """
    from orchestrator.application.errors import Unavailable
    from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES
    from orchestrator.redis_rq.connection import backoff_delays

    seen_version, is_unavailable, delays = "", False, backoff_delays()
    while True:
        try:
            with queries.subscribe_to_end(workflow_execution_id) as end:
                while True:
                    # The version comes first: what is read after it is at least as new, or is read again.
                    began = time.monotonic()
                    version, status = queries.version(workflow_execution_id)
                    is_unavailable, found = False, None
                    if version != seen_version:
                        found, seen_version = read(), version
                    poll()
                    # A large workflow takes longer to read: spend at most a tenth of the time on it.
                    pause_s = max(POLL_INTERVAL_S, 10 * (time.monotonic() - began))
                    yield found
                    if status in FINAL_WORKFLOW_STATUSES:
                        return
                    end.wait(pause_s)
        except Unavailable as error:
            if not is_unavailable:
                print_text(f"Redis is unavailable; retrying: {str(error).removeprefix('Redis: ')}")
                delays = backoff_delays()
            is_unavailable = True
            time.sleep(next(delays))


class StepLogReader:
    """Reads the step log of one execution, from an entry on."""

    def __init__(self, queries: RecordQueries, workflow_execution_id: str, after: str = "") -> None:
        self._queries, self._execution, self._after = queries, workflow_execution_id, after
        self._new_lines: list[LogLine] = []

    def poll_log(self) -> None:
        found = self._queries.log_lines(self._execution, self._after)
        self._after = found[-1][0] if found else self._after
        self._new_lines += [line for _, line in found]

    def take_new_lines(self) -> list[LogLine]:
        """Return the lines that were read since the last call."""
        lines, self._new_lines = self._new_lines, []
        return lines


def follow_history(
    queries: RecordQueries, workflow_execution_id: str, include_step_log: bool = True
) -> Iterator[HistoryEntry]:
    """Yield the moves of a history, existing and new ones, with the step log among them, until the execution
    has ended."""
    from orchestrator.application.records.replay import add_values

    count, log_reader = 0, StepLogReader(queries, workflow_execution_id)

    def read_new_entries() -> list[HistoryEntry]:
        return [json.loads(text) for text in queries.history(workflow_execution_id, count)]

    def poll_log() -> None:
        if include_step_log:
            log_reader.poll_log()

    report = partial(print_text, err=True)
    for entries in follow(queries, workflow_execution_id, read_new_entries, report, poll_log):
        count += len(entries or ())
        yield from merge_log_lines(add_values(entries or ()), log_reader.take_new_lines())


@contextmanager
def detach_on_interrupt(execution_id: str) -> Iterator[None]:
    """At ^C, stop following; the execution continues, and a line says how to follow it again."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(
            f"\nstopped watching; the execution continues: orchestrator watch {execution_id}", err=True
        )
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
