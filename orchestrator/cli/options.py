"""What several commands read in the same way: where Redis is, inputs, documents."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

if TYPE_CHECKING:
    from orchestrator.application.spec.model import LoadedSpec
    from orchestrator.client import Client
    from orchestrator.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Target:
    """Which Redis, and under which prefix, as far as the user said so."""

    redis_url: str | None = None
    prefix: str | None = None

    def settings(self) -> Settings:
        """The settings of the environment, with what the command line said on top."""
        from orchestrator.settings import Settings

        settings = Settings.from_environment()
        if self.redis_url is not None:
            settings = replace(settings, redis_url=self.redis_url)
        if self.prefix is not None:
            settings = replace(settings, prefix=self.prefix)
        return settings

    def client(self) -> Client:
        from orchestrator.client import Client

        settings = self.settings()
        check_url(settings.redis_url)
        return Client(settings.redis_url, settings.keys, max_backlog=settings.max_backlog)


pass_target = click.make_pass_decorator(Target, ensure=True)


def connection_options(command: F) -> F:
    """--redis-url and --prefix behind the name of a command."""
    return _connection_options(command, from_environment=False)


def global_connection_options(command: F) -> F:
    """The same before it. Only here is the environment read, or it would win over what stands here."""
    return _connection_options(command, from_environment=True)


def _connection_options(command: F, from_environment: bool) -> F:
    def remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None:
            _CHECKS[str(param.name)](value)
            setattr(ctx.ensure_object(Target), str(param.name), value)

    url = click.option(
        "--redis-url",
        metavar="URL",
        expose_value=False,
        callback=remember,
        envvar="ORCHESTRATOR_REDIS_URL" if from_environment else None,
        help="redis://, rediss://, unix:// or redis+sentinel://; or ORCHESTRATOR_REDIS_URL.",
    )
    prefix = click.option(
        "--prefix",
        metavar="NAME",
        expose_value=False,
        callback=remember,
        envvar="ORCHESTRATOR_PREFIX" if from_environment else None,
        help="What our keys and queues begin with (orchestrator); or ORCHESTRATOR_PREFIX.",
    )
    return url(prefix(command))


def check_url(url: str) -> None:
    if not re.match(r"rediss?://|unix://|rediss?\+sentinel://([^@/]*@)?[^/?]+/[^/?]+", url):
        raise click.UsageError(
            f"{mask_password(url)!r} is no Redis URL: write redis://HOST:6379/0, rediss://..., unix:///path"
            " or redis+sentinel://HOST:26379,HOST:26379/SERVICE/0"
        )


def check_prefix(prefix: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", prefix):
        raise click.UsageError(f"the prefix {prefix!r}: 1 to 64 letters, digits, '_', '-', '.' or ':'")


_CHECKS = {"redis_url": check_url, "prefix": check_prefix}


def _read_inputs(ctx: click.Context, param: click.Parameter, value: str) -> dict[str, Any]:
    """A JSON object, written out or in a file: '{"sku": "a1"}', @inputs.json, @- for the standard input."""
    text, place = value, ""
    if value.startswith("@"):
        text, place = read_document(value[1:]), f"{value[1:]}: "
    try:
        inputs = json.loads(text, parse_constant=_no_constant)
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
        help=f"{text}, or @FILE with one.",
    )


inputs_option = _inputs_option("The inputs: a JSON object")
corrections_option = _inputs_option("Inputs that take the place of wrong ones: a JSON object")


def _read_labels(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    labels = {}
    for one in values:
        name, is_one, value = one.partition("=")
        if not (is_one and name and value):
            raise click.BadParameter(f"{one!r}: write KEY=VALUE, such as customer=acme", ctx, param)
        labels[name] = value
    return labels


def read_ms(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """A duration as documents have it, in ms: 30s, 5m, or whole seconds."""
    from orchestrator.application.values.durations import parse_ms

    try:
        return parse_ms(int(value) if value.isdecimal() else value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _read_window(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """In seconds; how many they may be is the coordinator's business."""
    return None if value is None else read_ms(ctx, param, value) // 1_000


def labels_option(text: str) -> Callable[[F], F]:
    """--label KEY=VALUE, as often as wanted; the command gets a mapping."""
    return click.option("--label", metavar="KEY=VALUE", multiple=True, callback=_read_labels, help=text)


def start_options(command: F) -> F:
    """What else a start may say; the command gets it as `options`."""

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
        **others: Any,
    ) -> Any:
        from orchestrator.client import StartOptions

        if idempotency_window is not None and idempotency_root is None:
            raise click.UsageError("--idempotency-window belongs to an --idempotency-root")
        options = StartOptions(
            on_conflict, label, group, priority, idempotency_root, idempotency_window, webhook
        )
        return command(*args, options=options, **others)

    for option in (
        click.option("--webhook", metavar="URL", help="Whom to tell of its end, instead of the document's."),
        click.option(
            "--idempotency-window",
            metavar="TIME",
            callback=_read_window,
            help="How long that is remembered: 1s and more (24h).",
        ),
        click.option("--idempotency-root", metavar="NAME", help="Start once a day at most under this name."),
        click.option(
            "--priority", type=click.IntRange(1, 5), help="For steps that have none of their own; 1 is first."
        ),
        click.option("--group", metavar="NAME", help="The group whose shared values it reads and writes."),
        labels_option("A label to find it by; may be repeated."),
        click.option(
            "--on-conflict",
            type=click.Choice(["fail", "use_existing", "terminate_existing"]),
            help="What to do when an execution has this id already (fail).",
        ),
    ):
        with_options = option(with_options)
    return cast(F, with_options)


files_argument = click.argument("files", metavar="FILE...", nargs=-1, required=True)
executors_option = click.option(
    "--executors",
    metavar="MODULE",
    multiple=True,
    help="A module with executors; may be repeated. Or ORCHESTRATOR_EXECUTORS, separated by commas.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")


def read_document(name: str) -> str:
    """The text of a file, or of the standard input for '-'."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"cannot read {name!r}: {_reason(error)}") from error


def read_spec(*names: str) -> LoadedSpec:
    """The spec in one or several files; its warnings go to the standard error."""
    from orchestrator.application.spec.validation import load_specs

    loaded = load_specs([(read_document(name), name) for name in names])
    for warning in loaded.warnings:
        click.echo(f"{warning.source or names[0]}:{warning} (warning)", err=True)
    return loaded


def write_text(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"cannot write {name!r}: {_reason(error)}") from error


def add_current_directory() -> None:
    """Executors may lie where the command was started, as for `python -m` and for `rq worker`."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def mask_password(url: str) -> str:
    """Of a socket it stands behind the path: unix://user@/run/redis.sock?password=..."""
    return re.sub(r"([?&]\w*password=)[^&]*", r"\1***", re.sub(r"//[^@/]*@", "//***@", url))


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "it is not UTF-8 text"
