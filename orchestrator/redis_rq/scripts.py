"""The Lua scripts. Each is a file of lua/, or several that share functions."""

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
"""How often a script is loaded again: the server may restart, and forget it, between loading and running."""


class Script:
    """A script by its file name, after the files that define the functions it shares with other scripts. The
    text is sent only when the server does not have it."""

    def __init__(self, client: Client, name: str, *shared: str) -> None:
        self._client = client
        self._text = "".join(script_text(part) for part in (*shared, name))
        self.sha = sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        return self.run([(keys, args)])[0]

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Run all calls in one round trip; each is atomic. The first error is raised after all have run."""
        results = self._send(calls)
        for _ in range(MAX_SENDS):
            missing = [at for at, result in enumerate(results) if _is_unknown(result)]
            if not missing:
                break
            self._client.script_load(self._text)
            retried = self._send([calls[at] for at in missing])
            for at, result in zip(missing, retried, strict=True):
                results[at] = result
        _raise_first(results)
        return results

    def _send(self, calls: Sequence[Call]) -> list[Any]:
        if len(calls) == 1:  # without a pipeline: it would take longer than the rest of a short call
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
def script_text(name: str) -> str:
    """The text of a file; cached, because every store has its own Script objects."""
    return files(f"{__package__}.lua").joinpath(f"{name}.lua").read_text()


def _is_unknown(result: Any) -> bool:
    return isinstance(result, redis.exceptions.NoScriptError)


def _raise_first(results: Iterable[Any]) -> None:
    for result in results:
        if isinstance(result, Exception):
            raise result


T = TypeVar("T")


def batches(values: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(values)
    while batch := list(islice(rest, size)):
        yield batch
