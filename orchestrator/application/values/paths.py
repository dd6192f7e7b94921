"""Paths into a document: a tuple of segments for code, a text such as `steps[3].input` for people."""

from __future__ import annotations

import json
import re
from itertools import chain, islice
from typing import Any

Path = tuple[str | int, ...]


def render_path(path: Path) -> str:
    """Format a path for people: steps[3].input["a.b"]."""
    parts: list[str] = []
    for segment in path:
        if isinstance(segment, int):
            parts.append(f"[{segment}]")
        elif _PLAIN_KEY.fullmatch(segment):
            parts.append(f".{segment}" if parts else segment)
        else:
            parts.append(f"[{json.dumps(segment, ensure_ascii=False)}]")
    return "".join(parts)


def parse_path(text: str, data: Any) -> Path:
    """Parse a path that render_path formatted, as far as it exists in `data`, plus one more segment.

    A key with dots needs no quotes here: the longest key that fits wins.
    """
    path: list[str | int] = []
    at = 0
    while at < len(text) and data is not None:
        at += text[at] == "."
        segment: str | int
        if quoted := _QUOTED.match(text, at):
            segment, at = json.loads(quoted[1]), quoted.end()
        elif number := _NUMBER.match(text, at):
            segment, at = int(number[1]), number.end()
        else:
            known = data if isinstance(data, dict) else {}
            dots = (found.start() for found in _END.finditer(text, at + 1))
            ends = list(islice(chain(dots, [len(text)]), _MAX_DOTS))
            end = next((end for end in reversed(ends) if text[at:end] in known), ends[0])
            segment, at = text[at:end], end
        path.append(segment)
        data = child(data, segment)
    return tuple(path)


def child(data: Any, segment: str | int) -> Any:
    """Return the value at one segment of a path, or None if there is none."""
    if isinstance(data, dict):
        return data.get(segment)
    if isinstance(data, list) and isinstance(segment, int) and segment < len(data):
        return data[segment]
    return None


_PLAIN_KEY = re.compile(r"[^.\[\]\"\s]+")
_QUOTED = re.compile(r'\[("(?:[^"\\]|\\.)*")\]')
_NUMBER = re.compile(r"\[([0-9]{1,9})\]")
_END = re.compile(r"[.\[]")
_MAX_DOTS = 64  # in a key without quotes; a key with more dots is not found, only the mapping around it
