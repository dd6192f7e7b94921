"""The notes of a conversion: what could not be converted, and what has another meaning now."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from orchestrator.application.spec.document import SourceMap
from orchestrator.application.values.paths import Path, render_path

AS_TEXT = "kept as plain text"
LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Note:
    """`lost`: a person must finish this by hand. `changed`: it was converted, but its meaning differs.

    `line` and `column` are those in the original document, if the path is in it.
    """

    path: str
    message: str
    instead: str = ""
    kind: Literal["lost", "changed"] = "lost"
    is_of_result: bool = False
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        location = f"{self.path}: " if self.path else ""
        return f"{location}{self.message}{f'; {self.instead}' if self.instead else ''}"

    def located_in(self, source: str) -> str:
        """The note with its file, as a compiler prints it: file:line:column: path: message."""
        position = "" if self.line is None else f"{self.line}:{self.column}:"
        return f"{source}:{position} {self}{' (warning)' if self.kind == 'changed' else ''}"

    def located_by(self, source_map: SourceMap) -> Note:
        found = None if self.is_of_result or not self.path else source_map.find(self.path)
        return self if found is None else replace(self, line=found[0], column=found[1])

    def as_dict(self) -> dict[str, Any]:
        return {
            key: value for key, value in asdict(self).items() if key != "is_of_result" and value is not None
        }


class Notes:
    """Collects the notes of one conversion, in the order of the document, without duplicates."""

    def __init__(self) -> None:
        self._notes: dict[Note, None] = {}

    def add_lost(self, path: Path | str, message: str, instead: str = "") -> None:
        self._add(path, message, instead, "lost")

    def add_changed(self, path: Path | str, message: str, instead: str = "") -> None:
        self._add(path, message, instead, "changed")

    def add_invalid(self, path: str, message: str) -> None:
        """Add a problem of the result, whose path is one in the result."""
        instead = "the result is not valid until this is fixed"
        self._notes[Note(path, message, instead, is_of_result=True)] = None

    def _add(self, path: Path | str, message: str, instead: str, kind: Literal["lost", "changed"]) -> None:
        location = path if isinstance(path, str) else render_path(path)
        self._notes[Note(location, message, instead, kind)] = None

    def as_tuple(self) -> tuple[Note, ...]:
        return tuple(self._notes)


class CannotConvert(Exception):
    """This part has no equivalent in our language. The message is the reason, worded for a note."""
