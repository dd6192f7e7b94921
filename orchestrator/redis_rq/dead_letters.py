"""Dead letters: rejected events with their reasons. They can be read, replayed or dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from orchestrator.application.errors import OrchestratorError
from orchestrator.redis_rq.commit_args import flatten_fields
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.json_codec import loads
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.letter_limits import read_cut
from orchestrator.redis_rq.scripts import Script

READ_BATCH_SIZE = 50
"""A letter has up to 150 kB."""
MAX_LETTERS_READ = 1_000
"""A page of letters ends after so many, even if few of them have the wanted reason."""
MAX_REPLAYED_FIELDS = 1_000
"""A script cannot pass on many thousands of args. The largest event has a dozen fields."""


class DeadLetterNotFound(OrchestratorError):
    exit_code = 2

    def __init__(self, entry_id: str) -> None:
        super().__init__(f"there is no dead letter {entry_id!r}")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A rejected event. `entry` is the id of the letter; `source` is the id of the event in its `stream`."""

    entry: str
    reason: str
    stream: str
    source: str
    fields: Mapping[str, str]
    truncated_fields: Sequence[str] = ()
    """The fields of which a part is missing."""


@dataclass(frozen=True, slots=True)
class LetterPage:
    """Some letters, and the entry to continue after; None at the end."""

    letters: list[DeadLetter]
    cursor: str | None = None


class DeadLetters:
    def __init__(self, client: Client, keys: Keys | None = None) -> None:
        self._client, self._keys = client, keys or Keys()
        self._replay = Script(client, "replay_dead_letter")

    def newest(self, reason: str = "", after: str | None = None) -> Iterator[DeadLetter]:
        """All letters, the newest first, or those that follow one; with a text, those whose reason contains
        it."""
        return (letter for letter in self._all(after) if reason.lower() in letter.reason.lower())

    def page(self, reason: str = "", limit: int = 50, after: str | None = None) -> LetterPage:
        """A page of letters, the newest first. It may end early, if few of the letters have the reason."""
        found: list[DeadLetter] = []
        last = after
        for number, letter in enumerate(self._all(after), 1):
            if reason.lower() in letter.reason.lower():
                if len(found) == limit:
                    return LetterPage(found, last)
                found.append(letter)
            last = letter.entry
            if number == MAX_LETTERS_READ:
                return LetterPage(found, last)
        return LetterPage(found)

    def count(self) -> int:
        with translate_errors():
            return int(self._client.xlen(self._keys.dead_letters))

    def _all(self, after: str | None) -> Iterator[DeadLetter]:
        before = "+" if after is None else f"({after}"
        while entries := self._entries(before):
            for entry, fields in entries:
                yield _letter(entry, fields)
            before = f"({entries[-1][0]}"

    def get(self, entry: str) -> DeadLetter:
        """One letter; raises DeadLetterNotFound."""
        found: Any = []
        try:
            with translate_errors():
                found = self._client.xrange(self._keys.dead_letters, entry, entry)
        except ResponseError:
            pass  # this is not an entry id
        if not found:
            raise DeadLetterNotFound(entry)
        return _letter(*found[0])

    def problem(self, letter: DeadLetter) -> str | None:
        """Why a letter cannot be replayed; None when it can."""
        if not letter.fields:
            return "its event is missing or unreadable"
        if letter.stream not in (self._keys.starts, *map(self._keys.events, range(self._keys.partitions))):
            return f"no coordinator reads its stream {letter.stream!r}"
        if letter.truncated_fields:
            names = ", ".join(letter.truncated_fields)
            return f"only the beginning of {names} was kept: publish the event again from its source"
        if len(letter.fields) > MAX_REPLAYED_FIELDS:
            return f"it has {len(letter.fields):,} fields; no event has more than {MAX_REPLAYED_FIELDS}"
        return None

    def replay(self, letter: DeadLetter) -> str | None:
        """Publish the event again and delete the letter, both or neither. Returns the new id of the event, or
        None when the letter no longer exists. Only for a letter without a problem."""
        with translate_errors():
            new = self._replay(
                [self._keys.dead_letters, letter.stream], [letter.entry, *flatten_fields(letter.fields)]
            )
        return None if new is None else str(new)

    def drop(self, letter: DeadLetter) -> bool:
        """Delete a letter; False when it no longer exists."""
        with translate_errors():
            return bool(self._client.xdel(self._keys.dead_letters, letter.entry))

    def _entries(self, before: str) -> list[tuple[str, Mapping[str, str]]]:
        with translate_errors():
            found: Any = self._client.xrevrange(self._keys.dead_letters, before, "-", READ_BATCH_SIZE)
        return list(found)


def _letter(entry: str, fields: Mapping[str, str]) -> DeadLetter:
    """A letter from its stream entry. Any client can write there, so any field may be missing."""
    try:
        event = loads(fields.get("event", ""))
    except (ValueError, RecursionError):
        event = None
    texts = {str(name): str(value) for name, value in event.items()} if isinstance(event, dict) else {}
    reason, stream, source = (fields.get(name, "") for name in ("reason", "stream", "entry"))
    return DeadLetter(entry, reason, stream, source, texts, read_cut(fields, texts))
