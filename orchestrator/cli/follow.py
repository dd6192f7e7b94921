"""Following an execution: told of its end at once, looked at in between, through outages of Redis."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrator.cli.output.escaping import print_text
from orchestrator.cli.output.step_log import HistoryEntry, merge_log_lines

if TYPE_CHECKING:
    from orchestrator.application.records.step_log import LogLine
    from orchestrator.cli.options import Target
    from orchestrator.redis_rq.queries.record_queries import RecordQueries

T = TypeVar("T")

POLL_INTERVAL_S = 0.25
EXIT_INTERRUPTED = 130
"""What shells say of a command that ^C has ended."""


def open_record_queries(target: Target) -> RecordQueries:
    from orchestrator.cli.options import check_url
    from orchestrator.redis_rq.connection import connect
    from orchestrator.redis_rq.queries.record_queries import RecordQueries

    settings = target.settings()
    check_url(settings.redis_url)
    return RecordQueries(connect(settings.redis_url), settings.keys)


def follow(
    queries: RecordQueries,
    workflow_execution_id: str,
    read: Callable[[], T],
    print_text: Callable[[str], None],
    poll_log: Callable[[], Any] = lambda: None,
) -> Iterator[T | None]:
    """What `read` gives whenever the execution has changed, and None for each look at which it has not; ends
    with what was read of an execution that has ended. `listen` is called at every look, after that: what is
    said changes nothing. An outage is waited for, and told once."""
    from orchestrator.application.errors import Unavailable
    from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES
    from orchestrator.redis_rq.connection import backoff_delays

    seen, is_away, pauses = "", False, backoff_delays()
    while True:
        try:
            with queries.subscribe_to_end(workflow_execution_id) as end:
                while True:
                    # The version first: what is read later is as new, or will be read again.
                    began = time.monotonic()
                    version, status = queries.version(workflow_execution_id)
                    is_away, found = False, None
                    if version != seen:
                        found, seen = read(), version
                    poll_log()
                    # Reading costs more in a large workflow: never more than a tenth of the time.
                    pause = max(POLL_INTERVAL_S, 10 * (time.monotonic() - began))
                    yield found
                    if status in FINAL_WORKFLOW_STATUSES:
                        return
                    end.wait(pause)
        except Unavailable as error:
            if not is_away:
                print_text(f"Redis is away, waiting for it: {str(error).removeprefix('Redis: ')}")
                pauses = backoff_delays()
            is_away = True
            time.sleep(next(pauses))


class StepLogReader:
    """Hears what executors of one execution say, from an entry on."""

    def __init__(self, queries: RecordQueries, workflow_execution_id: str, after: str = "") -> None:
        self._queries, self._name, self._after = queries, workflow_execution_id, after
        self._heard: list[LogLine] = []

    def poll_log(self) -> None:
        found = self._queries.lines(self._name, self._after)
        self._after = found[-1][0] if found else self._after
        self._heard += [line for _, line in found]

    def heard(self) -> list[LogLine]:
        """What was said since this was asked before."""
        heard, self._heard = self._heard, []
        return heard


def follow_history(
    queries: RecordQueries, workflow_execution_id: str, include_step_log: bool = True
) -> Iterator[HistoryEntry]:
    """Each entry of a history, those that are there and those that come, until the execution has ended; with
    what executors say in between."""
    told, log_reader = 0, StepLogReader(queries, workflow_execution_id)

    def newer() -> list[HistoryEntry]:
        return [json.loads(text) for text in queries.history(workflow_execution_id, told)]

    def poll_log() -> None:
        if include_step_log:
            log_reader.poll_log()

    for found in follow(queries, workflow_execution_id, newer, partial(print_text, err=True), poll_log):
        told += len(found or ())
        yield from merge_log_lines(found or (), log_reader.heard())


@contextmanager
def detach_on_interrupt(execution_id: str) -> Iterator[None]:
    """^C ends only the looking; say so, and how to look again."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(
            f"\nnot watched any more; the execution goes on: orchestrator watch {execution_id}", err=True
        )
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
