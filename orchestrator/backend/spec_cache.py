"""SpecCache: checked specs by key, because checking a document costs more than anything else of a start."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

from orchestrator.application.spec.model import LoadedSpec

_Key = TypeVar("_Key", bound=Hashable)


class SpecCache(Generic[_Key]):
    """Holds at most `max_specs` specs and drops the least recently used one. Threads may share it."""

    def __init__(self, max_specs: int) -> None:
        self._max_specs = max_specs
        self._specs: OrderedDict[_Key, LoadedSpec] = OrderedDict()
        self._lock = Lock()

    def get(self, key: _Key) -> LoadedSpec | None:
        with self._lock:
            loaded = self._specs.get(key)
            if loaded is not None:
                self._specs.move_to_end(key)
            return loaded

    def put(self, key: _Key, loaded: LoadedSpec) -> None:
        with self._lock:
            self._specs[key] = loaded
            self._specs.move_to_end(key)
            if len(self._specs) > self._max_specs:
                self._specs.popitem(last=False)
