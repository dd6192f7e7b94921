"""What a conversion has to say: of what it could not convert, and of what means something else now."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from orchestrator.application.values.paths import Path, render_path

AS_TEXT = "left as the text it is"
LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Note:
    """`lost`: a person must finish this by hand. `changed`: it was converted, and differs in this."""

    path: str
    message: str
    instead: str = ""
    kind: Literal["lost", "changed"] = "lost"

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        return f"{place}{self.message}{f'; {self.instead}' if self.instead else ''}"

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


class Notes:
    """Gathers the notes of one conversion, in the order of the document."""

    def __init__(self) -> None:
        self._notes: dict[Note, None] = {}

    def add_lost(self, path: Path | str, message: str, instead: str = "") -> None:
        self._add(path, message, instead, "lost")

    def add_changed(self, path: Path | str, message: str, instead: str = "") -> None:
        self._add(path, message, instead, "changed")

    def _add(self, path: Path | str, message: str, instead: str, kind: Literal["lost", "changed"]) -> None:
        place = path if isinstance(path, str) else render_path(path)
        self._notes[Note(place, message, instead, kind)] = None

    def as_tuple(self) -> tuple[Note, ...]:
        return tuple(self._notes)


class CannotConvert(Exception):
    """This part has no equal in our language; the message says why, in words for a note."""
