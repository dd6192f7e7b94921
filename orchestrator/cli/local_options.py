"""The options of `orchestrator run --local`, and which other options may stand beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

from orchestrator.settings import THREADS

ONLY_UNFINISHED = ""
"""The value of --resume without an id."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """Each is None if it was not given. `db` is the SQLite file, and `resume` an execution id or
    ONLY_UNFINISHED."""

    db: str | None = None
    resume: str | None = None
    threads: int | None = None


def local_options(command: F) -> F:
    """Add --local, --db, --resume and --threads; the command receives them as `local`, or None."""

    @wraps(command)
    def with_local(
        *args: Any, local: bool, db: str | None, resume: str | None, threads: int | None, **others: Any
    ) -> Any:
        given = _given("db", "resume", "threads")
        if given and not local:
            raise click.UsageError(f"{given[0]} needs --local")
        return command(*args, local=LocalOptions(db, resume, threads) if local else None, **others)

    for option in (
        click.option(
            "--threads",
            metavar="N",
            type=click.IntRange(1, 64),
            help=f"With --local: how many steps run at once ({THREADS}).",
        ),
        click.option(
            "--resume",
            metavar="[EXECUTION]",
            is_flag=False,
            flag_value=ONLY_UNFINISHED,
            help="With --local and --db: continue an execution, by default the one that has not ended.",
        ),
        click.option(
            "--db",
            metavar="FILE",
            type=click.Path(dir_okay=False, writable=True),
            help="With --local: keep the execution in this SQLite file, so that it survives a crash.",
        ),
        click.option("--local", is_flag=True, help="Run the steps in this process, without Redis."),
    ):
        with_local = option(with_local)
    return cast(F, with_local)


def check_other_options(local: LocalOptions, files: Iterable[str]) -> None:
    """Raise UsageError for an option that --local or --resume has no use for."""
    for name, advice in _NOT_LOCAL.items():
        if given := _given(name):
            raise click.UsageError(f"{given[0]} cannot be used with --local: {advice}")
    if local.db is None:
        if local.resume is not None:
            raise click.UsageError("--resume needs --db FILE: without it nothing is kept")
        if given := _given("idempotency_root"):
            raise click.UsageError(f"{given[0]} needs --db FILE with --local: without it nothing is kept")
    if local.resume is not None:
        given = [*files, *_given(*_OF_THE_START)]
        if given:
            raise click.UsageError(
                f"{', '.join(given)} cannot be used with --resume:"
                " an execution keeps the workflow, the inputs and the options that it was started with"
            )


_NOT_LOCAL = {
    "redis_url": "it runs without Redis",
    "prefix": "it runs without Redis, and has no keys and queues",
    "workers": "it starts no processes; use --threads N to run N steps at once",
    "web": "it runs without Redis, which the page reads",
    "show_redis": "it runs without Redis; use --json to see the whole record",
    "on_conflict": "each run has a new id",
    "priority": "it has no queues",
}
_OF_THE_START = (
    "merge",
    "inputs",
    "registered",
    "label",
    "group",
    "idempotency_root",
    "idempotency_window",
    "webhook",
    "traceparent",
)


def _given(*names: str) -> list[str]:
    """Those of these options that are on the command line, also before the name of the command."""
    contexts = []
    context: click.Context | None = click.get_current_context()
    while context is not None:
        contexts.append(context)
        context = context.parent
    return [
        next(param.opts[0] for param in one.command.params if param.name == name)
        for name in names
        for one in contexts
        if one.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
