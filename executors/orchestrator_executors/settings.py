"""Shared by the built-in executors: reading settings, checking values, and allowlists.

A setting is in the configuration of the source or in the input of the step. A setting in the configuration is
fixed: an input may contain data of an execution, which must not change it. A worker's allowlists are
environment variables that list names, or patterns in which `*` stands for any characters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

REDACTED = "<redacted>"


class Refused(Exception):
    """This worker rejects the request, and would reject it again."""

    non_retryable = True


def merge_settings(
    configuration: Mapping[str, Any],
    inputs: Mapping[str, object],
    known: Collection[str],
    data: Collection[str] = (),
) -> dict[str, Any]:
    """Merge and check the settings. Those named in `data` are never fixed, so only an input may have them."""
    for name in configuration:
        if name not in known:
            raise Refused(f"the configuration has an unknown setting {name!r}{suggest(name, known)}")
    for name in inputs:
        if name not in (*known, *data):
            raise Refused(f"the input has an unknown setting {name!r}{suggest(name, (*known, *data))}")
        if name in configuration:
            raise Refused(f"{name!r} is fixed by the configuration; an input cannot change it")
    return {**configuration, **inputs}


def suggest(name: str, known: Collection[str]) -> str:
    """The end of an error message: the most similar known name, or all of them."""
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; available: {', '.join(sorted(known))}"


def check_choice(name: str, value: Any, choices: Collection[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise Refused(f"{name!r} must be one of {', '.join(choices)}, not {value!r}")
    return value


def check_number(name: str, value: Any) -> float:
    """A finite number of at least 0; a boolean is not a number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < float("inf"):
        raise Refused(f"{name!r} must be a number of at least 0, not {value!r}")
    return float(value)


def check_string_list(name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise Refused(f"{name!r} must be a list of strings")
    return list(value)


def check_encodable(text: str, what: str) -> str:
    """A text that UTF-8 can encode: JSON may contain half of a surrogate pair, which it cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused(f"{what} has half a character, which cannot be encoded") from None
    return text


# ---- allowlists


def read_allowlist(variable: str) -> list[str]:
    """The entries of an environment variable, which are separated by commas."""
    return [one.strip() for one in os.environ.get(variable, "").split(",") if one.strip()]


def matches(name: str, patterns: Collection[str]) -> bool:
    """Whether a name matches a pattern: `*` stands for any characters; case matters."""
    return any(
        re.fullmatch(".*".join(map(re.escape, one.split("*"))), name, re.DOTALL) is not None
        for one in patterns
    )


ENV_VARIABLES = "ORCHESTRATOR_ENV_VARIABLES"


def check_variable(name: str) -> None:
    """Check that specs may use this environment variable."""
    patterns = read_allowlist(ENV_VARIABLES)
    if not matches(name, patterns):
        state = "does not list it" if patterns else "is not set"
        raise Refused(f"the variable {name!r} is not allowed: {ENV_VARIABLES} of this worker {state}")
