"""Options and arguments that several commands share: the Redis connection, inputs, labels, files."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from orchestrator.cli.output.escaping import print_text

if TYPE_CHECKING:
    from orchestrator.application.spec.model import LoadedSpec
    from orchestrator.client import Client
    from orchestrator.redis_rq.connection import Client as RedisClient
    from orchestrator.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Target:
    """The Redis URL and the key prefix of the command line; None where the user gave none."""

    redis_url: str | None = None
    prefix: str | None = None

    def settings(self) -> Settings:
        """Read the settings from the environment; the command line overrides them."""
        from orchestrator.settings import Settings
        from orchestrator.wiring import check_settings

        settings = Settings.from_environment()
        if self.redis_url is not None:
            settings = replace(settings, redis_url=self.redis_url)
        if self.prefix is not None:
            settings = replace(settings, prefix=self.prefix)
        check_settings(settings)
        return settings

    def client(self) -> Client:
        from orchestrator.wiring import make_client

        settings = self.settings()
        check_url(settings.redis_url)
        return make_client(settings)

    def connect(self) -> tuple[Settings, RedisClient]:
        """Create a connection to Redis, for commands that read keys directly."""
        from orchestrator.redis_rq.connection import connect

        settings = self.settings()
        check_url(settings.redis_url)
        return settings, connect(settings.redis_url)


pass_target = click.make_pass_decorator(Target, ensure=True)


def connection_options(command: F) -> F:
    """Add --redis-url and --prefix after the name of a command."""
    return _connection_options(command, from_environment=False)


def global_connection_options(command: F) -> F:
    """Add --redis-url and --prefix before the name of a command.

    Only these read the environment; otherwise it would override the options before the command.
    """
    return _connection_options(command, from_environment=True)


def _connection_options(command: F, from_environment: bool) -> F:
    def store(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None:
            _CHECKS[str(param.name)](value)
            setattr(ctx.ensure_object(Target), str(param.name), value)

    url = click.option(
        "--redis-url",
        metavar="URL",
        expose_value=False,
        callback=store,
        envvar="ORCHESTRATOR_REDIS_URL" if from_environment else None,
        help="redis://, rediss://, unix:// or redis+sentinel://; or set ORCHESTRATOR_REDIS_URL.",
    )
    prefix = click.option(
        "--prefix",
        metavar="NAME",
        expose_value=False,
        callback=store,
        envvar="ORCHESTRATOR_PREFIX" if from_environment else None,
        help="Prefix of all keys and queues (orchestrator); or set ORCHESTRATOR_PREFIX.",
    )
    return url(prefix(command))


def check_url(url: str) -> None:
    if not re.match(r"rediss?://|unix://|rediss?\+sentinel://([^@/]*@)?[^/?]+/[^/?]+", url):
        raise click.UsageError(
            f"{mask_password(url)!r} is not a Redis URL: write redis://HOST:6379/0, rediss://...,"
            " unix:///path or redis+sentinel://HOST:26379,HOST:26379/SERVICE/0"
        )


def check_prefix(prefix: str) -> None:
    from orchestrator.redis_rq.keys import PREFIX_RULE, is_prefix

    if not is_prefix(prefix):
        raise click.UsageError(f"the prefix {PREFIX_RULE}, not {prefix!r}")


_CHECKS = {"redis_url": check_url, "prefix": check_prefix}


def _read_inputs(ctx: click.Context, param: click.Parameter, value: str) -> dict[str, Any]:
    """Parse a JSON object from the option itself ('{"sku": "a1"}'), from a file (@inputs.json), or from the
    standard input (@-)."""
    text, place = value, ""
    if value.startswith("@"):
        text, place = read_document(value[1:]), f"{value[1:]}: "
    try:
        inputs = json.loads(text, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        problem = f"{place}not JSON: {error.msg} at {error.lineno}:{error.colno}"
        raise click.BadParameter(problem, ctx, param) from None
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{place}not JSON: {error}", ctx, param) from None
    if not isinstance(inputs, dict):
        raise click.BadParameter(f'{place}must be a JSON object, such as {{"sku": "a1"}}', ctx, param)
    return inputs


def _inputs_option(text: str) -> Callable[[F], F]:
    return click.option(
        "--inputs",
        metavar="JSON|@FILE",
        default="{}",
        callback=_read_inputs,
        help=f"{text}: a JSON object, @FILE, or @- for the standard input.",
    )


inputs_option = _inputs_option("The inputs")
corrections_option = _inputs_option("Inputs that replace the recorded ones")


def _read_labels(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    labels = {}
    for pair in values:
        name, separator, value = pair.partition("=")
        if not (separator and name and value):
            raise click.BadParameter(f"{pair!r}: write KEY=VALUE, such as customer=acme", ctx, param)
        labels[name] = value
    return labels


def read_ms(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Parse a duration as in workflow files (30s, 5m, or whole seconds), in ms."""
    from orchestrator.application.values.durations import parse_ms

    try:
        return parse_ms(int(value) if value.isdecimal() else value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _read_window(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Parse a duration, in seconds; the coordinator checks its limits."""
    return None if value is None else read_ms(ctx, param, value) // 1_000


def _read_traceparent(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    from orchestrator.application.values.trace_context import TRACEPARENT_RULE, parse_traceparent

    if value is not None and parse_traceparent(value) is None:
        raise click.BadParameter(TRACEPARENT_RULE, ctx, param)
    return value


def labels_option(text: str) -> Callable[[F], F]:
    """Add --label KEY=VALUE, which may be repeated; the command receives a mapping."""
    return click.option("--label", metavar="KEY=VALUE", multiple=True, callback=_read_labels, help=text)


def start_options(command: F) -> F:
    """Add the options of a start; the command receives them as `options`, by their names in StartOptions."""

    @wraps(command)
    def with_options(
        *args: Any,
        on_conflict: Any,
        label: dict[str, str],
        group: str | None,
        priority: int | None,
        idempotency_root: str | None,
        idempotency_window: int | None,
        webhook: str | None,
        traceparent: str | None,
        **others: Any,
    ) -> Any:
        if idempotency_window is not None and idempotency_root is None:
            raise click.UsageError("--idempotency-window needs an --idempotency-root")
        options = {
            "conflict_policy": on_conflict,
            "labels": label,
            "group": group,
            "priority": priority,
            "idempotency_root": idempotency_root,
            "idempotency_window_s": idempotency_window,
            "webhook": webhook,
            "traceparent": traceparent,
        }
        return command(*args, options=options, **others)

    for option in (
        click.option(
            "--traceparent",
            metavar="TEXT",
            callback=_read_traceparent,
            help="The span that causes the start, as in W3C Trace Context.",
        ),
        click.option(
            "--webhook",
            metavar="URL",
            help="Post the outcome to this URL, instead of the webhook in the workflow.",
        ),
        click.option(
            "--idempotency-window",
            metavar="TIME",
            callback=_read_window,
            help="How long the idempotency root is remembered: at least 1s (24h).",
        ),
        click.option(
            "--idempotency-root",
            metavar="NAME",
            help="Start only once under this name; later starts return the same execution.",
        ),
        click.option(
            "--priority",
            type=click.IntRange(1, 5),
            help="Priority of steps that have none of their own; 1 is highest.",
        ),
        click.option(
            "--group", metavar="NAME", help="The group whose shared values the execution reads and writes."
        ),
        labels_option("A label of the execution, for filters; may be repeated."),
        click.option(
            "--on-conflict",
            type=click.Choice(["fail", "use_existing", "terminate_existing"]),
            help="What to do if an execution with this id exists (fail).",
        ),
    ):
        with_options = option(with_options)
    return cast(F, with_options)


files_argument = click.argument("files", metavar="FILE...", nargs=-1, required=True)
merge_option = click.option(
    "--merge", is_flag=True, help="Merge the files, from left to right, into one workflow."
)
executors_option = click.option(
    "--executors",
    metavar="MODULE",
    multiple=True,
    help="A Python module with executors; may be repeated. Or set ORCHESTRATOR_EXECUTORS (comma-separated).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def read_document(name: str) -> str:
    """Read a file, or the standard input if the name is '-'."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"cannot read {name!r}: {_reason(error)}") from error


def read_workflow_text(name: str) -> str:
    """Read a workflow file, or write the document of a workflow function."""
    from orchestrator.cli.python_files import is_python_name, read_python_text

    return read_python_text(name) if is_python_name(name) else read_document(name)


def read_spec(*names: str) -> LoadedSpec:
    """Load a workflow from one file, or merge several; warnings go to the standard error.

    Documents of flowtoy and flow8 are converted. `app.py:order` is a workflow function.
    """
    from orchestrator.cli.foreign_documents import load_files
    from orchestrator.cli.python_files import is_python_name, load_python_spec

    if len(names) == 1 and is_python_name(names[0]):
        loaded = load_python_spec(names[0])
    else:
        loaded = load_files([(read_workflow_text(name), name) for name in names])
    for warning in loaded.warnings:
        print_text(f"{warning.located_in(warning.source or names[0])} (warning)", err=True)
    return loaded


def read_one_spec(names: Sequence[str], merge: bool) -> LoadedSpec:
    """Load the workflow of a command that takes one; several files must be merged explicitly."""
    if len(names) > 1 and not merge:
        raise click.UsageError(
            f"{', '.join(names)} are {len(names)} files, and this command takes one workflow:"
            " give one file, or merge them, from left to right, with --merge"
        )
    return read_spec(*names)


def write_text(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"cannot write {name!r}: {_reason(error)}") from error


def add_current_directory() -> None:
    """Make modules in the current directory importable, as `python -m` and `rq worker` do."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def mask_password(url: str) -> str:
    """Replace passwords in a Redis URL by ***, also after the path of a socket
    (unix://user@/run/redis.sock?password=...)."""
    return re.sub(r"([?&]\w*password=)[^&]*", r"\1***", re.sub(r"//[^@/]*@", "//***@", url))


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "it is not UTF-8 text"
