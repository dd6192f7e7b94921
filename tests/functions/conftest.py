from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from executor_modules import Modules
from functions.order_page import APP


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Modules:
    monkeypatch.chdir(tmp_path)
    return Modules(tmp_path, monkeypatch)


@pytest.fixture
def app(modules: Modules) -> ModuleType:
    """The application of the page, imported."""
    return importlib.import_module(modules.write("app", APP))
