"""A Redis small enough to be taken apart: the commands that the orchestrator uses, in one process.

    server = SmallRedis(clock)
    server.execute("XADD", "s", "*", "a", "1")     # replies as RESP2 has them, with text for bytes
    before = server.copy()                         # server.restore(before): what a failover loses

A simulation needs what no server gives: a clock that is told the time, a state that can be put back, and a
place between any two commands. Scripts run in Lua 5.1, as on a server. What is answered here is compared
with the answers of a real one (test_small_redis.py).
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from redis.exceptions import ResponseError

from simulation.script_errors import ERROR, ScriptError
from simulation.small_scripts import Scripts
from simulation.small_sets import SortedSetCommands
from simulation.small_streams import Stream, StreamCommands

WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
CONTAINERS = ("XGROUP", "XINFO", "SCRIPT")

_T = TypeVar("_T")


class SortedSet(dict[str, float]):
    """Members by name; they are sorted when they are read, because sets are small here."""


class SmallRedis(StreamCommands, SortedSetCommands):
    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self._values: dict[str, Any] = {}
        self._expires: dict[str, int] = {}
        self._scripts = Scripts(self._execute_in_script)
        self.script_error: ScriptError | None = None
        self._commands: dict[str, Callable[..., Any]] = {
            name.removeprefix("on_").replace("_", " ").upper(): getattr(self, name)
            for name in dir(self)
            if name.startswith("on_")
        }

    def execute(self, *words: Any) -> Any:
        """One command, whole; its errors are raised as a client raises them."""
        name, *rest = [word if type(word) is str else _text(word) for word in words]
        known = self._commands.get(name)
        if known is None:
            name = name.upper()
            if name in CONTAINERS:
                name = f"{name} {rest.pop(0).upper()}"
            known = self._commands.get(name)
        if known is None:
            raise ResponseError(f"ERR unknown command '{name}'")
        return known(*rest)

    def _execute_in_script(self, *words: Any) -> Any:
        if self.script_error is not None and self.script_error.strikes(
            words[0], words[1] if words[1:] else ""
        ):
            raise ResponseError(ERROR)
        return self.execute(*words)

    # ---- the whole

    def copy(self) -> tuple[dict[str, Any], dict[str, int]]:
        return {key: _copied(value) for key, value in self._values.items()}, dict(self._expires)

    def restore(self, kept: tuple[dict[str, Any], dict[str, int]]) -> None:
        self._values = {key: _copied(value) for key, value in kept[0].items()}
        self._expires = dict(kept[1])

    def forget_scripts(self) -> None:
        self._scripts.flush()

    def keys(self, prefix: str = "") -> list[str]:
        return sorted(key for key in list(self._values) if key.startswith(prefix) and self._has(key))

    def look(self, key: str, kind: type[_T]) -> _T:
        """What is kept under a key, to be read and not changed; an empty one when there is nothing."""
        found = self._find(key, kind)
        return kind() if found is None else found

    def is_behind(self, stream: str, group: str) -> bool:
        """Whether a stream has entries that a group was not given."""
        found = self._find(stream, Stream)
        if found is None:
            return False
        return found.last > found.groups[group].last if group in found.groups else bool(found.entries)

    def pending_ms(self, stream: str, group: str) -> list[int]:
        """How long entries of a stream are pending."""
        found = self._find(stream, Stream)
        if found is None or group not in found.groups:
            return []
        now_ms = self.clock()
        return [max(now_ms - one.delivered_ms, 0) for one in found.groups[group].pending.values()]

    def is_answered(self, stream: str, group: str, entry: str) -> bool:
        """Whether a group was given an entry and has acknowledged it."""
        found = self._find(stream, Stream)
        return found is not None and group in found.groups and found.groups[group].has_answered(entry)

    # ---- keys

    def _has(self, key: str) -> bool:
        if key in self._expires and self._expires[key] <= self.clock():
            self._values.pop(key, None)
            del self._expires[key]
        return key in self._values

    def _find(self, key: str, kind: type[_T]) -> _T | None:
        found: Any = self._values.get(key)
        if found is None or not self._has(key):
            return None
        if type(found) is not kind:
            raise ResponseError(WRONG_TYPE)
        return found

    def _make(self, key: str, kind: type[_T]) -> _T:
        found = self._find(key, kind)
        if found is None:
            found = self._values[key] = kind()
        return found

    def _tidy(self, key: str) -> None:
        """What has become empty is gone, but for streams."""
        if not self._values.get(key, True):
            self.on_del(key)

    def on_del(self, *keys: str) -> int:
        gone = {key for key in keys if self._has(key)}
        for key in gone:
            self._values.pop(key, None)
            self._expires.pop(key, None)
        return len(gone)

    def on_exists(self, *keys: str) -> int:
        values = self._values
        return sum(1 for key in keys if key in values and self._has(key))

    def on_type(self, key: str) -> str:
        if not self._has(key):
            return "none"
        kinds = {str: "string", dict: "hash", list: "list", set: "set", Stream: "stream", SortedSet: "zset"}
        return kinds[type(self._values[key])]

    def on_expire(self, key: str, seconds: str) -> int:
        return self.on_pexpire(key, str(int(seconds) * 1000))

    def on_pexpire(self, key: str, ms: str) -> int:
        if not self._has(key):
            return 0
        self._expires[key] = self.clock() + int(ms)
        return 1

    def on_persist(self, key: str) -> int:
        return int(self._has(key) and self._expires.pop(key, None) is not None)

    def on_pttl(self, key: str) -> int:
        if not self._has(key):
            return -2
        return self._expires[key] - self.clock() if key in self._expires else -1

    def on_ttl(self, key: str) -> int:
        left_ms = self.on_pttl(key)
        return left_ms if left_ms < 0 else (left_ms + 500) // 1000

    def on_scan(self, cursor: str, *options: str) -> list[Any]:
        """Everything at once."""
        given = dict(zip(map(str.upper, options[::2]), options[1::2], strict=True))
        pattern = given.get("MATCH", "*")
        return ["0", [key for key in self.keys() if fnmatchcase(key, pattern)]]

    def on_time(self) -> list[str]:
        now_ms = self.clock()
        return [str(now_ms // 1000), str(now_ms % 1000 * 1000)]

    def on_publish(self, channel: str, message: str) -> int:
        return 0

    # ---- strings

    def on_get(self, key: str) -> str | None:
        return self._find(key, str)

    def on_set(self, key: str, value: str, *options: str) -> str:
        self.on_del(key)
        self._values[key] = value
        if options:
            unit, amount = options
            self._expires[key] = self.clock() + int(amount) * {"EX": 1000, "PX": 1}[unit.upper()]
        return "OK"

    def on_setnx(self, key: str, value: str) -> int:
        return 0 if self._has(key) else int(self.on_set(key, value) == "OK")

    # ---- hashes

    def on_hset(self, key: str, *pairs: str) -> int:
        kept = self._make(key, dict)
        before = len(kept)
        kept.update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(kept) - before

    def on_hsetnx(self, key: str, field: str, value: str) -> int:
        return self.on_hset(key, field, value) if field not in self.look(key, dict) else 0

    def on_hget(self, key: str, field: str) -> str | None:
        return self.look(key, dict).get(field)

    def on_hmget(self, key: str, *fields: str) -> list[str | None]:
        kept = self.look(key, dict)
        return [kept.get(field) for field in fields]

    def on_hgetall(self, key: str) -> list[str]:
        return [word for pair in self.look(key, dict).items() for word in pair]

    def on_hkeys(self, key: str) -> list[str]:
        return list(self.look(key, dict))

    def on_hlen(self, key: str) -> int:
        return len(self.look(key, dict))

    def on_hexists(self, key: str, field: str) -> int:
        return int(field in self.look(key, dict))

    def on_hdel(self, key: str, *fields: str) -> int:
        kept = self.look(key, dict)
        gone = sum(1 for field in fields if kept.pop(field, None) is not None)
        self._tidy(key)
        return gone

    def on_hincrby(self, key: str, field: str, amount: str) -> int:
        total = int(self.look(key, dict).get(field, 0)) + int(amount)
        self.on_hset(key, field, str(total))
        return total

    # ---- lists and sets

    def on_rpush(self, key: str, *values: str) -> int:
        kept = self._make(key, list)
        kept += values
        return len(kept)

    def on_lpop(self, key: str, count: str | None = None) -> Any:
        kept = self.look(key, list)
        if not kept:
            return None
        taken = [kept.pop(0) for _ in range(min(int(count or 1), len(kept)))]
        self._tidy(key)
        return taken[0] if count is None else taken

    def on_lrange(self, key: str, first: str, last: str) -> list[str]:
        return _slice(self.look(key, list), first, last)

    def on_ltrim(self, key: str, first: str, last: str) -> str:
        kept = self.look(key, list)
        kept[:] = _slice(kept, first, last)
        self._tidy(key)
        return "OK"

    def on_lindex(self, key: str, at: str) -> str | None:
        found = _slice(self.look(key, list), at, at)
        return found[0] if found else None

    def on_llen(self, key: str) -> int:
        return len(self.look(key, list))

    def on_sadd(self, key: str, *members: str) -> int:
        kept = self._make(key, set)
        before = len(kept)
        kept.update(members)
        return len(kept) - before

    def on_srem(self, key: str, *members: str) -> int:
        kept = self.look(key, set)
        gone = len(kept & set(members))
        kept.difference_update(members)
        self._tidy(key)
        return gone

    def on_srandmember(self, key: str, count: str) -> list[str]:
        """The first ones: a simulation has its own chance."""
        return sorted(self.look(key, set))[: int(count)]

    def on_smembers(self, key: str) -> list[str]:
        return sorted(self.look(key, set))

    # ---- sorted sets

    def _sorted_set(self, key: str) -> dict[str, float]:
        return self.look(key, SortedSet)

    def _make_sorted_set(self, key: str) -> dict[str, float]:
        return self._make(key, SortedSet)

    # ---- streams

    def _stream(self, key: str) -> Stream | None:
        return self._find(key, Stream)

    def _make_stream(self, key: str) -> Stream:
        return self._make(key, Stream)

    # ---- scripts

    def on_script_load(self, text: str) -> str:
        return self._scripts.load(text)

    def on_evalsha(self, sha: str, count: str, *words: str) -> Any:
        return self._scripts.run(sha, words[: int(count)], words[int(count) :])


def _text(word: Any) -> str:
    """An argument as a client or a script sends it; Lua has one kind of number."""
    if isinstance(word, bytes):
        return word.decode()
    return f"{word:.17g}" if isinstance(word, float) else str(word)


def _copied(value: Any) -> Any:
    return (
        value if isinstance(value, str) else value.copy() if isinstance(value, Stream) else type(value)(value)
    )


def _slice(values: list[str], first: str, last: str) -> list[str]:
    start, end, length = int(first), int(last), len(values)
    start = max(start + length if start < 0 else start, 0)
    end = end + length if end < 0 else end
    return values[start : end + 1]
