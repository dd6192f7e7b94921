"""YAML as people write it: blocks for what is long, one line for what is short, quotes where they are needed.

What is written here is read back by our own reader as the same data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

WIDTH = 100

_ALWAYS_BLOCKS = frozenset({"inputs", "sources", "steps", "outputs"})
_RESOLVERS = yaml.SafeLoader.yaml_implicit_resolvers
_PLAIN = re.compile(r"[0-9]+(?:ms|s|m|h|d)|[A-Za-z_$/][A-Za-z0-9_$/.+@-]*(?: [A-Za-z0-9_$/.+@()-]+)*")
_HIDDEN = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def dump(document: dict[str, Any]) -> str:
    """The text of a document."""
    return "".join(f"{line}\n" for line in _mapping(document, 0, is_root=True)) if document else "{}\n"


def _mapping(mapping: dict[str, Any], indent: int, *, is_root: bool = False) -> Iterator[str]:
    for key, value in mapping.items():
        is_block = is_root and key in _ALWAYS_BLOCKS
        yield from _entry(f"{' ' * indent}{_text(key)}:", value, indent + 2, is_block=is_block)


def _entry(start: str, value: Any, indent: int, *, is_block: bool) -> Iterator[str]:
    """A key or a dash, and its value behind or below it."""
    if isinstance(value, str) and (lines := _lines(value)):
        yield f"{start} {'|' if value.endswith(chr(10)) else '|-'}"
        yield from (f"{' ' * indent}{line}" if line else "" for line in lines)
        return
    flow = _flow(value)
    is_long = is_block or _is_table(value) or "\\n" in flow or len(start) + 1 + len(flow) > WIDTH
    if not isinstance(value, dict | list) or not value or not is_long:
        yield f"{start} {flow}"
    elif isinstance(value, dict):
        yield start
        yield from _mapping(value, indent)
    else:
        yield start
        yield from _list(value, indent, is_block=is_block)


def _list(items: list[Any], indent: int, *, is_block: bool) -> Iterator[str]:
    dash = f"{' ' * indent}-"
    for item in items:
        if isinstance(item, dict) and item and (is_block or len(dash) + 1 + len(_flow(item)) > WIDTH):
            first, *rest = _mapping(item, indent + 2)
            yield f"{dash} {first[indent + 2 :]}"
            yield from rest
        else:
            yield from _entry(dash, item, indent + 2, is_block=False)


def _is_table(value: Any) -> bool:
    """Several mappings of several keys each, which are read one below the other."""
    return (
        isinstance(value, list)
        and len(value) > 1
        and all(isinstance(item, dict) and len(item) > 1 for item in value)
    )


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_text(key)}: {_flow(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        mantissa, exponent, power = repr(value).partition("e")
        return f"{mantissa}{'.0' if exponent and '.' not in mantissa else ''}{exponent}{power}"
    return json.dumps(value)


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and not any(form.match(text) for _, form in _RESOLVERS.get(text[:1], ())):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _lines(text: str) -> list[str]:
    """The lines of a text that reads best as a block; none of them if it does not."""
    lines = text.removesuffix("\n").split("\n")
    is_fit = len(lines) > 1 and lines[0][:1].strip() and lines[-1]
    return lines if is_fit and all(_is_visible(line) for line in lines) else []


def _is_visible(line: str) -> bool:
    return not line or (line == line.rstrip() and line.isprintable() and not _HIDDEN.search(line))
