"""Following an execution: told of its end at once, looked at in between, through outages of Redis."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrator.cli.output.escaping import say
from orchestrator.cli.output.step_log import Entry, among

if TYPE_CHECKING:
    from orchestrator.application.records.step_log import Line
    from orchestrator.cli.options import Target
    from orchestrator.redis_rq.queries.record_queries import Glances

T = TypeVar("T")

LOOK_EVERY_S = 0.25
INTERRUPTED = 130
"""What shells say of a command that ^C has ended."""


def glances_at(target: Target) -> Glances:
    from orchestrator.cli.options import check_url
    from orchestrator.redis_rq.connection import connect
    from orchestrator.redis_rq.queries.record_queries import Glances

    settings = target.settings()
    check_url(settings.redis_url)
    return Glances(connect(settings.redis_url), settings.keys)


def follow(
    glances: Glances,
    workflow_execution_id: str,
    read: Callable[[], T],
    say: Callable[[str], None],
    listen: Callable[[], Any] = lambda: None,
) -> Iterator[T | None]:
    """What `read` gives whenever the execution has changed, and None for each look at which it has not; ends
    with what was read of an execution that has ended. `listen` is called at every look, after that: what is
    said changes nothing. An outage is waited for, and told once."""
    from orchestrator.application.errors import Unavailable
    from orchestrator.application.records.status import FINAL_WORKFLOWS
    from orchestrator.redis_rq.connection import back_off

    seen, is_away, pauses = "", False, back_off()
    while True:
        try:
            with glances.end_of(workflow_execution_id) as end:
                while True:
                    # The version first: what is read later is as new, or will be read again.
                    began = time.monotonic()
                    version, status = glances.version(workflow_execution_id)
                    is_away, found = False, None
                    if version != seen:
                        found, seen = read(), version
                    listen()
                    # Reading costs more in a large workflow: never more than a tenth of the time.
                    pause = max(LOOK_EVERY_S, 10 * (time.monotonic() - began))
                    yield found
                    if status in FINAL_WORKFLOWS:
                        return
                    end.wait(pause)
        except Unavailable as error:
            if not is_away:
                say(f"Redis is away, waiting for it: {str(error).removeprefix('Redis: ')}")
                pauses = back_off()
            is_away = True
            time.sleep(next(pauses))


class Listener:
    """Hears what executors of one execution say, from an entry on."""

    def __init__(self, glances: Glances, workflow_execution_id: str, after: str = "") -> None:
        self._glances, self._name, self._after = glances, workflow_execution_id, after
        self._heard: list[Line] = []

    def listen(self) -> None:
        found = self._glances.lines(self._name, self._after)
        self._after = found[-1][0] if found else self._after
        self._heard += [line for _, line in found]

    def heard(self) -> list[Line]:
        """What was said since this was asked before."""
        heard, self._heard = self._heard, []
        return heard


def follow_history(glances: Glances, workflow_execution_id: str, has_lines: bool = True) -> Iterator[Entry]:
    """Each entry of a history, those that are there and those that come, until the execution has ended; with
    what executors say in between."""
    told, listener = 0, Listener(glances, workflow_execution_id)

    def newer() -> list[Entry]:
        return [json.loads(text) for text in glances.history(workflow_execution_id, told)]

    def listen() -> None:
        if has_lines:
            listener.listen()

    for found in follow(glances, workflow_execution_id, newer, partial(say, err=True), listen):
        told += len(found or ())
        yield from among(found or (), listener.heard())


@contextmanager
def left_running(execution_id: str) -> Iterator[None]:
    """^C ends only the looking; say so, and how to look again."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(
            f"\nnot watched any more; the execution goes on: orchestrator watch {execution_id}", err=True
        )
        raise click.exceptions.Exit(INTERRUPTED) from None
