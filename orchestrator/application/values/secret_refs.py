"""References to secrets: `{"secret": "name"}` in a spec is the place of a text that only workers know.

    {"user": "ada", "password": {"secret": "db"}}   ->   {"user": "ada", "password": "hunter2"}

A reference counts where it is written, and nowhere else: data that looks like one stays data, whoever sent
it. So validation finds the places, a job carries them, and a worker puts texts into exactly these.

The work-horse of every step imports this: nothing heavy may be needed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

SECRET = "secret"
SECRET_NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
SECRET_NAME_RULE = (
    "must be the name of a secret: letters, digits, '_', '-' and '.', at most 128 of them, and the first is"
    " neither '-' nor '.'"
)

SecretPath = tuple[str | int, ...]
ReadSecret = Callable[[str], str]
"""The value of a secret, by its name."""

_NAME = re.compile(SECRET_NAME_PATTERN.strip("^$"))


def is_secret_name(name: Any) -> bool:
    """Whether this may name a secret: such names become variables and files."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def is_reference(value: Any) -> bool:
    """Whether this is meant as a reference, whatever it names."""
    return isinstance(value, dict) and len(value) == 1 and SECRET in value


def fill_secrets(
    values: dict[str, Any], places: Iterable[Sequence[str | int]], read: ReadSecret
) -> dict[str, Any]:
    """The values with a secret in each of these places; they themselves stay as they are."""
    found: Any = values
    for place in places:
        found = _put(found, place, read)
    return dict(found)


def _put(value: Any, place: Sequence[str | int], read: ReadSecret) -> Any:
    if not place:
        return read(value[SECRET])
    changed = value.copy()
    changed[place[0]] = _put(value[place[0]], place[1:], read)
    return changed
