"""SpecCache: checked specs by key, because checking a document costs more than anything else of a start."""

from __future__ import annotations

from typing import Generic

from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import load_stored_spec
from orchestrator.backend.sized_cache import Key, SizedCache

_MAX_OLDER_SPECS = 16
MAX_CACHED_SPEC_BYTES = 4 * 1024 * 1024
"""The maximum of all documents in a cache, as JSON, and of their keys. A loaded spec takes 20 to 35 times the
memory of its JSON."""


class SpecCache(Generic[Key]):
    """Holds at most `max_specs` specs, with at most `max_bytes` of JSON and keys."""

    def __init__(self, max_specs: int, max_bytes: int = MAX_CACHED_SPEC_BYTES) -> None:
        self._specs = SizedCache[Key, LoadedSpec](max_specs, max_bytes)
        self._older = SizedCache[str, LoadedSpec](_MAX_OLDER_SPECS, max_bytes)

    def get(self, key: Key) -> LoadedSpec | None:
        return self._specs.get(key)

    def put(self, key: Key, loaded: LoadedSpec) -> None:
        if loaded.keeps_braces:
            return  # new executions of the same document do not
        text = key[-1] if isinstance(key, tuple) else key
        self._specs.put(key, loaded, loaded.size + len(str(text)))

    def without_short_references(self, loaded: LoadedSpec) -> LoadedSpec:
        """The same document as a release reads it that does not know short references: its braces are text.
        Executions that such a release started go on with this spec."""
        older = self._older.get(loaded.workflow_id)
        if older is None:
            older = load_stored_spec(loaded.document, with_short_references=False)
            self._older.put(loaded.workflow_id, older, loaded.size)
        return older
