"""Folding: a result stays below a number of characters. Large values in it are cut, and it says which.

A language model pays for each character, and its context has an end. The values are cut as little as
possible: a list of limits is tried, from the widest to the narrowest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

MAX_CHARS = 20_000
"""The characters of a result as JSON."""
MAX_LISTED = 20
"""The places that a result lists as cut."""
HINT = "get_step returns more of a value of a step: pass its `path`, such as output.rows, and an `offset`."


@dataclass(frozen=True, slots=True)
class Limits:
    """The characters of a text, the entries of a list or an object, and the depth, that are kept."""

    chars: int
    entries: int
    depth: int


WIDEST_FIRST = (
    Limits(8_000, 1_000, 20),
    Limits(4_000, 300, 20),
    Limits(1_500, 120, 16),
    Limits(600, 60, 12),
    Limits(300, 25, 8),
    Limits(150, 10, 6),
    Limits(80, 4, 5),
    Limits(60, 2, 4),
)


@dataclass(slots=True)
class _Cuts:
    """The places that were cut, each with what is missing."""

    listed: list[dict[str, str]] = field(default_factory=list)
    count: int = 0

    def add(self, path: str, missing: str) -> None:
        self.count += 1
        if len(self.listed) < MAX_LISTED:
            self.listed.append({"path": path[:200], "missing": missing})


def fold(result: dict[str, Any], max_chars: int = MAX_CHARS) -> dict[str, Any]:
    """The result, or a copy with shorter values and a list `left_out` of what is missing."""
    if count_chars(result) <= max_chars:
        return result
    for limits in WIDEST_FIRST:
        cuts = _Cuts()
        folded = _add_cuts(_fold(result, limits, cuts, "", limits.depth), cuts)
        if count_chars(folded) <= max_chars:
            return folded
    return _fold_top(result)


def count_chars(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def _add_cuts(folded: dict[str, Any], cuts: _Cuts) -> dict[str, Any]:
    rest = cuts.count - len(cuts.listed)
    more = {"left_out_elsewhere": rest} if rest else {}
    return {**folded, "left_out": cuts.listed, **more, "left_out_hint": HINT}


def _fold(value: Any, limits: Limits, cuts: _Cuts, path: str, depth: int) -> Any:
    if isinstance(value, str) and len(value) > limits.chars:
        missing = f"{len(value) - limits.chars:,} of {len(value):,} characters"
        cuts.add(path, missing)
        return f"{value[: limits.chars]}… [{missing} left out]"
    if isinstance(value, dict | list) and value and depth == 0:
        cuts.add(path, f"{len(value):,} entries")
        return f"… [{len(value):,} entries left out]"
    if isinstance(value, list):
        return _fold_list(value, limits, cuts, path, depth)
    if isinstance(value, dict):
        return _fold_dict(value, limits, cuts, path, depth)
    return value


def _fold_list(value: list[Any], limits: Limits, cuts: _Cuts, path: str, depth: int) -> list[Any]:
    kept = [
        _fold(one, limits, cuts, _join(path, str(place)), depth - 1)
        for place, one in enumerate(value[: limits.entries])
    ]
    if len(value) > limits.entries:
        missing = f"{len(value) - limits.entries:,} of {len(value):,} entries"
        cuts.add(path, missing)
        kept.append(f"… [{missing} left out]")
    return kept


def _fold_dict(value: dict[str, Any], limits: Limits, cuts: _Cuts, path: str, depth: int) -> dict[str, Any]:
    # The keys at the top are those of the tool, and none is left out.
    names = list(value) if not path else list(value)[: limits.entries]
    kept = {
        _cut_key(name, limits, cuts, path): _fold(value[name], limits, cuts, _join(path, name), depth - 1)
        for name in names
    }
    if len(value) > len(names):
        missing = f"{len(value) - len(names):,} of {len(value):,} entries"
        cuts.add(path, missing)
        kept["…"] = f"[{missing} left out]"
    return kept


def _cut_key(name: str, limits: Limits, cuts: _Cuts, path: str) -> str:
    if len(name) <= limits.chars:
        return name
    cuts.add(path, f"{len(name) - limits.chars:,} characters of a key")
    return f"{name[: limits.chars]}…"


def _fold_top(result: dict[str, Any]) -> dict[str, Any]:
    """The plain values of a result alone, for one that is too large by its shape."""
    cuts = _Cuts()
    kept: dict[str, Any] = {}
    for name, value in result.items():
        if isinstance(value, dict | list):
            cuts.add(name, f"{len(value):,} entries")
        else:
            kept[name] = _fold(value, Limits(300, 1, 1), cuts, name, 1)
    return _add_cuts(kept, cuts)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
