"""LargeDocument: a document that is too large to be checked in a turn of a coordinator."""

from __future__ import annotations

import json
from dataclasses import dataclass

from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import load_spec, load_stored_spec


@dataclass(frozen=True, slots=True)
class LargeDocument:
    """The text of a new document, or of a stored one, which was accepted before."""

    text: str
    is_stored: bool = False

    def load(self) -> LoadedSpec:
        """Load the spec; raise InvalidSpec with all its problems."""
        if self.is_stored:
            return load_stored_spec(json.loads(self.text))
        return load_spec(self.text, with_warnings=False)
