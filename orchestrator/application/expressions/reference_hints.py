"""Explains what is wrong with braces that hold no path, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable

MAX_SHOWN = 60
_MAX_READ = 400

_QUOTING = "{$literal: ...} keeps braces as text"
_A_PATH = "write a path, such as {{ steps.a.output.x }} or {{ input.name or 'you' }}"

_PATH = re.compile(r"[^\W\d][\w-]*(?:\.[\w-]+)*")
_QUOTED_TEXT = re.compile(r"""'[^']*'|"[^"]*\"""")
_WORDS = frozenset({"and", "else", "if", "in", "is", "none", "not", "or"})
_FILTER = re.compile(r"\s*\|\s*(\w*)")
_OPERATORS = {
    "abs": "num.abs",
    "count": "list.length",
    "first": "list.first",
    "last": "list.last",
    "length": "list.length",
    "lower": "str.lower",
    "round": "num.round",
    "sort": "list.sort",
    "tojson": "json.dumps",
    "trim": "str.trim",
    "unique": "list.unique",
    "upper": "str.upper",
}
"""Filters of Jinja that need no argument, and the operators that do the same."""
_OPERATORS_WITH_ARGUMENTS = {
    "join": '{{str.join: [{{var: {path}}}, ", "]}}',
    "replace": '{{str.replace: [{{var: {path}}}, "old", "new"]}}',
}

Explanation = tuple[str, str]
"""The message and the hint of a problem."""


def explain_reference(text: str, start: int) -> Explanation:
    """Explain the braces that begin at `start`. Only the beginning of what they hold is read."""
    end = text.find("}}", start + 2, start + _MAX_READ)
    if end < 0 and text.find("}}", start + 2) < 0:
        return f"{_show(text[start:])} is never closed", _join("close it with }}")
    inside = text[start + 2 : end if end >= 0 else start + _MAX_READ].strip()
    whole = text[start : end + 2 if end >= 0 else start + _MAX_READ]
    for matches, reason, build_hint in _CASES:
        if matches(inside):
            return f"{_show(whole)} is not a reference: {reason}", _join(build_hint(inside))
    return f"{_show(whole)} is not a reference", _join(_A_PATH)


def explain_block(text: str, start: int) -> Explanation:
    """Explain a block of a template, such as {% if ... %}."""
    hint = "write {if: [condition, then, else]} for a choice, and {map: [list, expression]} for a loop"
    end = text.find("%}", start, start + _MAX_READ)
    return f"a block is not evaluated here: {_show(text[start : end + 2 if end >= 0 else None])}", _join(hint)


def _show(text: str) -> str:
    return repr(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}...")


def _join(hint: str) -> str:
    return f"{hint}; {_QUOTING}"


def _first_path(inside: str) -> str:
    """Return the path that was probably meant: the first one outside of quotes."""
    text = _QUOTED_TEXT.sub(" ", inside)
    paths = (found[0] for found in _PATH.finditer(text) if not text[found.end() :].lstrip().startswith("("))
    return next((path for path in paths if path not in _WORDS), "input.x")


def _has(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda inside: compiled.search(inside) is not None


def _filter_hint(inside: str) -> str:
    path = _first_path(inside)
    found = _FILTER.search(inside)
    name = found[1] if found else ""
    if name in ("default", "d"):
        return f"write {{{{ {path} or 'text' }}}}"
    if name in _OPERATORS_WITH_ARGUMENTS:
        return f"write {_OPERATORS_WITH_ARGUMENTS[name].format(path=path)}"
    return f"write an operator, such as {{{_OPERATORS.get(name, 'str.upper')}: {{var: {path}}}}}"


def _default_hint(inside: str) -> str:
    path, _, other = inside.partition(" or ")
    return f"write {{any.default: [{{var: {_first_path(path)}}}, {{var: {_first_path(other.strip())}}}]}}"


def _bracket_hint(inside: str) -> str:
    if "*" in inside or ":" in inside or "?" in inside:
        return 'for several values write {vars: "steps.a.output.items[*].x"}'
    names = re.sub(r"""\[\s*['"]?([\w-]*)['"]?\s*\]""", r".\1", inside)
    return f"write names and positions after dots: {{{{ {names} }}}}" if _PATH.fullmatch(names) else _A_PATH


def _write(form: str) -> Callable[[str], str]:
    """Return a hint of this form, in which PATH stands for the first path between the braces."""
    return lambda inside: form.replace("PATH", _first_path(inside))


_CASES: tuple[tuple[Callable[[str], bool], str, Callable[[str], str]], ...] = (
    (lambda inside: not inside, "there is no path in it", _write(_A_PATH)),
    (_has(r"\{"), "there are braces in it", _write("one pair of braces holds one path")),
    (
        _has(r"""^(?:'[^']*'|"[^"]*"|-?[0-9][0-9.]*|true|false|null)$"""),
        "a literal needs no braces",
        _write("write the literal alone"),
    ),
    (
        _has(r"[=!<>]=|[<>]|&&|\|\||\b(?:and|not|in|is)\b"),
        "a comparison is an operator here",
        _write('write {"==": [{var: PATH}, 1]}, with the operator that you need'),
    ),
    (
        _has(r"\bif\b|\?"),
        "a choice is an operator here",
        _write("write {if: [condition, {var: PATH}, else]}"),
    ),
    (_has(r"\|"), "a filter is an operator here", _filter_hint),
    (
        _has(r"\("),
        "a call is an operator here",
        _write("write an operator, such as {list.length: {var: PATH}}"),
    ),
    (_has(r"\s+or\s+[^\W\d'\"]"), "a default is a literal", _default_hint),
    (_has(r"\[|\]"), "brackets are not part of a path", _bracket_hint),
    (
        _has(r"[+*/%~]|\s-|-\s|^-"),
        "arithmetic is an operator here",
        _write('write {"+": [{var: PATH}, 1]}, or {cat: [...]} to join texts'),
    ),
)
