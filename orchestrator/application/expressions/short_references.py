"""Short references: double braces in a text stand for the value at a path.

    "{{ input.name }}"                {"var": "input.name"}, which keeps the type of the value
    "{{ input.name or 'you' }}"       {"var": ["input.name", "you"]}
    "Hello {{ input.name }}!"         {"cat": ["Hello ", {"var": "input.name"}, "!"]}

The braces hold a path, and perhaps a default: a text in quotes, a number, true, false or null. There is no
other syntax. Each character is read once, whatever the text is: no pattern here backtracks.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from orchestrator.application.expressions.reference_hints import explain_block, explain_reference
from orchestrator.application.values.document_limits import not_json_reason

MAX_PARTS = 2_000
"""A text with more parts is not read to its end: its expression has more nodes than any may have."""

_PATH = r"[^\W\d][\w-]*+(?:\.[\w-]++)*+"
_ESCAPES = {"'": "'", '"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = r"""\\['"\\nrt]"""
_STRING = rf"""'(?:[^'\\]|{_ESCAPE})*+'|"(?:[^"\\]|{_ESCAPE})*+\""""
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_DEFAULT = rf"{_STRING}|(?:{_NUMBER}|true|false|null)(?![\w.-])"
_REFERENCE = re.compile(rf"\{{\{{\s*+({_PATH})(?:\s++or\s++({_DEFAULT}))?+\s*+\}}\}}")
_ESCAPED = re.compile(_ESCAPE)

WHOLE_REFERENCE_PATTERN = r"""^\{\{\s*[^\s{}|()'"]+(\s+or\s+\S.*)?\s*\}\}$"""
"""A text that is one reference, for the JSON Schema of editors. It accepts more than there is."""
MIXED_TEXT_PATTERN = r"\{\{[\s\S]*\}\}"
"""A text with references, for the same purpose."""


@dataclass(frozen=True, slots=True)
class ShortReference:
    """One pair of braces: a path, and the value to use if the path finds nothing."""

    path: str
    default: Any = None
    has_default: bool = False

    @property
    def rule(self) -> dict[str, Any]:
        return {"var": [self.path, self.default] if self.has_default else self.path}


Part = str | ShortReference


class BadReference(ValueError):
    """Braces in a text that hold something else than a path."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def has_braces(text: str) -> bool:
    """Whether a text may contain references, or a template that is not supported."""
    return "{{" in text or "{%" in text


def parse_text(text: str, *, root: str | None = None, is_lenient: bool = False) -> list[Part]:
    """Split a text into plain texts and references; raise BadReference for other braces.

    With a `root`, only paths below it are references. With this or `is_lenient`, other braces are plain text.
    """
    is_lenient = is_lenient or root is not None
    if not is_lenient:
        _reject_blocks(text)
    parts: list[Part] = []
    done = at = 0
    while (start := text.find("{{", at)) >= 0 and len(parts) <= MAX_PARTS:
        found = _REFERENCE.match(text, start)
        reference = None if found is None else _read_reference(found)
        if found is None or reference is None:
            if not is_lenient:
                raise BadReference(*explain_reference(text, start))
            at = start + 2
            continue
        at = found.end()
        if root is None or reference.path.partition(".")[0] == root:
            parts += [text[done:start], reference] if start > done else [reference]
            done = at
    return [*parts, text[done:]] if done < len(text) or not parts else parts


def expand_text(text: str, *, root: str | None = None) -> Any:
    """Return the expression that a text stands for, or the text if it has no references."""
    return build_rule(parse_text(text, root=root))


def build_rule(parts: list[Part]) -> Any:
    """Return the expression for the parts of a text."""
    if len(parts) == 1:
        [part] = parts
        return part if isinstance(part, str) else part.rule
    return {"cat": [part if isinstance(part, str) else part.rule for part in parts]}


def is_whole_reference(text: str) -> bool:
    """Whether a text is one reference and nothing else, so that its value can be of any type."""
    found = _REFERENCE.fullmatch(text)
    return found is not None and _read_reference(found) is not None


def holds_reference(text: str) -> bool:
    """Whether braces in a text have a meaning where an expression may stand, or are an error there."""
    try:
        return any(isinstance(part, ShortReference) for part in parse_text(text))
    except BadReference:
        return True


def _read_reference(found: re.Match[str]) -> ShortReference | None:
    """Return the reference of a match, or None if its default is not JSON."""
    path, default = found.groups()
    if default is None:
        return ShortReference(path)
    if default[0] in "'\"":
        value: Any = _ESCAPED.sub(lambda escape: _ESCAPES[escape[0][1]], default[1:-1])
        return ShortReference(path, value, has_default=True)
    try:
        value = json.loads(default)
    except ValueError:  # a number with more digits than Python converts
        return None
    return None if not_json_reason(value) else ShortReference(path, value, has_default=True)


def _reject_blocks(text: str) -> None:
    start = text.find("{%")
    if start >= 0 and text.find("%}", start) >= 0:
        raise BadReference(*explain_block(text, start))
