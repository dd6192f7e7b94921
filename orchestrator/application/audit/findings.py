"""A finding: one inconsistency in an execution's record, history or keys."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """`where` is a step, an item of a map (`<step>#<n>`), a compensation (`<step>#undo`), a key, or empty for
    the execution itself. Two findings are the same if their code, place and text are equal."""

    code: str
    where: str
    words: str
