"""The line between a process and Redis: every command passes here, and here it can go wrong.

    sent ──▸ point ──▸ executed ──▸ point ──▸ answered
          │ lost, killed          │ answer lost, killed, paused

A pipeline is one round trip; other processes' commands may come between its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cache
from typing import Any, Protocol

import redis
from redis.client import Pipeline

from simulation.scheduler import Scheduler

Words = tuple[Any, ...]


class Server(Protocol):
    def execute(self, *words: Any) -> Any: ...

    def news(self, words: Words) -> Callable[[], bool]:
        """Whether a read with these args would return something now."""
        ...


class Mishaps(Protocol):
    """What may go wrong on a line; each raises, or lets time pass, or does nothing."""

    def check_line(self) -> None: ...

    def before(self, words: Words) -> None: ...

    def after(self, words: Words, answer: Any) -> None: ...


class Line:
    def __init__(self, scheduler: Scheduler, server: Server, mishaps: Mishaps) -> None:
        self._scheduler, self._server, self._mishaps = scheduler, server, mishaps

    def send(self, commands: Sequence[Words]) -> list[Any]:
        """The answers to commands that travel together; an error is the answer to one of them."""
        self._scheduler.point()
        self._mishaps.before(commands[0])
        answers = []
        for at, words in enumerate(commands):
            if at:
                self._scheduler.point()
            answers.append(self._execute(words))
        self._mishaps.after(commands[-1], answers[-1])
        self._scheduler.point()
        return answers

    def _execute(self, words: Words) -> Any:
        try:
            answer = self._server.execute(*_plain(words))
            block_ms = _blocks(words)
            if answer is None and block_ms:
                self._scheduler.wait(self._server.news(words), block_ms, is_idle=True)
                self._mishaps.check_line()
                answer = self._server.execute(*_plain(words))
        except redis.exceptions.ResponseError as error:
            return error
        return answer


def _plain(words: Words) -> Words:
    """The words of a command one by one: a client joins the two words of some names."""
    first = words[0].decode() if isinstance(words[0], bytes) else str(words[0])
    return (*first.split(" "), *words[1:]) if " " in first else (first, *words[1:])


def _blocks(words: Words) -> int:
    if words[0] != "XREADGROUP":
        return 0
    given = [word.decode() if isinstance(word, bytes) else word for word in words]
    return int(given[given.index("BLOCK") + 1]) if "BLOCK" in given else 0


class LineClient(redis.Redis):
    """A client whose commands go by a line, in place of a socket."""

    line: Line
    decodes: bool

    @staticmethod
    def on(line: Line, decodes: bool = True) -> LineClient:
        """Copied from one that is like it, as it costs much to make one."""
        client = copy(_unconnected(decodes))
        client.line, client.decodes = line, decodes
        return client

    def execute_command(self, *args: Any, **options: Any) -> Any:
        return _answer(self, args, options, self.line.send([args])[0])

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Any:
        return LinePipeline(self, transaction)


@cache
def _unconnected(decodes: bool) -> LineClient:
    return LineClient(protocol=2, decode_responses=decodes)


class LinePipeline(Pipeline):
    def __init__(self, client: LineClient, transaction: bool) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, transaction, None)
        self._client = client

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        stack, self.command_stack = self.command_stack, []
        if not stack:
            return []
        found = self._client.line.send([args for args, _ in stack])
        answers = []
        for (args, options), answer in zip(stack, found, strict=True):
            try:
                answers.append(_answer(self._client, args, options, answer))
            except redis.exceptions.ResponseError as error:
                if raise_on_error:
                    raise
                answers.append(error)
        return answers


def _answer(client: LineClient, args: Words, options: dict[str, Any], answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    if not client.decodes:
        answer = _bytes(answer)
    callback = client.response_callbacks.get(args[0])  # type: ignore[no-untyped-call]
    if callback is None:
        return answer
    given = {name: value for name, value in options.items() if name not in ("keys", "NEVER_DECODE")}
    return callback(answer, **given)


def _bytes(answer: Any) -> Any:
    if isinstance(answer, list):
        return [_bytes(one) for one in answer]
    return answer.encode() if isinstance(answer, str) else answer
