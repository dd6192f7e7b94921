"""The scripts of the small Redis: in Lua 5.1, with what Redis gives to scripts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import sha1
from typing import Any

from lupa import lua51
from redis.exceptions import NoScriptError, ResponseError


class Scripts:
    def __init__(self, execute: Callable[..., Any]) -> None:
        self._execute = execute
        self._known: set[str] = set()

    def load(self, text: str) -> str:
        sha = sha1(text.encode(), usedforsecurity=False).hexdigest()
        self._known.add(sha)
        if sha not in LUA.functions:
            LUA.compile(sha, text)
        return sha

    def flush(self) -> None:
        self._known.clear()

    def run(self, sha: str, keys: Sequence[str], args: Sequence[str]) -> Any:
        if sha not in self._known:
            raise NoScriptError("NOSCRIPT No matching script. Please use EVAL.")
        return LUA.run(sha, keys, args, self._execute)


class Lua:
    """One for all servers of a process, which take turns: compiling costs more than running."""

    def __init__(self) -> None:
        self._runtime = lua51.LuaRuntime(unpack_returned_tuples=False, register_eval=False)
        self._table: Callable[[Any], Any] = self._runtime.table_from
        self._execute: Callable[..., Any] = _no_server
        self.functions: dict[str, Any] = {}
        given = self._runtime.globals()
        given.redis = self._table({"call": self._call, "pcall": self._pcall, "sha1hex": _sha1hex})
        given.cjson = self._table({"decode": self._decode, "encode": self._encode})

    def compile(self, sha: str, text: str) -> None:
        self.functions[sha] = self._runtime.eval(f"function(KEYS, ARGV) {text}\nend")

    def run(self, sha: str, keys: Sequence[str], args: Sequence[str], execute: Callable[..., Any]) -> Any:
        self._execute = execute
        return _reply(self.functions[sha](self._table(keys), self._table(args)))

    def _call(self, *words: Any) -> Any:
        return self._given(self._execute(*words))

    def _pcall(self, *words: Any) -> Any:
        try:
            return self._call(*words)
        except ResponseError as error:
            return self._table({"err": str(error)})

    def _given(self, reply: Any) -> Any:
        """A reply as scripts see it: nothing is false."""
        if type(reply) is list:
            return self._table([self._given(one) for one in reply])
        return False if reply is None else reply

    def _decode(self, text: str) -> Any:
        return self._runtime.table_from({"it": json.loads(text)}, recursive=True).it

    def _encode(self, table: Any) -> str:
        return json.dumps(dict(table), separators=(",", ":"))


def _reply(value: Any) -> Any:
    """What a script returns, as its caller sees it."""
    if lua51.lua_type(value) == "table":
        if value["err"] is not None:
            raise ResponseError(value["err"])
        found: list[Any] = []
        while (one := value[len(found) + 1]) is not None:
            found.append(_reply(one))
        return found
    if isinstance(value, bool):
        return 1 if value else None
    return int(value) if isinstance(value, float) else value


def _sha1hex(text: str) -> str:
    return sha1(text.encode(), usedforsecurity=False).hexdigest()


def _no_server(*args: Any) -> Any:
    raise AssertionError("no script runs")


LUA = Lua()
