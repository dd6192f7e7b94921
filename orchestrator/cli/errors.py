"""Exit codes, and every failure that is not a defect of ours in words a user can act upon."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches

import click

from orchestrator.cli.options import Target, mask_password
from orchestrator.cli.output.escaping import escape_control_chars

EXIT_INVALID = 2
EXIT_CODES = {"complete": 0, "halted": 3, "failed": 4, "cancelled": 5}
"""By the status of an execution; one that still runs is no failure either."""


class Failure(click.ClickException):
    """Something outside went wrong: no Redis, no answer."""

    exit_code = 1

    def format_message(self) -> str:
        return escape_control_chars(self.message)


class InvalidRequest(Failure):
    """What the user asked for cannot be done: an invalid spec, a wrong name."""

    exit_code = EXIT_INVALID


class TooBusy(Failure):
    """Nothing is wrong, and it may be tried again later."""

    exit_code = 7


def no_such_step(execution_id: str, step: str, known: Sequence[str]) -> InvalidRequest:
    likely = get_close_matches(step, known, n=1)
    hint = f"; did you mean {likely[0]!r}?" if likely else ""
    return InvalidRequest(f"execution {execution_id!r} has no step {step!r}{hint}")


def explain_error(error: Exception, target: Target) -> Failure | None:
    """What went wrong, where, and what to do; None when it is a defect and deserves its traceback."""
    from orchestrator.application import errors

    match error:
        case errors.InvalidSpec():
            return InvalidRequest(f"this is not a valid workflow:\n{error}")
        case errors.StartRejected():
            return InvalidRequest(f"the start was refused: {error}")
        case errors.RecordNotFound():
            return InvalidRequest(f"{error}; it may have expired, or live under another --prefix")
        case errors.Busy():
            return TooBusy(str(error))
        case errors.Unavailable():
            return _no_redis(error, target)
        case UnicodeEncodeError(reason="surrogates not allowed"):  # how Python reads bytes that are no UTF-8
            word = error.object[max(error.start - 20, 0) : error.end + 20]
            return InvalidRequest(f"{word!r} is not UTF-8 text: what is told to Redis has to be")
    if type(error).__name__ in _USERS_OWN or getattr(error, "exit_code", None) == EXIT_INVALID:
        return InvalidRequest(str(error))
    if isinstance(error, errors.OrchestratorError):
        return Failure(str(error))
    return _of_redis(error, target)


_USERS_OWN = ("BadExecutors", "BadMemoryLimit", "BadSetting")
"""By their names: what defines them may not have been imported, and need not be for a message."""


def _of_redis(error: Exception, target: Target) -> Failure | None:
    redis = sys.modules.get("redis")
    if redis is None or not isinstance(error, redis.exceptions.RedisError):
        return None
    if isinstance(error, redis.exceptions.ConnectionError | redis.exceptions.TimeoutError):
        return _no_redis(error, target)
    return Failure(f"Redis at {_place(target)} refused a command: {error}")


def _no_redis(error: Exception, target: Target) -> Failure:
    cause = str(error).removeprefix("Redis: ")
    return Failure(
        f"cannot use Redis at {_place(target)}: {cause}\n"
        "Start it, or name another with --redis-url or ORCHESTRATOR_REDIS_URL."
    )


def _place(target: Target) -> str:
    return mask_password(target.settings().redis_url)
