"""The options --log-level and --log-format of commands that log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from orchestrator.logs import LOG_FORMATS

LEVELS = ("debug", "info", "warning", "error")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class LogOptions:
    level: str
    format: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """The same options as arguments for a child process."""
        return "--log-level", self.level, "--log-format", self.format


def log_options(default_level: str) -> Callable[[F], F]:
    """Add --log-level and --log-format; the command receives them as `log`."""

    def decorate(command: F) -> F:
        @wraps(command)
        def with_log(*args: Any, log_level: str, log_format: str, **others: Any) -> Any:
            return command(*args, log=LogOptions(log_level, log_format), **others)

        level = click.option(
            "--log-level",
            type=click.Choice(LEVELS, case_sensitive=False),
            default=default_level,
            show_default=True,
            help="Log level.",
        )
        form = click.option(
            "--log-format",
            type=click.Choice(LOG_FORMATS, case_sensitive=False),
            default="text",
            show_default=True,
            envvar="ORCHESTRATOR_LOG_FORMAT",
            help="Log lines as text or as JSON objects; or set ORCHESTRATOR_LOG_FORMAT.",
        )
        return level(form(with_log))  # type: ignore[return-value]

    return decorate
