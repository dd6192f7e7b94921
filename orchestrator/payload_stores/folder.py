"""Payloads in a folder that all workers and clients can reach: files under the first letters of their ids.

    <folder>/3f/3fa9...   the bytes of one payload

A file appears whole or not at all. Whoever puts one removes what is too old beside it, so nothing else has to
sweep: ids are spread evenly, and with every few hundred puts each place has had its turn.
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

_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN})


class DirectoryPayloads:
    def __init__(self, folder: str | Path, ttl_s: float) -> None:
        self._folder, self._ttl_s = Path(folder), ttl_s

    def put(self, payload_id: str, data: bytes) -> None:
        path = self._path(payload_id)
        with self._translated():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(path, data)
            self._sweep(path.parent)

    def get(self, payload_id: str) -> bytes | None:
        path = self._path(payload_id)
        with self._translated():
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                return None
        with suppress(OSError):  # who may only read cannot make it younger
            os.utime(path)
        return data

    def _write(self, path: Path, data: bytes) -> None:
        descriptor, name = mkstemp(dir=path.parent, prefix=".", suffix=".new")
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            os.chmod(name, 0o640)  # a client may belong to the group of the workers
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise

    def _path(self, payload_id: str) -> Path:
        return self._folder / payload_id[:2] / payload_id

    def _sweep(self, place: Path) -> None:
        oldest = time.time() - self._ttl_s
        for entry in os.scandir(place):
            with suppress(OSError):  # somebody else sweeps here too
                if entry.stat().st_mtime < oldest:
                    os.unlink(entry)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kind = Unavailable if error.errno in _PASSING else StoreError
            raise kind(f"the folder of payloads {self._folder}: {error}") from error
