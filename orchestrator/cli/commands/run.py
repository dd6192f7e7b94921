"""The command `run`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.errors import EXIT_CODES, InterruptedBySignal, InvalidRequest
from orchestrator.cli.interruption import Interrupted, handle_signals
from orchestrator.cli.local_options import LocalOptions, check_other_options, local_options
from orchestrator.cli.log_options import LogOptions, log_options
from orchestrator.cli.options import (
    Target,
    add_current_directory,
    connection_options,
    executors_option,
    inputs_option,
    json_option,
    merge_option,
    pass_target,
    read_one_spec,
    read_spec,
    start_options,
)
from orchestrator.cli.output.escaping import print_text

if TYPE_CHECKING:
    from orchestrator.application.explain.status_view import StatusView
    from orchestrator.application.spec.model import LoadedSpec
    from orchestrator.cli.local_run import LocalStart
    from orchestrator.cli.output.progress import Progress
    from orchestrator.cli.python_files import ExecutorModules
    from orchestrator.cli.run_page import RunPage
    from orchestrator.client import Client, StartResult
    from orchestrator.embedded import EmbeddedStack
    from orchestrator.settings import Settings

WORKERS = 2
STARTUP_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.1
FINISH_TIMEOUT_S = 30.0
WEBHOOK_TIMEOUT_S = 60.0
REPLY_AFTER_SIGNAL_S = 1.0


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1)
@merge_option
@inputs_option
@executors_option
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    help=f"Number of workers to start: by default {WORKERS}, or none with --redis-url.",
)
@click.option(
    "--register",
    "registered",
    metavar="FILE",
    multiple=True,
    help="Register a workflow that steps start by name, for this run only; may be repeated.",
)
@local_options
@start_options
@json_option
@click.option("--web", is_flag=True, help="Show the run on a web page, and keep the page until Ctrl-C.")
@click.option("--show-redis", is_flag=True, help="Print the record and the history as stored in Redis.")
@log_options("warning")
@connection_options
@pass_target
def run(
    target: Target,
    files: tuple[str, ...],
    merge: bool,
    inputs: dict[str, Any],
    executors: tuple[str, ...],
    workers: int | None,
    registered: tuple[str, ...],
    local: LocalOptions | None,
    options: dict[str, Any],
    as_json: bool,
    web: bool,
    show_redis: bool,
    log: LogOptions,
) -> None:
    """Run a workflow file to its end and show the result.

    Several files need --merge: mappings merge, lists and scalars replace.

    By default it starts a private Redis, a coordinator and workers, and leaves nothing behind. With
    --redis-url the workflow runs on that Redis, with the coordinators and workers there; --workers N starts N
    more for this run. With --web a browser can watch the run. With --local the steps run in this process,
    without Redis; with --db FILE too, the execution survives a crash, and --resume continues it.
    """
    dump, is_printed = "", False
    if local is None:
        if web:
            _check_web_extra()
        loaded = _read_workflow(files, merge, inputs)
        children = _read_children(registered, is_kept=target.redis_url is not None)
        modules = _find_modules(executors, target.settings(), [*files, *registered])
        with (
            handle_signals(),
            _open_progress(log) as progress,
            _open_stack(target, [loaded, *children.values()], modules, workers, progress, log) as stack,
        ):
            for name, child in children.items():
                stack.client.register(name, child.document)
            with _open_page(stack, web) as page:
                view = _run_on_stack(stack, loaded, inputs, options, target, progress, page)
                if show_redis:
                    dump = _dump_redis_keys(view, stack, target)
                if page is not None:
                    _print_result(view, dump, as_json)
                    is_printed = True
                    click.echo("The page stays until Ctrl-C.", err=True)
                    page.wait_for_interrupt()
    else:
        from orchestrator.cli.local_run import LocalStart
        from orchestrator.settings import Settings

        check_other_options(local, files)
        start = None
        if local.resume is None:
            loaded = _read_workflow(files, merge, inputs)
            start = LocalStart(loaded, inputs, _read_children(registered), options)
            modules = _find_modules(executors, Settings.from_environment(), [*files, *registered])
            executors = modules.names if modules.folders else executors
        view = _run_in_this_process(local, start, executors, log)
    if not is_printed:
        _print_result(view, dump, as_json)
    raise click.exceptions.Exit(EXIT_CODES[view.record.status.value])


def _check_web_extra() -> None:
    from orchestrator.cli.web_server import check_extra

    check_extra()


def _read_workflow(files: Sequence[str], merge: bool, inputs: dict[str, Any]) -> LoadedSpec:
    """Read the workflow, and check the inputs before anything is started."""
    from orchestrator.application.errors import StartRejected
    from orchestrator.application.spec.validation import check_inputs

    if not files:
        raise click.MissingParameter(param_type="argument", param_hint="'FILE...'")
    loaded = read_one_spec(files, merge)
    _, problems = check_inputs(loaded.spec, inputs)
    if problems:
        raise StartRejected("\n".join(map(str, problems)))
    return loaded


def _find_modules(executors: Sequence[str], settings: Settings, files: Sequence[str]) -> ExecutorModules:
    """The modules with executors: those of the command line or of the settings, and those of Python files."""
    from orchestrator.cli.python_files import find_executor_modules

    own = find_executor_modules(files)
    return replace(own, names=(*(executors or settings.executors), *own.names))


def _run_in_this_process(
    local: LocalOptions, start: LocalStart | None, executors: Sequence[str], log: LogOptions
) -> StatusView:
    from orchestrator.cli.local_run import run_local
    from orchestrator.logs import log_to_stderr

    _check_modules(executors)
    with handle_signals(), _open_progress(log) as progress:
        log_to_stderr(log.level, log.format, "run")  # after the progress, which may draw there
        return run_local(local, start, executors, progress)


def _run_on_stack(
    stack: EmbeddedStack,
    loaded: LoadedSpec,
    inputs: dict[str, Any],
    options: dict[str, Any],
    target: Target,
    progress: Progress,
    page: RunPage | None,
) -> StatusView:
    from orchestrator.client import StartOptions

    entry_id = stack.client.send_start(loaded, inputs, options=StartOptions(**options))
    try:
        started = _wait_for_start(stack, entry_id)
        if page is not None:
            progress.print_text(f"The page of this run is at {page.path_of(started.execution_id)}")
        view = _wait_for_end(stack.client, started.execution_id, progress, stack.check)
        if target.redis_url is None:
            view = _wait_for_webhook(stack, view, progress)
    except Interrupted as error:
        raise InterruptedBySignal(error.number, _describe_interrupt(stack, entry_id, target)) from None
    return view


def _dump_redis_keys(view: StatusView, stack: EmbeddedStack, target: Target) -> str:
    from orchestrator.cli.output import report
    from orchestrator.wiring import make_keys

    return report.dump_redis_keys(view.record, stack.redis, make_keys(target.settings()))


def _print_result(view: StatusView, dump: str, as_json: bool) -> None:
    from orchestrator.cli.output import report

    if as_json:
        click.echo(report.as_json(view))
    else:
        print_text(report.summary(view.record))
    if dump:
        print_text(dump, err=as_json)
    if (view.record.error or {}).get("type") == "ExecutorNotFound":
        click.echo("Name the module that defines it with --executors MODULE.", err=True)


def _open_progress(log: LogOptions) -> AbstractContextManager[Progress]:
    if log.format == "text":
        from orchestrator.cli.output.progress import open_progress

        return open_progress()
    from orchestrator.cli.output.json_progress import LoggedProgress
    from orchestrator.logs import log_to_stderr

    log_to_stderr(log.level, log.format, "run")
    return nullcontext(LoggedProgress())


def _read_children(files: Sequence[str], is_kept: bool = False) -> dict[str, LoadedSpec]:
    """Read the workflows of --register, by name; not for a Redis of others, which would keep them."""
    if files and is_kept:
        raise click.UsageError("--register cannot be used with --redis-url; use orchestrator register there")
    children = {}
    for file in files:
        child = read_spec(file)
        if not child.spec.name:
            raise click.UsageError(f"{file} has no name, so steps cannot start it")
        children[child.spec.name] = child
    return children


@contextmanager
def _open_stack(
    target: Target,
    specs: Sequence[LoadedSpec],
    modules: ExecutorModules,
    workers: int | None,
    progress: Progress,
    log: LogOptions,
) -> Iterator[EmbeddedStack]:
    """Start a private system, or connect to the given Redis and start the additional workers there."""
    from orchestrator.embedded import EmbeddedStack, embedded_stack
    from orchestrator.redis_rq.connection import connect
    from orchestrator.runtime import Runtime
    from orchestrator.wiring import make_routes

    settings = target.settings()
    # The coordinator rejects tags that no queue serves.
    routes = make_routes(settings).allow_unknown_tags()
    queues = sorted({queue for one in specs for queue in routes.queues(one.spec)}) or ["default"]
    if target.redis_url is None or workers is not None:
        _check_modules(modules.names)
    if target.redis_url is None:
        count, print_line = workers or WORKERS, progress.print_text
        with embedded_stack(
            modules.names, count, queues, settings, print_line, log.arguments, modules.folders
        ) as stack:
            yield stack
        return
    client, redis = target.client(), connect(target.redis_url)
    if workers is None:
        yield EmbeddedStack(client, redis, settings=settings)
        return
    runtime = Runtime(
        executors=modules.names,
        workers=workers,
        queues=queues,
        coordinators=0,
        grace_s=FINISH_TIMEOUT_S,
        settings=settings,
        log_options=log.arguments,
        print_line=progress.print_text,
        import_paths=modules.folders,
    )
    runtime.spawn()
    try:
        yield EmbeddedStack(client, redis, runtime.check, settings)
        # By now the workers may run steps of other executions: let them finish.
        runtime.shutdown()
        runtime.join()
    finally:
        runtime.kill()


def _open_page(stack: EmbeddedStack, is_wanted: bool) -> AbstractContextManager[RunPage | None]:
    if not is_wanted:
        return nullcontext()
    from orchestrator.cli.run_page import serve_page

    return serve_page(stack)


def _wait_for_start(stack: EmbeddedStack, entry_id: str) -> StartResult:
    """Wait for the reply to a start; the coordinator may still be starting."""
    from orchestrator.application.errors import StartRejected, Unavailable
    from orchestrator.client import NoReply, RequestLost, StartResult

    deadline = time.monotonic() + STARTUP_TIMEOUT_S
    while True:
        stack.check()
        try:
            reply = stack.client.wait_for_reply(entry_id, 0.25)
        except RequestLost:
            raise
        except (NoReply, Unavailable):
            if time.monotonic() > deadline:
                raise
            continue
        if not reply["ok"]:
            raise StartRejected(reply["reason"], reply.get("problems", ()))
        return StartResult(reply["workflow_execution_id"], reply["execution_id"])


def _wait_for_end(
    client: Client, execution_id: str, progress: Progress, check: Callable[[], None]
) -> StatusView:
    """Show the progress until the execution has ended; during an outage of Redis, wait."""
    from orchestrator.application.errors import Unavailable
    from orchestrator.client import StillRunning

    is_unavailable = False
    while True:
        began = time.monotonic()
        try:
            view = client.status_view(execution_id)
            progress.show(view, client.history(execution_id))
            if view.record.is_final:
                return view
            is_unavailable = False
            check()
            # A large workflow takes longer to read: spend at most a tenth of the time on it.
            pause_s = max(POLL_INTERVAL_S, 10 * (time.monotonic() - began))
            with suppress(StillRunning):
                client.wait(execution_id, pause_s)
        except Unavailable as error:
            check()
            if not is_unavailable:
                progress.print_text(f"Redis is unavailable; retrying: {error}")
            is_unavailable = True
            time.sleep(POLL_INTERVAL_S * 5)


def _wait_for_webhook(stack: EmbeddedStack, view: StatusView, progress: Progress) -> StatusView:
    """Wait until the webhook is delivered, up to a limit: the private system stops with this process."""
    from orchestrator.application.values.unit_id import WEBHOOK_UNIT

    deadline = time.monotonic() + WEBHOOK_TIMEOUT_S
    while (webhook := view.record.items.get(WEBHOOK_UNIT)) is not None and not webhook.is_final:
        if time.monotonic() > deadline:
            progress.print_text(f"giving up: the webhook was not delivered within {WEBHOOK_TIMEOUT_S:g} s")
            break
        stack.check()
        time.sleep(POLL_INTERVAL_S)
        execution = view.record.workflow_execution_id
        view = stack.client.status_view(execution)
        progress.show(view, stack.client.history(execution))
    return view


def _check_modules(names: Sequence[str]) -> None:
    """Check that the modules exist before anything is started; the workers import them."""
    add_current_directory()
    for name in names:
        try:
            spec = find_spec(name)
        except Exception as error:  # find_spec imports the parent package, which may raise anything
            problem = f"{type(error).__name__}: {error}"
            raise InvalidRequest(f"the executors module {name!r} cannot be imported: {problem}") from None
        if spec is None:
            raise InvalidRequest(
                f"there is no module {name!r} for --executors: is it installed, or in the current directory?"
            )


def _describe_interrupt(stack: EmbeddedStack, entry_id: str, target: Target) -> str:
    """What remains. The signal may come before the reply to the start, which then comes soon."""
    from orchestrator.application.errors import Unavailable
    from orchestrator.client import StartResult

    if target.redis_url is None:
        return "nothing was left running"
    with suppress(Unavailable):
        [started] = stack.client.wait_for_starts([entry_id], REPLY_AFTER_SIGNAL_S)
        if isinstance(started, StartResult):
            return f"the execution continues: orchestrator show {started.execution_id}"
    return f"the start {entry_id} was sent, and a coordinator will execute it: orchestrator list"
