"""Stores payloads in a folder that all workers and clients can reach, in subfolders by the start of their
ids.

    <folder>/3f/3fa9...   the bytes of one payload

A file appears whole or not at all. Each put removes expired files from its subfolder, so no other process has
to sweep: ids are spread evenly, and a few hundred puts reach every subfolder.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp

from orchestrator.application.errors import StoreError, Unavailable

_TEMPORARY_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN}
)


class DirectoryPayloads:
    def __init__(self, folder: str | Path, ttl_s: float) -> None:
        self._folder, self._ttl_s = Path(folder), ttl_s

    def put(self, payload_id: str, data: bytes) -> None:
        path = self._path(payload_id)
        with self._translate_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(path, data)
            self._sweep(path.parent)

    def get(self, payload_id: str) -> bytes | None:
        path = self._path(payload_id)
        with self._translate_errors():
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                return None
        with suppress(OSError):  # a reader without write permission cannot renew it
            os.utime(path)
        return data

    def _write(self, path: Path, data: bytes) -> None:
        descriptor, name = mkstemp(dir=path.parent, prefix=".", suffix=".new")
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            os.chmod(name, 0o640)  # a client may be in the group of the workers
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise

    def _path(self, payload_id: str) -> Path:
        return self._folder / payload_id[:2] / payload_id

    def _sweep(self, subfolder: Path) -> None:
        expired_before = time.time() - self._ttl_s
        for entry in os.scandir(subfolder):
            with suppress(OSError):  # another process may have removed it
                if entry.stat().st_mtime < expired_before:
                    os.unlink(entry)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kind = Unavailable if error.errno in _TEMPORARY_ERRORS else StoreError
            raise kind(f"payload folder {self._folder}: {error}") from error
