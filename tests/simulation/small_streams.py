"""The streams of the small Redis, with their groups and what is pending in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from redis.exceptions import ResponseError

Id = tuple[int, int]
LAST: Id = (2**64 - 1, 2**64 - 1)


@dataclass(slots=True)
class Pending:
    consumer: str
    delivered_ms: int
    count: int


@dataclass(slots=True)
class Group:
    last: Id
    pending: dict[Id, Pending] = field(default_factory=dict)
    seen_ms: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Group:
        pending = {entry: replace(one) for entry, one in self.pending.items()}
        return Group(self.last, pending, dict(self.seen_ms))

    def has_answered(self, entry: str) -> bool:
        return _id(entry) <= self.last and _id(entry) not in self.pending


@dataclass(slots=True)
class Stream:
    """It is there, with its last id and its groups, even when it has no entries."""

    entries: dict[Id, list[str]] = field(default_factory=dict)
    last: Id = (0, 0)
    groups: dict[str, Group] = field(default_factory=dict)

    def copy(self) -> Stream:
        return Stream(
            dict(self.entries), self.last, {name: group.copy() for name, group in self.groups.items()}
        )

    def unread(self, group: str) -> list[Id]:
        last = self.groups[group].last
        return [entry for entry in self.entries if entry > last]


class StreamCommands:
    clock: Callable[[], int]

    def _stream(self, key: str) -> Stream | None:
        raise NotImplementedError

    def _make_stream(self, key: str) -> Stream:
        raise NotImplementedError

    # ---- entries

    def on_xadd(self, key: str, *words: str) -> str | None:
        at = 0
        if words[0].upper() == "NOMKSTREAM":
            if self._stream(key) is None:
                return None
            at = 1
        if words[at].upper() == "MAXLEN":  # more dead letters than are kept never come together here
            at += 3 if words[at + 1] in ("~", "=") else 2
        stream = self._make_stream(key)
        if stream.last == LAST:
            raise ResponseError("ERR The stream has exhausted the last possible ID, unable to add more items")
        entry = self._next_id(stream, words[at])
        if entry <= stream.last:
            raise ResponseError(
                "ERR The ID specified in XADD is equal or smaller than the target stream top item"
            )
        stream.entries[entry] = list(words[at + 1 :])
        stream.last = entry
        return _shown(entry)

    def _next_id(self, stream: Stream, wanted: str) -> Id:
        if wanted != "*":
            return _id(wanted)
        now_ms = self.clock()
        return (now_ms, 0) if now_ms > stream.last[0] else (stream.last[0], stream.last[1] + 1)

    def on_xlen(self, key: str) -> int:
        return len(_entries(self._stream(key)))

    def on_xrange(self, key: str, first: str, last: str, *options: str) -> list[Any]:
        found = _within(self._stream(key), first, last)
        return found[: int(options[1])] if options else found

    def on_xrevrange(self, key: str, last: str, first: str, *options: str) -> list[Any]:
        found = _within(self._stream(key), first, last)[::-1]
        return found[: int(options[1])] if options else found

    def on_xdel(self, key: str, *ids: str) -> int:
        entries = _entries(self._stream(key))
        return sum(1 for one in ids if entries.pop(_id(one), None) is not None)

    def on_xtrim(self, key: str, *words: str) -> int:
        lowest, entries = _id(words[-1]), _entries(self._stream(key))
        gone = [entry for entry in entries if entry < lowest]
        for entry in gone:
            del entries[entry]
        return len(gone)

    def on_xsetid(self, key: str, last: str) -> str:
        stream = self._make_stream(key)
        if stream.entries and _id(last) < max(stream.entries):
            raise ResponseError("ERR The ID specified in XSETID is smaller than the target stream top item")
        stream.last = _id(last)
        return "OK"

    def on_xinfo_stream(self, key: str) -> list[Any]:
        stream = self._stream(key)
        if stream is None:
            raise ResponseError("ERR no such key")
        ends = ("first-entry", None, "last-entry", None)
        return ["length", len(stream.entries), "last-generated-id", _shown(stream.last), *ends]

    # ---- groups

    def on_xgroup_setid(self, key: str, name: str, last: str) -> str:
        self._group(key, name).last = _id(last)
        return "OK"

    def on_xgroup_create(self, key: str, name: str, first: str, *options: str) -> str:
        if self._stream(key) is None and not options:
            raise ResponseError("ERR The XGROUP subcommand requires the key to exist.")
        stream = self._make_stream(key)
        if name in stream.groups:
            raise ResponseError("BUSYGROUP Consumer Group name already exists")
        stream.groups[name] = Group(stream.last if first == "$" else _id(first))
        return "OK"

    def on_xgroup_delconsumer(self, key: str, name: str, consumer: str) -> int:
        group = self._group(key, name)
        gone = [entry for entry, one in group.pending.items() if one.consumer == consumer]
        for entry in gone:
            del group.pending[entry]
        group.seen_ms.pop(consumer, None)
        return len(gone)

    def on_xinfo_groups(self, key: str) -> list[Any]:
        stream = self._stream(key)
        if stream is None:
            raise ResponseError("ERR no such key")
        return [
            [
                *("name", name, "consumers", len(group.seen_ms), "pending", len(group.pending)),
                *("last-delivered-id", _shown(group.last)),
                *("entries-read", None, "lag", len(stream.unread(name))),
            ]
            for name, group in stream.groups.items()
        ]

    def on_xinfo_consumers(self, key: str, name: str) -> list[Any]:
        group, now_ms = self._group(key, name), self.clock()
        return [
            [
                *(
                    "name",
                    consumer,
                    "pending",
                    sum(one.consumer == consumer for one in group.pending.values()),
                ),
                *("idle", now_ms - seen_ms),
            ]
            for consumer, seen_ms in sorted(group.seen_ms.items())
        ]

    def on_xreadgroup(self, *words: str) -> list[Any] | None:
        """Only new entries, without blocking: the line waits for them."""
        at = next(n for n, word in enumerate(words) if word.upper() == "STREAMS")
        given = [word.upper() for word in words[:at]]
        count = int(words[given.index("COUNT") + 1]) if "COUNT" in given else None
        name, consumer = words[1], words[2]
        keys = words[at + 1 : at + 1 + (len(words) - at - 1) // 2]
        answer = []
        groups = [(key, self._group(key, name, "XREADGROUP")) for key in keys]
        for key, group in groups:
            found = self._read(key, group, consumer, name, count)
            if found:
                answer.append([key, found])
        return answer or None

    def _read(self, key: str, group: Group, consumer: str, name: str, count: int | None) -> list[Any]:
        stream, now_ms = self._make_stream(key), self.clock()
        group.seen_ms[consumer] = now_ms
        taken = stream.unread(name)[:count]
        for entry in taken:
            group.pending[entry] = Pending(consumer, now_ms, 1)
            group.last = entry
        return [[_shown(entry), list(stream.entries[entry])] for entry in taken]

    def on_xack(self, key: str, name: str, *ids: str) -> int:
        stream = self._stream(key)
        if stream is None or name not in stream.groups:
            return 0
        pending = stream.groups[name].pending
        return sum(1 for one in ids if pending.pop(_id(one), None) is not None)

    def on_xpending(self, key: str, name: str, *words: str) -> list[Any]:
        pending, now_ms = self._group(key, name, "XPENDING").pending, self.clock()
        if not words:
            owners: dict[str, int] = {}
            for one in pending.values():
                owners[one.consumer] = owners.get(one.consumer, 0) + 1
            if not pending:
                return [0, None, None, None]
            return [
                len(pending),
                _shown(min(pending)),
                _shown(max(pending)),
                [[consumer, str(count)] for consumer, count in sorted(owners.items())],
            ]
        idle_ms = 0
        if words[0].upper() == "IDLE":
            idle_ms, words = int(words[1]), words[2:]
        first, last, count = words[:3]
        consumer = words[3] if len(words) > 3 else None
        found = [
            [_shown(entry), one.consumer, max(now_ms - one.delivered_ms, 0), one.count]
            for entry, one in sorted(pending.items())
            if _is_within(entry, first, last) and consumer in (None, one.consumer)
            if not idle_ms or now_ms - one.delivered_ms >= idle_ms
        ]
        return found[: int(count)]

    def on_xclaim(self, key: str, name: str, consumer: str, min_idle_ms: str, *words: str) -> list[Any]:
        ids = [word for word in words if word != "JUSTID"]
        is_bare = len(ids) < len(words)
        group, now_ms, stream = self._group(key, name), self.clock(), self._make_stream(key)
        group.seen_ms[consumer] = now_ms
        claimed = []
        for entry in map(_id, ids):
            one = group.pending.get(entry)
            if one is None or 0 < int(min_idle_ms) > now_ms - one.delivered_ms:
                continue
            if entry not in stream.entries:
                del group.pending[entry]  # as Redis 7 does with what was deleted
                continue
            group.pending[entry] = Pending(consumer, now_ms, one.count + (not is_bare))
            claimed.append(_shown(entry) if is_bare else [_shown(entry), list(stream.entries[entry])])
        return claimed

    def _group(self, key: str, name: str, command: str = "") -> Group:
        stream = self._stream(key)
        if stream is None or name not in stream.groups:
            where = " in XREADGROUP with GROUP option" if command == "XREADGROUP" else ""
            raise ResponseError(f"NOGROUP No such key '{key}' or consumer group '{name}'{where}")
        return stream.groups[name]


def _entries(stream: Stream | None) -> dict[Id, list[str]]:
    return {} if stream is None else stream.entries


def _id(text: str) -> Id:
    ms, _, number = text.partition("-")
    return int(ms), int(number or 0)


def _shown(entry: Id) -> str:
    return f"{entry[0]}-{entry[1]}"


def _is_within(entry: Id, first: str, last: str) -> bool:
    low = (0, 0) if first == "-" else _id(first.removeprefix("("))
    high = LAST if last == "+" else _id(last) if "-" in last else (int(last), 2**63)
    return (entry > low if first.startswith("(") else entry >= low) and entry <= high


def _within(stream: Stream | None, first: str, last: str) -> list[Any]:
    return [
        [_shown(entry), list(fields)]
        for entry, fields in _entries(stream).items()
        if _is_within(entry, first, last)
    ]
