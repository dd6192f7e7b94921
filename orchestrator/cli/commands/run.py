"""orchestrator run: one workflow, from its document to its end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.errors import EXIT_CODES, Failure, InvalidRequest
from orchestrator.cli.log_options import LogOptions, log_options
from orchestrator.cli.options import (
    Target,
    add_current_directory,
    connection_options,
    executors_option,
    files_argument,
    inputs_option,
    json_option,
    pass_target,
    read_spec,
    start_options,
)
from orchestrator.cli.output.escaping import print_text
from orchestrator.cli.output.progress import Progress, create_progress

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.spec.model import LoadedSpec
    from orchestrator.client import Client, StartOptions, StartResult
    from orchestrator.embedded import EmbeddedStack

WORKERS = 2
STARTUP_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.1
FINISH_TIMEOUT_S = 30.0
WEBHOOK_TIMEOUT_S = 60.0


@click.command()
@files_argument
@inputs_option
@executors_option
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    help=f"How many workers to start: {WORKERS} unless given, none where a Redis is named.",
)
@click.option(
    "--register",
    "registered",
    metavar="FILE",
    multiple=True,
    help="A workflow that steps start by its name; may be repeated. For the time of this run only.",
)
@start_options
@json_option
@click.option("--show-redis", is_flag=True, help="Print what Redis holds of it too, as redis-cli shows it.")
@log_options("warning")
@connection_options
@pass_target
def run(
    target: Target,
    files: tuple[str, ...],
    inputs: dict[str, Any],
    executors: tuple[str, ...],
    workers: int | None,
    registered: tuple[str, ...],
    options: StartOptions,
    as_json: bool,
    show_redis: bool,
    log: LogOptions,
) -> None:
    """Run the workflow in FILE to its end, and show what came of it.

    Several files are one document, merged from left to right: mappings merge, lists and scalars replace.

    Without a Redis it starts a private one, a coordinator and workers, and leaves nothing behind. With
    --redis-url the workflow runs there, by the coordinators and workers that are there; --workers N starts N
    more for the time of this run.
    """
    from orchestrator.cli.output import report

    loaded = read_spec(*files)
    _check_inputs(loaded, inputs)
    children = _read_children(registered, target)
    routes = target.settings().tags.allow_unknown_tags()  # what nobody serves, the coordinator refuses
    queues = sorted({queue for one in (loaded, *children.values()) for queue in routes.queues(one.spec)})
    progress = _progress(log)
    with _interruptible(), _stack(target, queues or ["default"], executors, workers, progress, log) as stack:
        for name, child in children.items():
            stack.client.register(name, child.document)
        started = _start(stack, stack.client.send_start(loaded, inputs, options=options))
        try:
            record = _follow(stack.client, started.execution_id, progress, stack.check)
            if target.redis_url is None:
                record = _tell(stack, record, progress)
        except Interrupted as error:
            raise Failure(_what_is_left(error, started, target)) from None
        held = report.dump_redis_keys(record, stack.redis, target.settings().keys) if show_redis else ""
    if as_json:
        click.echo(report.as_json(record))
    else:
        print_text(report.summary(record))
    if held:
        print_text(held, err=as_json)
    if (record.error or {}).get("type") == "ExecutorNotFound":
        click.echo("Name the module that defines it with --executors MODULE.", err=True)
    raise click.exceptions.Exit(EXIT_CODES[record.status.value])


def _progress(log: LogOptions) -> Progress:
    if log.format == "text":
        return create_progress()
    from orchestrator.cli.output.json_progress import LoggedProgress
    from orchestrator.logs import log_to_stderr

    log_to_stderr(log.level, log.format, "run")
    return LoggedProgress()


def _check_inputs(loaded: LoadedSpec, inputs: dict[str, Any]) -> None:
    """Before anything is started."""
    from orchestrator.application.errors import StartRejected
    from orchestrator.application.spec.validation import check_inputs

    _, problems = check_inputs(loaded.spec, inputs)
    if problems:
        raise StartRejected("\n".join(map(str, problems)))


def _read_children(files: Sequence[str], target: Target) -> dict[str, LoadedSpec]:
    """The workflows to register, by name."""
    if files and target.redis_url is not None:
        raise click.UsageError("--register is for a system of its own; use orchestrator register there")
    found = {}
    for file in files:
        child = read_spec(file)
        if not child.spec.name:
            raise click.UsageError(f"{file} has no name: steps could not start it")
        found[child.spec.name] = child
    return found


@contextmanager
def _stack(
    target: Target,
    queues: Sequence[str],
    executors: Sequence[str],
    workers: int | None,
    progress: Progress,
    log: LogOptions,
) -> Iterator[EmbeddedStack]:
    """What the workflow runs on: a system of our own, or the one that was named."""
    from orchestrator.embedded import ChildProcesses, EmbeddedStack, embedded_stack, start_workers
    from orchestrator.redis_rq.connection import connect

    settings = target.settings()
    modules = list(executors or settings.executors)
    if target.redis_url is None or workers is not None:
        _check_modules(modules)
    if target.redis_url is None:
        count, print_text = workers or WORKERS, progress.print_text
        with embedded_stack(modules, count, queues, settings, print_text, log.arguments) as stack:
            yield stack
        return
    client, redis = target.client(), connect(target.redis_url)
    if workers is None:
        yield EmbeddedStack(client, redis)
        return
    environment = {
        "ORCHESTRATOR_REDIS_URL": settings.redis_url,
        "ORCHESTRATOR_PREFIX": settings.prefix,
        "ORCHESTRATOR_EXECUTORS": ",".join(modules),
    }
    processes = ChildProcesses(environment, progress.print_text)
    try:
        start_workers(processes, workers, queues, log.arguments)
        yield EmbeddedStack(client, redis, processes.check)
        # They may be busy with steps of other executions by now.
        processes.terminate(FINISH_TIMEOUT_S)
    finally:
        processes.end()


def _start(stack: EmbeddedStack, entry_id: str) -> StartResult:
    """Wait for the answer to a start for as long as everything is still coming up."""
    from orchestrator.application.errors import StartRejected, Unavailable
    from orchestrator.client import NoReply, RequestLost, StartResult

    deadline = time.monotonic() + STARTUP_TIMEOUT_S
    while True:
        stack.check()
        try:
            answer = stack.client.answer(entry_id, 0.25)
        except RequestLost:
            raise
        except (NoReply, Unavailable):
            if time.monotonic() > deadline:
                raise
            continue
        if not answer["ok"]:
            raise StartRejected(answer["reason"], answer.get("problems", ()))
        return StartResult(answer["workflow_execution_id"], answer["execution_id"])


def _follow(
    client: Client, execution_id: str, progress: Progress, check: Callable[[], None]
) -> WorkflowRecord:
    """Show how it goes until it has ended. A Redis that goes away meanwhile is waited for."""
    from orchestrator.application.errors import Unavailable
    from orchestrator.client import StillRunning

    is_away = False
    while True:
        began = time.monotonic()
        try:
            record = client.record(execution_id)
            progress.show(record, client.history(execution_id))
            if record.is_final:
                return record
            is_away = False
            check()
            # Looking costs more in a large workflow: never more than a tenth of the time.
            pause = max(POLL_INTERVAL_S, 10 * (time.monotonic() - began))
            with suppress(StillRunning):
                client.wait(execution_id, pause)
        except Unavailable as error:
            check()
            if not is_away:
                progress.print_text(f"Redis is away, waiting for it: {error}")
            is_away = True
            time.sleep(POLL_INTERVAL_S * 5)


def _tell(stack: EmbeddedStack, record: WorkflowRecord, progress: Progress) -> WorkflowRecord:
    """What we have started ends with us, and so would the attempts of a webhook: wait for it, a while."""
    from orchestrator.application.spec.model import WEBHOOK_UNIT

    until = time.monotonic() + WEBHOOK_TIMEOUT_S
    while (webhook := record.items.get(WEBHOOK_UNIT)) is not None and not webhook.is_final:
        if time.monotonic() > until:
            progress.print_text(
                f"the webhook was not delivered within {WEBHOOK_TIMEOUT_S:g} s, and is given up"
            )
            break
        stack.check()
        time.sleep(POLL_INTERVAL_S)
        record = stack.client.record(record.workflow_execution_id)
        progress.show(record, stack.client.history(record.workflow_execution_id))
    return record


def _check_modules(names: Sequence[str]) -> None:
    """Find the modules before anything is started; importing them is left to the workers."""
    add_current_directory()
    for name in names:
        try:
            found = find_spec(name)
        except Exception as error:  # a package above the module was imported, and may do anything
            problem = f"{type(error).__name__}: {error}"
            raise InvalidRequest(f"the executors module {name!r} cannot be imported: {problem}") from None
        if found is None:
            raise InvalidRequest(
                f"there is no module {name!r} for --executors: is it installed, or in the current directory?"
            )


class Interrupted(Exception):
    """A signal asked us to stop."""


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run like ^C does: by an exception, so that everything is taken down."""

    def interrupt(number: int, _: object) -> None:
        raise Interrupted(signal.Signals(number).name)

    wanted = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup means it
        wanted.append(signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in wanted}
    try:
        yield
    except Interrupted as error:
        raise Failure(f"interrupted by {error}; nothing was left running") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _what_is_left(error: Interrupted, started: StartResult, target: Target) -> str:
    if target.redis_url is None:
        return f"interrupted by {error}; nothing was left running"
    return (
        f"interrupted by {error}; the execution goes on where it is: orchestrator show {started.execution_id}"
    )
