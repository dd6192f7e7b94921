"""Executors that exist for one test: in modules of its own, and as if installed by packages."""

from __future__ import annotations

import sys
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest


class Modules:
    """Modules in a folder that can be imported from, as long as the test runs."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch
        monkeypatch.syspath_prepend(str(folder))

    def write(self, name: str, text: str) -> str:
        self._monkeypatch.setitem(sys.modules, name, ModuleType(name))  # so that it is forgotten at the end
        self._monkeypatch.delitem(sys.modules, name)
        (self._folder / f"{name}.py").write_text(text)
        return name


def install(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    """What is installed here aside, these entry points are."""
    monkeypatch.setattr(metadata, "entry_points", lambda group: [p for p in points if p.group == group])
