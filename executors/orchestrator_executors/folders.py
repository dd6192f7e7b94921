"""Opens folders below ORCHESTRATOR_FILE_ROOT, the only place where documents may name files.

A path is opened folder by folder, each relative to the descriptor of the one above it, without following
symbolic links. So no other process can replace a part of the path between the check and the use.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .settings import Refused, check_encodable

ROOT_VARIABLE = "ORCHESTRATOR_FILE_ROOT"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotThere(Exception):
    """A file or folder does not exist; it may exist when the step is retried."""


def split_path(path: object) -> list[str]:
    """The parts of a path below the root; [] is the root itself."""
    if not isinstance(path, str) or not path:
        raise Refused(f"'path' must be a string such as reports/may.json, not {path!r}")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise Refused(f"{path!r} is not allowed: a path is relative to {ROOT_VARIABLE} and stays below it")
    check_encodable(path, "'path'")
    return parts


@contextmanager
def open_folder(parts: list[str], *, create: bool = False) -> Iterator[int]:
    """Open a folder below the root as a descriptor; with `create`, create missing folders."""
    root = os.environ.get(ROOT_VARIABLE, "")
    if not root:
        raise Refused(f"this worker has no files: {ROOT_VARIABLE} is not set; set it to a folder for them")
    try:
        folder = os.open(root, _FOLDER & ~os.O_NOFOLLOW)
    except OSError as error:
        raise NotThere(f"the folder in {ROOT_VARIABLE} cannot be opened: {error.strerror}") from None
    try:
        for n, part in enumerate(parts):
            inner = _open_subfolder(folder, part, "/".join(parts[: n + 1]), create)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _open_subfolder(folder: int, name: str, path: str, create: bool) -> int:
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
        raise Refused(f"{path!r} is not a folder, or is a symbolic link, which is not followed") from None


def is_under_root(path: str) -> bool:
    """Whether a path, with all links resolved, is where documents may write."""
    root = os.environ.get(ROOT_VARIABLE, "")
    if not root:
        return False
    real = os.path.realpath(root)
    return os.path.commonpath([real, os.path.realpath(path)]) == real
