"""The folder that documents may name files in: ORCHESTRATOR_FILE_ROOT of the worker, and what is below it.

A path is walked folder by folder, each opened in the one above it and no symbolic link followed, so nobody
can exchange a part of it for another between the check and the use.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .settings import Refused

ROOT_VARIABLE = "ORCHESTRATOR_FILE_ROOT"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotThere(Exception):
    """A file or folder that does not exist; it may, when the step is tried again."""


def split_path(path: object) -> list[str]:
    """The names in a path below the root, which is [] itself."""
    if not isinstance(path, str) or not path:
        raise Refused(f"'path' must be a text such as reports/may.json, not {path!r}")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise Refused(f"{path!r} is refused: a path begins below {ROOT_VARIABLE}, and never leaves it")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise Refused(f"{path!r} is refused: it is not a text that can name a file") from None
    return parts


@contextmanager
def open_folder(parts: list[str], *, create: bool = False) -> Iterator[int]:
    """A folder below the root, as a descriptor; with `makes`, folders that are missing are made."""
    root = os.environ.get(ROOT_VARIABLE, "")
    if not root:
        raise Refused(f"this worker has no files: {ROOT_VARIABLE} is not set; name a folder for them")
    try:
        folder = os.open(root, _FOLDER & ~os.O_NOFOLLOW)
    except OSError as error:
        raise NotThere(f"the folder in {ROOT_VARIABLE} cannot be opened: {error.strerror}") from None
    try:
        for n, part in enumerate(parts):
            inner = _entered(folder, part, "/".join(parts[: n + 1]), create)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _entered(folder: int, name: str, path: str, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        raise NotThere(f"there is no folder {path!r}") from None
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        raise Refused(f"{path!r} is no folder: a file, or a symbolic link, which is not followed") from None


def is_under_root(path: str) -> bool:
    """Whether a path leads to where documents may write, whatever links it goes through."""
    root = os.environ.get(ROOT_VARIABLE, "")
    if not root:
        return False
    real = os.path.realpath(root)
    return os.path.commonpath([real, os.path.realpath(path)]) == real
