"""Proxied connections (lines) between processes and their Redis. Each line can fail separately.

    with Proxy(server.socket, random.Random(1)) as proxy:
        line = proxy.line("worker")            # redis://127.0.0.1:<port>/0, for this process only
        line.drop_reply_of("EVALSHA")          # executed by the server, but the reply is lost
        line.cut(); line.part(5.0); line.slow(0.2, 5.0)

Each fault of a line is counted in `proxy.faults`. The proxy runs in its own thread.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHUNK = 1 << 20
MAX_WAIT_S = 180.0


@dataclass
class Weather:
    """The chances of a reply to be dropped, which also cuts the line, or to be delayed."""

    dropped: float = 0.0
    delayed: float = 0.0
    max_delay_s: float = 0.3


@dataclass(eq=False)
class Connection:
    """The two ends of a connection. If `is_deaf`, replies of the server are dropped."""

    near: asyncio.StreamWriter
    far: asyncio.StreamWriter
    is_deaf: bool = False

    def close(self) -> None:
        for end in (self.near, self.far):
            end.close()


@dataclass(eq=False)
class Line:
    name: str
    proxy: Proxy
    port: int = 0
    weather: Weather = field(default_factory=Weather)
    connections: set[Connection] = field(default_factory=set)
    commands: int = 0
    """The number of messages that were sent to the server."""
    last: int | None = None
    """The number of the last message, from 1. After it the line is dead, like that of a killed process."""
    _armed: list[tuple[bytes, int]] = field(default_factory=list)
    _partitioned_until: float = 0.0
    _slow_until: float = 0.0
    _slow_s: float = 0.0

    @property
    def url(self) -> str:
        return f"redis://{self.proxy.address}:{self.port}/0"

    def die_at(self, number: int) -> None:
        """Make this message the last one that the server receives. Its reply is lost."""
        self.last = number

    def drop_reply_of(self, command: str, spared: int = 0) -> None:
        """Lose the reply of the next message that contains this command, after `spared` such messages."""
        self.proxy.call(lambda: self._armed.append((command.encode(), spared)))

    def is_armed(self) -> bool:
        return bool(self._armed)

    def cut(self) -> None:
        """Close all connections immediately."""
        self.proxy.call(self._cut)

    def part(self, seconds: float) -> None:
        """Block both directions without an error."""
        self._partitioned_until = time.monotonic() + seconds
        self.proxy.faults["partition"] += 1

    def slow(self, delay_s: float, seconds: float) -> None:
        """Delay every message by `delay_s` for some seconds."""
        self._slow_until, self._slow_s = time.monotonic() + seconds, delay_s

    def heal(self) -> None:
        self._partitioned_until = self._slow_until = 0.0
        self.weather = Weather()
        self.proxy.call(self._armed.clear)

    # ---- in the thread of the proxy

    def _cut(self) -> None:
        if self.connections:
            self.proxy.faults["connection cut"] += 1
        for connection in list(self.connections):
            connection.close()

    async def carry(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        await self._wait_for_passage()
        try:
            if self.last is not None and self.commands >= self.last:
                raise ConnectionRefusedError
            from_server, far = await asyncio.open_unix_connection(str(self.proxy.target))
        except OSError:
            near.close()
            return
        connection = Connection(near, far)
        self.connections.add(connection)
        try:
            await asyncio.gather(self._up(connection, reader), self._down(connection, from_server))
        finally:
            connection.close()
            self.connections.discard(connection)

    async def _up(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._wait_for_passage()
                self.commands += 1
                if self.last is not None and self.commands >= self.last:
                    connection.is_deaf = True
                    if self.commands > self.last:
                        break
                elif self._fires(data):
                    connection.is_deaf = True
                connection.far.write(data)
                await connection.far.drain()
        connection.close()

    async def _down(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._wait_for_passage()
                if connection.is_deaf or self.proxy.chance() < self.weather.dropped:
                    self.proxy.faults["reply dropped"] += 1
                    break
                if self.proxy.chance() < self.weather.delayed:
                    self.proxy.faults["message delayed"] += 1
                    await asyncio.sleep(self.proxy.chance() * self.weather.max_delay_s)
                connection.near.write(data)
                await connection.near.drain()
        connection.close()

    async def _wait_for_passage(self) -> None:
        while (rest := self._partitioned_until - time.monotonic()) > 0:
            await asyncio.sleep(min(rest, 0.05))
        if time.monotonic() < self._slow_until:
            self.proxy.faults["message delayed"] += 1
            await asyncio.sleep(self._slow_s)

    def _fires(self, data: bytes) -> bool:
        found = next((armed for armed in self._armed if armed[0] in data), None)
        if found is None:
            return False
        self._armed.remove(found)
        if found[1]:
            self._armed.append((found[0], found[1] - 1))
        return not found[1]


class Proxy:
    def __init__(self, target: Path, rng: random.Random | None = None, address: str = "127.0.0.1") -> None:
        self.target, self.faults, self.address = target, Counter[str](), address
        self.chance = (rng or random.Random(0)).random
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(
            lambda loop, context: None
        )  # every closed connection would be logged
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._servers: list[asyncio.Server] = []
        self.lines: list[Line] = []

    def line(self, name: str) -> Line:
        line = Line(name, self)

        async def listen() -> None:
            server = await asyncio.start_server(line.carry, self.address, 0)
            line.port = server.sockets[0].getsockname()[1]
            self._servers.append(server)

        asyncio.run_coroutine_threadsafe(listen(), self._loop).result(MAX_WAIT_S)
        self.lines.append(line)
        return line

    def call(self, action: Callable[[], Any]) -> None:
        """Run an action in the thread of the proxy."""

        async def act() -> None:
            action()

        asyncio.run_coroutine_threadsafe(act(), self._loop).result(MAX_WAIT_S)

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(MAX_WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(MAX_WAIT_S)
        self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for line in self.lines:
            line._cut()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
