"""Following an execution: told of its end at once, looked at in between, through outages of Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from orchestrator.cli.options import Target
    from orchestrator.redis_rq.glances import Glances

T = TypeVar("T")

LOOK_EVERY_S = 0.25
TRY_AGAIN_S = 0.5
INTERRUPTED = 130
"""What shells say of a command that ^C has ended."""


def glances_at(target: Target) -> Glances:
    from orchestrator.cli.options import check_url
    from orchestrator.redis_rq.connection import connect
    from orchestrator.redis_rq.glances import Glances

    settings = target.settings()
    check_url(settings.redis_url)
    return Glances(connect(settings.redis_url), settings.keys)


def follow(
    glances: Glances, workflow_execution_id: str, read: Callable[[], T], say: Callable[[str], None]
) -> Iterator[T | None]:
    """What `read` gives whenever the execution has changed, and None for each look at which it has not; ends
    with what was read of an execution that has ended. An outage is waited for, and told once."""
    from orchestrator.application.errors import Unavailable
    from orchestrator.application.states import FINAL_WORKFLOWS

    seen, is_away = "", False
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
                    # Reading costs more in a large workflow: never more than a tenth of the time.
                    pause = max(LOOK_EVERY_S, 10 * (time.monotonic() - began))
                    yield found
                    if status in FINAL_WORKFLOWS:
                        return
                    end.wait(pause)
        except Unavailable as error:
            if not is_away:
                say(f"Redis is away, waiting for it: {str(error).removeprefix('Redis: ')}")
            is_away = True
            time.sleep(TRY_AGAIN_S)


def follow_history(glances: Glances, workflow_execution_id: str) -> Iterator[str]:
    """Each entry of a history, those that are there and those that come, until the execution has ended."""
    told = 0

    def newer() -> list[str]:
        return glances.history(workflow_execution_id, told)

    def say(remark: str) -> None:
        click.echo(remark, err=True)

    for found in follow(glances, workflow_execution_id, newer, say):
        told += len(found or ())
        yield from found or ()


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
