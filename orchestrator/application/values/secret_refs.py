"""References to secrets: workers replace `{"secret": "name"}` in a spec by the value of the secret.

    {"user": "ada", "password": {"secret": "db"}}   ->   {"user": "ada", "password": "hunter2"}

Only a reference in the spec counts: data at run time that looks like a reference stays data. So validation
finds the paths of the references, a job carries these paths, and a worker fills in exactly these.

The work-horse of every step imports this module, so it must not import anything heavy.
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
"""Returns the value of a secret by its name."""

_NAME = re.compile(SECRET_NAME_PATTERN)


def is_secret_name(name: Any) -> bool:
    """Whether this is a valid name. Names become environment variables and file names."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def is_secret_reference(value: Any) -> bool:
    """Whether this has the shape of a reference; the name in it may be invalid."""
    return isinstance(value, dict) and len(value) == 1 and SECRET in value


def fill_secrets(
    values: dict[str, Any], paths: Iterable[Sequence[str | int]], read: ReadSecret
) -> dict[str, Any]:
    """Return a copy of the values with the secret at each of these paths."""
    filled: Any = values
    for path in paths:
        filled = _fill_at(filled, path, read)
    return dict(filled)


def _fill_at(value: Any, path: Sequence[str | int], read: ReadSecret) -> Any:
    if not path:
        return read(value[SECRET])
    changed = value.copy()
    changed[path[0]] = _fill_at(value[path[0]], path[1:], read)
    return changed
