"""The notes of a conversion: what could not be converted, and what has another meaning now."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from orchestrator.application.values.paths import Path, render_path

AS_TEXT = "kept as plain text"
LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Note:
    """`lost`: a person must finish this by hand. `changed`: it was converted, but its meaning differs."""

    path: str
    message: str
    instead: str = ""
    kind: Literal["lost", "changed"] = "lost"

    def __str__(self) -> str:
        location = f"{self.path}: " if self.path else ""
        return f"{location}{self.message}{f'; {self.instead}' if self.instead else ''}"

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


class Notes:
    """Collects the notes of one conversion, in the order of the document, without duplicates."""

    def __init__(self) -> None:
        self._notes: dict[Note, None] = {}

    def add_lost(self, path: Path | str, message: str, instead: str = "") -> None:
        self._add(path, message, instead, "lost")

    def add_changed(self, path: Path | str, message: str, instead: str = "") -> None:
        self._add(path, message, instead, "changed")

    def _add(self, path: Path | str, message: str, instead: str, kind: Literal["lost", "changed"]) -> None:
        location = path if isinstance(path, str) else render_path(path)
        self._notes[Note(location, message, instead, kind)] = None

    def as_tuple(self) -> tuple[Note, ...]:
        return tuple(self._notes)


class CannotConvert(Exception):
    """This part has no equivalent in our language. The message is the reason, worded for a note."""
