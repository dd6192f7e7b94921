"""The sorted sets of the small Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.exceptions import ResponseError


class SortedSetCommands:
    def _sorted_set(self, key: str) -> dict[str, float]:
        raise NotImplementedError

    def _make_sorted_set(self, key: str) -> dict[str, float]:
        raise NotImplementedError

    def _tidy(self, key: str) -> None:
        raise NotImplementedError

    def on_zadd(self, key: str, *words: str) -> int:
        at, options = 0, set[str]()
        while words[at].upper() in ("NX", "XX", "CH", "GT", "LT"):
            options.add(words[at].upper())
            at += 1
        kept, added, changed = self._sorted_set(key), 0, 0
        for score, member in zip(words[at::2], words[at + 1 :: 2], strict=True):
            is_there = member in kept
            if (is_there and "NX" in options) or (not is_there and "XX" in options):
                continue
            wanted = _number(score)
            changed += is_there and kept[member] != wanted
            added += not is_there
            if not kept:
                kept = self._make_sorted_set(key)
            kept[member] = wanted
        return added + changed if "CH" in options else added

    def on_zrem(self, key: str, *members: str) -> int:
        kept = self._sorted_set(key)
        gone = sum(1 for member in members if kept.pop(member, None) is not None)
        self._tidy(key)
        return gone

    def on_zcard(self, key: str) -> int:
        return len(self._sorted_set(key))

    def on_zscore(self, key: str, member: str) -> str | None:
        found = self._sorted_set(key).get(member)
        return None if found is None else shown(found)

    def on_zmscore(self, key: str, *members: str) -> list[str | None]:
        return [self.on_zscore(key, member) for member in members]

    def on_zrange(self, key: str, first: str, last: str, *options: str) -> list[str]:
        members = self._in_order(key)
        start, end = (int(at) + len(members) if int(at) < 0 else int(at) for at in (first, last))
        return _answer(members[max(start, 0) : end + 1], options)

    def on_zrevrange(self, key: str, first: str, last: str, *options: str) -> list[str]:
        members = self._in_order(key)[::-1]
        start, end = (int(at) + len(members) if int(at) < 0 else int(at) for at in (first, last))
        return _answer(members[max(start, 0) : end + 1], options)

    def on_zrangebyscore(self, key: str, low: str, high: str, *options: str) -> list[str]:
        return _answer(_limited(self._between(key, low, high), options), options)

    def on_zrevrangebyscore(self, key: str, high: str, low: str, *options: str) -> list[str]:
        return _answer(_limited(self._between(key, low, high)[::-1], options), options)

    def on_zremrangebyscore(self, key: str, low: str, high: str) -> int:
        found = self._between(key, low, high)
        return self.on_zrem(key, *(member for member, _ in found)) if found else 0

    def on_zremrangebyrank(self, key: str, first: str, last: str) -> int:
        found = self.on_zrange(key, first, last)
        return self.on_zrem(key, *found) if found else 0

    def on_zscan(self, key: str, cursor: str, *options: str) -> list[Any]:
        from fnmatch import fnmatchcase

        given = dict(zip(map(str.upper, options[::2]), options[1::2], strict=True))
        found = [pair for pair in self._in_order(key) if fnmatchcase(pair[0], given.get("MATCH", "*"))]
        return ["0", _answer(found, ["WITHSCORES"])]

    def _in_order(self, key: str) -> list[tuple[str, float]]:
        return sorted(self._sorted_set(key).items(), key=lambda pair: (pair[1], pair[0]))

    def _between(self, key: str, low: str, high: str) -> list[tuple[str, float]]:
        lowest, highest = _number(low.removeprefix("(")), _number(high.removeprefix("("))
        return [
            (member, score)
            for member, score in self._in_order(key)
            if (score > lowest if low.startswith("(") else score >= lowest)
            and (score < highest if high.startswith("(") else score <= highest)
        ]


def shown(score: float) -> str:
    """A score as Redis writes it."""
    return f"{score:.17g}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ResponseError("ERR value is not a valid float") from None


def _limited(found: list[tuple[str, float]], options: Sequence[str]) -> list[tuple[str, float]]:
    given = [option.upper() for option in options]
    if "LIMIT" not in given:
        return found
    at = given.index("LIMIT")
    offset, count = int(options[at + 1]), int(options[at + 2])
    return found[offset:] if count < 0 else found[offset : offset + count]


def _answer(found: list[tuple[str, float]], options: Any) -> list[str]:
    if any(option.upper() == "WITHSCORES" for option in options):
        return [word for member, score in found for word in (member, shown(score))]
    return [member for member, _ in found]
