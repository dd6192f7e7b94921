"""A connection that fails: a socket in front of a Redis that cuts it when told to."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from pathlib import Path

from worlds.waiting import PATIENCE_S


class Proxy:
    """A socket in front of a Redis. `drop_reply_of` lets a command through and then cuts the line; the first
    `spared` of them pass."""

    def __init__(self, target: Path, path: Path) -> None:
        self._target, self.path = target, path
        self._armed, self._lock, self._is_open = list[tuple[bytes, int]](), threading.Lock(), True
        self.dropped = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def drop_reply_of(self, command: str, spared: int = 0) -> None:
        self._armed.append((command.encode(), spared))

    def close(self) -> None:
        self._is_open = False
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _accept(self) -> None:
        while self._is_open:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._carry, args=[line])
            self._threads.append(thread)
            thread.start()

    def _carry(self, line: socket.socket) -> None:
        with line, socket.socket(socket.AF_UNIX) as server, suppress(OSError, ValueError):
            server.connect(str(self._target))
            is_cut = False
            while self._is_open:
                ready, _, _ = select.select([line, server], [], [], 0.05)
                if line in ready:
                    data = line.recv(1 << 20)
                    is_cut = is_cut or self._fires(data)
                    if not data:
                        return
                    server.sendall(data)
                if server in ready:
                    data = server.recv(1 << 20)
                    if is_cut or not data:
                        self.dropped += is_cut
                        return
                    line.sendall(data)

    def _fires(self, data: bytes) -> bool:
        with self._lock:
            found = next((armed for armed in self._armed if armed[0] in data), None)
            if found is None:
                return False
            self._armed.remove(found)
            if found[1]:
                self._armed.append((found[0], found[1] - 1))
            return not found[1]
