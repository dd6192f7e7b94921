"""A document as YAML for people, such that reading it gives the same document back.

Keys stand in the order in which they were written. Steps, branch entries and the names of inputs, sources and
outputs have lines of their own; anything else stands on one line if it fits, and texts of several lines are
written as such. A text is plain where no reader could take it for anything else, and in double quotes
otherwise; keys are texts, so `on` needs no quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from orchestrator.application.errors import InvalidSpec
from orchestrator.application.spec.document import check_data

WIDTH = 110

_OPEN = frozenset({"inputs", "sources", "outputs", "workflow"})
_OPEN_ENTRIES = frozenset({"steps", "flow", "branch"})
_LONGEST_KEY = 1_000  # YAML itself reads 1,024 characters of a key before it wants to see a colon

_RESOLVERS = yaml.SafeLoader.yaml_implicit_resolvers
_PLAIN = re.compile(r"[\w$/][\w$/.+-]*(?: [\w$/.+-]+)*")
_PLAIN_IN_BLOCK = re.compile(r"[\w$/](?:[^\s:#]|:(?=\S)|(?<=\S)#| (?=\S))*")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def render_yaml(document: dict[str, Any]) -> str:
    """The YAML of a document; InvalidSpec when it is not plain JSON within the limits of a document."""
    if problems := check_data(document):
        raise InvalidSpec(problems)
    if not document:
        return "{}\n"
    return "".join(f"{line}\n" for line in _block(document, 0, entries_open=False))


# Lines ------------------------------------------------------------------------------------------------------


def _block(value: Any, indent: int, *, entries_open: bool) -> Iterator[str]:
    """The lines of a collection that is not empty."""
    margin = " " * indent
    if isinstance(value, list):
        for item in value:
            yield from _entry(f"{margin}-", item, indent, is_open=entries_open)
        return
    for key, item in value.items():
        head = f"{_key(key)}:"
        if len(head) > _LONGEST_KEY:
            yield f"{margin}? {_key(key)}"
            head = ":"
        is_open = key in _OPEN or key in _OPEN_ENTRIES
        yield from _entry(f"{margin}{head}", item, indent, is_open=is_open, key=key)


def _entry(head: str, value: Any, indent: int, *, is_open: bool, key: str | None = None) -> Iterator[str]:
    """What `head` introduces: behind it, or on lines of its own. `is_open`: never all of it on one line."""
    if isinstance(value, str) and _has_lines(value):
        yield f"{head} |" if value.endswith("\n") else f"{head} |-"
        for line in value.removesuffix("\n").split("\n"):
            yield f"{' ' * (indent + 2)}{line}" if line else ""
    elif not isinstance(value, dict | list):
        yield f"{head} {_scalar(value, _PLAIN_IN_BLOCK)}"
    elif not (is_open and value) and (short := _flow(value, max(WIDTH - len(head) - 1, 2))) is not None:
        yield f"{head} {short}"  # always room for {} and []: they have no other form
    else:
        lines = _block(value, indent + 2, entries_open=key in _OPEN_ENTRIES)
        if key is None:
            yield f"{head} {next(lines).lstrip(' ')}"
        else:
            yield head
        yield from lines


def _flow(value: Any, room: int) -> str | None:
    """The value on one line; None when that is longer than `room`, or hides the lines of a text."""
    if isinstance(value, dict):
        inside = _joined(((f"{_key(key)}: ", item) for key, item in value.items()), room - 2)
        return None if inside is None else f"{{{inside}}}"
    if isinstance(value, list):
        inside = _joined((("", item) for item in value), room - 2)
        return None if inside is None else f"[{inside}]"
    if isinstance(value, str) and _has_lines(value):
        return None
    line = _scalar(value, _PLAIN)
    return line if len(line) <= room else None


def _joined(entries: Iterable[tuple[str, Any]], room: int) -> str | None:
    parts: list[str] = []
    for head, item in entries:
        part = _flow(item, room - len(head))
        if part is None:
            return None
        parts.append(head + part)
        room -= len(parts[-1]) + 2
    return ", ".join(parts) if parts or room >= 0 else None


# Scalars ----------------------------------------------------------------------------------------------------


def _key(key: str) -> str:
    # Our reader takes any key for its text. Others do not, and are spared but for a key of the language.
    return key if key == "on" else _text(key, _PLAIN)


def _scalar(value: Any, plain: re.Pattern[str]) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return re.sub(r"^(-?\d+)e", r"\1.0e", float.__repr__(value))  # 1e+16 would be a text
    return _text(value, plain)


def _text(text: str, plain: re.Pattern[str]) -> str:
    text = str.__str__(text)  # of an enumeration: its value
    is_plain = plain.fullmatch(text) and text.isprintable()
    return text if is_plain and not _is_read_as_more(text) else _quoted(text)


def _is_read_as_more(text: str) -> bool:
    """Whether YAML takes a plain text for a number, a boolean, a date or nothing at all."""
    return any(form.match(text) for _, form in _RESOLVERS.get(text[0], ()))


def _quoted(text: str) -> str:
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _has_lines(text: str) -> bool:
    """Whether a text reads best, and safely, as lines: no strange character, no space that nobody sees."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and lines[0][:1] not in ("", " ")
        and lines[-1] != ""
        and all(line.isprintable() and not line.endswith(" ") for line in lines)
    )
