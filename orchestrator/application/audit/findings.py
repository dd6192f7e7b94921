"""What an examination of an execution finds: something that cannot be, in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """`where` is a step, an item of a map (`<step>#<n>`), a compensation (`<step>#undo`), a key, or empty for
    the execution itself. Two findings with the same words are the same finding."""

    code: str
    where: str
    words: str
