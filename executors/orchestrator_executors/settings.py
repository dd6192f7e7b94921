"""What the built-in executors have in common: how they are set up, and how they refuse.

A setting stands in the configuration of the source or in the input of the step. One that the configuration
has is fixed: data of an execution may reach an input, and must not change it. What a worker allows is a list
in a variable of its environment: names, or patterns in which `*` stands for anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any


class Refused(Exception):
    """This worker does not do it, however often it is asked."""

    non_retryable = True


def merge_settings(
    configuration: Mapping[str, Any],
    inputs: Mapping[str, object],
    known: Collection[str],
    data: Collection[str] = (),
) -> dict[str, Any]:
    """All settings by name; those of `data` are for inputs alone, since they are never fixed."""
    for name in configuration:
        if name not in known:
            raise Refused(f"the configuration has an unknown setting {name!r}{suggest(name, known)}")
    for name in inputs:
        if name not in (*known, *data):
            raise Refused(f"the input has an unknown setting {name!r}{suggest(name, (*known, *data))}")
        if name in configuration:
            raise Refused(f"{name!r} is fixed by the configuration: an input cannot change it")
    return {**configuration, **inputs}


def suggest(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there is: {', '.join(sorted(known))}"


def check_choice(name: str, value: Any, choices: Collection[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise Refused(f"{name!r} must be one of {', '.join(choices)}, not {value!r}")
    return value


def number(name: str, value: Any, least: float = 0) -> float:
    """A finite number; a boolean is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value < float("inf"):
        raise Refused(f"{name!r} must be a number of at least {least:g}, not {value!r}")
    return float(value)


def check_string_list(name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise Refused(f"{name!r} must be a list of texts")
    return list(value)


# ---- what a worker allows


def read_allowlist(variable: str) -> list[str]:
    """The entries of a variable, which are separated by commas."""
    return [one.strip() for one in os.environ.get(variable, "").split(",") if one.strip()]


def matches(name: str, patterns: Collection[str]) -> bool:
    """`*` stands for any characters, everything else for itself; upper and lower case differ."""
    return any(
        re.fullmatch(".*".join(map(re.escape, one.split("*"))), name, re.DOTALL) is not None
        for one in patterns
    )


ENV_VARIABLES = "ORCHESTRATOR_ENV_VARIABLES"


def check_variable(name: str, what: str) -> None:
    """A variable of the environment that a spec names must be one of those which specs may name."""
    patterns = read_allowlist(ENV_VARIABLES)
    if not matches(name, patterns):
        state = "does not name it" if patterns else "is not set"
        raise Refused(f"{what} {name!r} is refused: {ENV_VARIABLES} of this worker {state}")
