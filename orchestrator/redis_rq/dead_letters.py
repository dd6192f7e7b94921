"""Dead letters: the events that were refused, and why; to be read, sent again or thrown away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from orchestrator.application.errors import OrchestratorError
from orchestrator.redis_rq.commit_args import flatten_fields
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.event_codec import loads
from orchestrator.redis_rq.event_log import MAX_LETTER_FIELD_CHARS
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.scripts import Script

READ_BATCH_SIZE = 500


class DeadLetterNotFound(OrchestratorError):
    exit_code = 2

    def __init__(self, entry_id: str) -> None:
        super().__init__(f"there is no dead letter {entry_id!r}")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """`entry` is the id of the letter itself; `source` is that of the event, in its `stream`."""

    entry: str
    reason: str
    stream: str
    source: str
    fields: Mapping[str, str]

    @property
    def cut(self) -> list[str]:
        """The fields of which only the beginning was kept. One that is just as long as what is kept may have
        been cut too: nobody can tell."""
        return [name for name, value in self.fields.items() if len(value) >= MAX_LETTER_FIELD_CHARS]


class DeadLetters:
    def __init__(self, client: Client, keys: Keys | None = None) -> None:
        self._client, self._keys = client, keys or Keys()
        self._replay = Script(client, "replay")

    def newest(self, reason: str = "") -> Iterator[DeadLetter]:
        """All of them, the newest first; with a text, those in whose reason it is."""
        before = "+"
        while entries := self._entries(before):
            for entry, fields in entries:
                letter = _letter(entry, fields)
                if reason.lower() in letter.reason.lower():
                    yield letter
            before = f"({entries[-1][0]}"

    def get(self, entry: str) -> DeadLetter:
        """DeadLetterNotFound if there is none."""
        found: Any = []
        try:
            with translate_errors():
                found = self._client.xrange(self._keys.dead, entry, entry)
        except ResponseError:
            pass  # what was asked for is no id of an entry
        if not found:
            raise DeadLetterNotFound(entry)
        return _letter(*found[0])

    def problem(self, letter: DeadLetter) -> str | None:
        """Why a letter cannot be sent again; None when it can."""
        if not letter.fields:
            return "nothing is left of its event"
        if letter.stream not in (self._keys.starts, *map(self._keys.events, range(self._keys.partitions))):
            return f"no coordinator reads its stream {letter.stream!r}"
        if letter.cut:
            return f"of {', '.join(letter.cut)} only the beginning was kept: send it again from where it came"
        return None

    def replay(self, letter: DeadLetter) -> str | None:
        """Put its event into its stream again and take the letter away, both or neither; returns the new id
        of the event, None when somebody else has taken the letter. Only for a letter without a problem."""
        with translate_errors():
            new = self._replay(
                [self._keys.dead, letter.stream], [letter.entry, *flatten_fields(letter.fields)]
            )
        return None if new is None else str(new)

    def drop(self, letter: DeadLetter) -> bool:
        """False when it is gone already."""
        with translate_errors():
            return bool(self._client.xdel(self._keys.dead, letter.entry))

    def _entries(self, before: str) -> list[tuple[str, Mapping[str, str]]]:
        with translate_errors():
            found: Any = self._client.xrevrange(self._keys.dead, before, "-", READ_BATCH_SIZE)
        return list(found)


def _letter(entry: str, fields: Mapping[str, str]) -> DeadLetter:
    """A letter as it lies there: anybody may have put it there, so that anything may be missing."""
    try:
        event = loads(fields.get("event", ""))
    except (ValueError, RecursionError):
        event = None
    texts = {str(name): str(value) for name, value in event.items()} if isinstance(event, dict) else {}
    return DeadLetter(
        entry, fields.get("reason", ""), fields.get("stream", ""), fields.get("entry", ""), texts
    )
