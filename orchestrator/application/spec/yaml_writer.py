"""Writes a document as readable YAML. Reading it returns the same document.

Keys keep their order. Steps, branch entries and the names of inputs, sources and outputs have lines of their
own; anything else is on one line if it fits, and strings of several lines are block scalars. A string has no
quotes where every YAML reader takes it for a string, and double quotes otherwise. Keys are strings for our
reader, so `on` needs no quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from orchestrator.application.errors import InvalidSpec
from orchestrator.application.spec.document import check_data
from orchestrator.application.values.document_limits import DATA_LIMITS

WIDTH = 110

_BLOCK_KEYS = frozenset({"inputs", "sources", "outputs", "workflow"})
_BLOCK_ENTRY_KEYS = frozenset({"steps", "flow", "branch"})
_MAX_KEY_LENGTH = 1_000  # YAML requires the colon within 1,024 characters

_RESOLVERS = yaml.SafeLoader.yaml_implicit_resolvers
_PLAIN = re.compile(r"[\w$/][\w$/.+-]*(?: [\w$/.+-]+)*")
_PLAIN_IN_BLOCK = re.compile(r"[\w$/](?:[^\s:#]|:(?=\S)|(?<=\S)#| (?=\S))*")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def render_yaml(document: dict[str, Any]) -> str:
    """Return a document as YAML; raise InvalidSpec if it is not plain JSON within the limits."""
    if problems := check_data(document, limits=DATA_LIMITS):
        raise InvalidSpec(problems)
    if not document:
        return "{}\n"
    return "".join(f"{line}\n" for line in _write_block(document, 0, has_block_entries=False))


# Lines ------------------------------------------------------------------------------------------------------


def _write_block(value: Any, indent: int, *, has_block_entries: bool) -> Iterator[str]:
    """Yield the lines of a collection that is not empty."""
    margin = " " * indent
    if isinstance(value, list):
        for item in value:
            yield from _write_entry(f"{margin}-", item, indent, is_block=has_block_entries)
        return
    for key, item in value.items():
        head = f"{_key(key)}:"
        if len(head) > _MAX_KEY_LENGTH:
            yield f"{margin}? {_key(key)}"
            head = ":"
        is_block = key in _BLOCK_KEYS or key in _BLOCK_ENTRY_KEYS
        yield from _write_entry(f"{margin}{head}", item, indent, is_block=is_block, key=key)


def _write_entry(
    head: str, value: Any, indent: int, *, is_block: bool, key: str | None = None
) -> Iterator[str]:
    """Yield the lines of a value after its `head`, a key or dash. `is_block`: not on the line of the head."""
    if isinstance(value, str) and _fits_block(value):
        yield f"{head} |" if value.endswith("\n") else f"{head} |-"
        for line in value.removesuffix("\n").split("\n"):
            yield f"{' ' * (indent + 2)}{line}" if line else ""
    elif not isinstance(value, dict | list):
        yield f"{head} {_scalar(value, _PLAIN_IN_BLOCK)}"
    elif not (is_block and value) and (flow := _flow(value, max(WIDTH - len(head) - 1, 2))) is not None:
        yield f"{head} {flow}"  # the width is at least 2, because {} and [] have no other form
    else:
        lines = _write_block(value, indent + 2, has_block_entries=key in _BLOCK_ENTRY_KEYS)
        if key is None:
            yield f"{head} {next(lines).lstrip(' ')}"
        else:
            yield head
        yield from lines


def _flow(value: Any, width: int) -> str | None:
    """Return the value on one line; None if that is wider than `width`, or if a string has several lines."""
    if isinstance(value, dict):
        inside = _join(((f"{_key(key)}: ", item) for key, item in value.items()), width - 2)
        return None if inside is None else f"{{{inside}}}"
    if isinstance(value, list):
        inside = _join((("", item) for item in value), width - 2)
        return None if inside is None else f"[{inside}]"
    if isinstance(value, str) and _fits_block(value):
        return None
    line = _scalar(value, _PLAIN)
    return line if len(line) <= width else None


def _join(entries: Iterable[tuple[str, Any]], width: int) -> str | None:
    parts: list[str] = []
    for head, item in entries:
        part = _flow(item, width - len(head))
        if part is None:
            return None
        parts.append(head + part)
        width -= len(parts[-1]) + 2
    return ", ".join(parts) if parts or width >= 0 else None


# Scalars ----------------------------------------------------------------------------------------------------


def _key(key: str) -> str:
    # Our reader takes every key as a string; other readers need quotes. `on` is a key of the language.
    return key if key == "on" else _string(key, _PLAIN)


def _scalar(value: Any, plain: re.Pattern[str]) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return re.sub(r"^(-?\d+)e", r"\1.0e", float.__repr__(value))  # YAML reads 1e+16 as a string
    return _string(value, plain)


def _string(text: str, plain: re.Pattern[str]) -> str:
    text = str.__str__(text)  # the value of an enumeration
    is_plain = plain.fullmatch(text) and text.isprintable()
    return text if is_plain and not _is_other_type(text) else _quote(text)


def _is_other_type(text: str) -> bool:
    """Whether YAML reads this text, without quotes, as a number, a boolean, a date or null."""
    return any(form.match(text) for _, form in _RESOLVERS.get(text[0], ()))


def _quote(text: str) -> str:
    return f'"{"".join(map(_escape, text))}"'


def _escape(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _fits_block(text: str) -> bool:
    """Whether a string can be a block scalar: several lines, all printable, no trailing spaces."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and lines[0][:1] not in ("", " ")
        and lines[-1] != ""
        and all(line.isprintable() and not line.endswith(" ") for line in lines)
    )
