"""Exit codes, and the messages of failures that are not defects of the program."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches

import click

from orchestrator.cli.options import Target, mask_password
from orchestrator.cli.output.escaping import escape_control_chars

EXIT_INVALID = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT
"""The exit code that shells use for a command ended by ^C; after another signal it is 128 and its number."""
EXIT_CODES = {"complete": 0, "halted": 3, "failed": 4, "cancelled": 5}
"""By the status of an ended execution. For a running one, commands exit with 0."""


class Failure(click.ClickException):
    """A failure outside of the command, such as an unreachable Redis or a missing reply."""

    exit_code = 1

    def format_message(self) -> str:
        return escape_control_chars(self.message)


class InvalidRequest(Failure):
    """A request that cannot be carried out, such as an invalid workflow or an unknown id."""

    exit_code = EXIT_INVALID


class TooBusy(Failure):
    """The system is overloaded; the same command may succeed later."""

    exit_code = 7


class InterruptedBySignal(Failure):
    """A signal ended the command."""

    def __init__(self, number: int, outcome: str = "") -> None:
        name = signal.Signals(number).name
        super().__init__(f"interrupted by {name}; {outcome}" if outcome else f"interrupted by {name}")
        self.exit_code = 128 + number  # type: ignore[misc]  # click declares it for the class


def unknown_step(execution_id: str, step: str, known: Sequence[str]) -> InvalidRequest:
    similar = get_close_matches(step, known, n=1)
    hint = f"; did you mean {similar[0]!r}?" if similar else ""
    return InvalidRequest(f"execution {execution_id!r} has no step {step!r}{hint}")


def explain_error(error: Exception, target: Target) -> Failure | None:
    """Turn an exception into a message with advice; None for a defect, which keeps its traceback."""
    from orchestrator.application import errors

    match error:
        case errors.InvalidSpec():
            return InvalidRequest(f"this is not a valid workflow:\n{error}")
        case errors.HistoryNotKept():
            return InvalidRequest(str(error))
        case errors.StartRejected():
            return InvalidRequest(f"the start was rejected: {error}")
        case errors.RecordNotFound():
            return InvalidRequest(f"{error}; it may have expired, or live under another --prefix")
        case errors.Busy():
            return TooBusy(str(error))
        case errors.Unavailable():
            return _redis_unavailable(error, target)
        case UnicodeEncodeError(reason="surrogates not allowed"):  # Python's form of bytes that are not UTF-8
            excerpt = error.object[max(error.start - 20, 0) : error.end + 20]
            return InvalidRequest(f"{excerpt!r} is not UTF-8 text, as everything in Redis must be")
    if type(error).__name__ in _USER_ERRORS or getattr(error, "exit_code", None) == EXIT_INVALID:
        return InvalidRequest(str(error))
    if isinstance(error, errors.OrchestratorError):
        return Failure(str(error))
    return _explain_redis_error(error, target)


_USER_ERRORS = ("BadExecutors", "BadSetting")
"""Exceptions for a user's mistake. They are named here, because importing their modules only for a message
would be slow."""


def _explain_redis_error(error: Exception, target: Target) -> Failure | None:
    redis = sys.modules.get("redis")
    if redis is None or not isinstance(error, redis.exceptions.RedisError):
        return None
    if isinstance(error, redis.exceptions.ConnectionError | redis.exceptions.TimeoutError):
        return _redis_unavailable(error, target)
    return Failure(f"Redis at {_redis_address(target)} rejected a command: {error}")


def _redis_unavailable(error: Exception, target: Target) -> Failure:
    cause = str(error).removeprefix("Redis: ")
    return Failure(
        f"cannot use Redis at {_redis_address(target)}: {cause}\n"
        "Start it, or name another with --redis-url or ORCHESTRATOR_REDIS_URL."
    )


def _redis_address(target: Target) -> str:
    return mask_password(target.settings().redis_url)
