"""The Lua scripts, each in a file of its own beside this one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from itertools import islice
from typing import Any, TypeVar

import redis

from orchestrator.redis_rq.connection import Client

Call = tuple[Sequence[str], Sequence[Any]]
"""The keys and the arguments of one call."""

MAX_SENDS = 3
"""A server may forget a script between being sent it and being asked to run it: it has just restarted."""


class Script:
    """A script by its name, with the functions that it shares with others before it; sent whole only when the
    server does not know it yet."""

    def __init__(self, client: Client, name: str, *shared: str) -> None:
        self._client = client
        self._text = "".join(text_of(one) for one in (*shared, name))
        self.sha = sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        return self.run([(keys, args)])[0]

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """All calls in one round trip; each is atomic by itself. The first error is raised after all ran."""
        results = self._send(calls)
        for _ in range(MAX_SENDS):
            unknown = [at for at, result in enumerate(results) if _is_unknown(result)]
            if not unknown:
                break
            self._client.script_load(self._text)
            again = self._send([calls[at] for at in unknown])
            for at, result in zip(unknown, again, strict=True):
                results[at] = result
        _raise_first(results)
        return results

    def _send(self, calls: Sequence[Call]) -> list[Any]:
        if len(calls) == 1:  # without a pipeline, which takes longer than the rest of a short call
            [(keys, args)] = calls
            try:
                return [self._client.evalsha(self.sha, len(keys), *keys, *args)]
            except redis.exceptions.NoScriptError as error:
                return [error]
        with self._client.pipeline(transaction=False) as pipe:
            for keys, args in calls:
                pipe.evalsha(self.sha, len(keys), *keys, *args)
            return list(pipe.execute(raise_on_error=False))


@cache
def text_of(name: str) -> str:
    """A script as it is written; read once, as every store has its own."""
    return files(f"{__package__}.lua").joinpath(f"{name}.lua").read_text()


def _is_unknown(result: Any) -> bool:
    return isinstance(result, redis.exceptions.NoScriptError)


def _raise_first(results: Iterable[Any]) -> None:
    for result in results:
        if isinstance(result, Exception):
            raise result


T = TypeVar("T")


def batches(found: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(found)
    while batch := list(islice(rest, size)):
        yield batch
