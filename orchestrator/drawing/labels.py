"""Text in a picture: safe to show, and short enough for its place.

Names and messages come from documents that others write. Control characters and those that reorder text are
shown as escapes. A picture cannot ask for the width of a text, so it is estimated from the widths that
letters have in common system fonts, a little on the safe side.
"""

from __future__ import annotations

from html import escape
from unicodedata import combining, east_asian_width

MAX_CHARS = 100
"""A label has no more characters from each end of a text, however narrow they are."""

START_SHARE = 0.4
"""How much of a label is the beginning of the text, if the middle of it is left out."""

_CLASSES = {
    0.30: "ijlI.,:;'|! ",
    0.38: 'frt()[]{}/\\-"`',
    0.56: "acekszvxyJ?*^",
    0.62: "bdghnopqu0123456789_$#+=<>~LFT",
    0.74: "ABCDEGHKNOPQRSUVXYZ&",
    0.98: "mwMW@%…",
}


class _Widths(dict[str, float]):
    """The width of each character, in multiples of the font size."""

    def __missing__(self, char: str) -> float:
        if combining(char):
            width = 0.0
        else:
            width = 1.05 if east_asian_width(char) in "WF" or ord(char) > 0x1F000 else 0.75
        self[char] = width
        return width


_WIDTHS = _Widths({char: width for width, chars in _CLASSES.items() for char in chars})


def make_visible(text: str) -> str:
    """Show characters that cannot be printed as escapes, and other white space as spaces."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else " " if char.isspace() else char.encode("unicode_escape").decode()
        for char in text
    )


def escape_text(text: str) -> str:
    """Make a text visible and escape it for XML, also inside of an attribute."""
    return escape(make_visible(text))


def estimate_width(text: str, font_size: int) -> int:
    """Estimate how wide a line of text is, in pixels."""
    return int(sum(map(_WIDTHS.__getitem__, text)) * font_size) + 1


def shorten(text: str, max_width: int, font_size: int, *, keeps_end: bool = False) -> str:
    """Cut a text to a width; an ellipsis stands for what is left out. With `keeps_end` that is the middle,
    because many ids begin alike."""
    if len(text) <= MAX_CHARS:
        text = make_visible(text)
        if estimate_width(text, font_size) <= max_width:
            return text
    room = max_width / font_size - _WIDTHS["…"]
    start = _take(make_visible(text[:MAX_CHARS]), room * START_SHARE if keeps_end else room)
    if not keeps_end:
        return start.rstrip() + "…"
    room -= sum(map(_WIDTHS.__getitem__, start))
    return start + "…" + _take(make_visible(text[-MAX_CHARS:])[::-1], room)[::-1]


def _take(text: str, room: float) -> str:
    """Take the first characters of a text, as many as fit."""
    for place, char in enumerate(text):
        room -= _WIDTHS[char]
        if room < 0:
            return text[:place]
    return text[:MAX_CHARS]
