"""Links and code blocks in Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable

FENCE = re.compile(r"^(?P<indent> *)```.*?^(?P=indent)```$", re.M | re.S)
_TREATMENT = re.compile(r"^ *<!-- test: [^\n]* -->\n", re.M)
_LINK = re.compile(r"`[^`\n]*`|(?P<before>\]\()(?P<target>[^)\s]+)(?P<after>\))")


def is_external(link: str) -> bool:
    return re.match(r"[a-z][a-z0-9+.-]*:", link) is not None


def change_prose(text: str, change: Callable[[str], str]) -> str:
    """Apply a function to everything outside of code blocks."""
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence.group()]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def change_links(text: str, change: Callable[[str], str]) -> str:
    """Replace the target of each link. Code stays as it is."""

    def replace(found: re.Match[str]) -> str:
        if found["target"] is None:
            return found.group()
        return found["before"] + change(found["target"]) + found["after"]

    return change_prose(text, lambda prose: _LINK.sub(replace, prose))


def drop_treatments(text: str) -> str:
    """Remove the comments that say how a code block is tested."""
    return _TREATMENT.sub("", text)


def escape_prose(text: str) -> str:
    """Escape what Markdown would take for HTML, except in code."""
    lines = [
        line
        if line.startswith("    ")
        else re.sub(r"`[^`\n]*`|<", lambda one: "&lt;" if one.group() == "<" else one.group(), line)
        for line in text.splitlines()
    ]
    return "\n".join(lines)


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return escape_prose(" ".join(text.split())).replace("|", "\\|")
