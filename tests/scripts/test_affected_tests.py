"""scripts/affected-tests names every test file that a change can affect."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "affected-tests"

MODULES = {
    "orchestrator/__init__.py": "from orchestrator.local import run",
    "orchestrator/engine.py": "",
    "orchestrator/local.py": "import orchestrator.engine",
    "orchestrator/cli.py": "",
    "orchestrator/redis_rq/scripts.py": "",
    "tests/builders.py": "from orchestrator.engine import step",
    "tests/processes.py": "import sys\nCOMMAND = [sys.executable, '-m', 'orchestrator']",
    "tests/architecture/test_layers.py": "",
    "tests/test_engine.py": "from builders import step",
    "tests/test_local.py": "def test_it():\n    from orchestrator import run",
    "tests/test_cli.py": "from processes import COMMAND\nPAGE = 'docs/cli.md'",
    "tests/test_commit.py": "from orchestrator.redis_rq import scripts",
}


@pytest.fixture(scope="module")
def script() -> Any:
    loader = SourceFileLoader("affected_tests", str(SCRIPT))
    spec = spec_from_loader("affected_tests", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("orchestrator/engine.py", ["tests/test_cli.py", "tests/test_engine.py", "tests/test_local.py"]),
        ("orchestrator/cli.py", ["tests/test_cli.py"]),
        ("orchestrator/deleted.py", ["tests/test_cli.py"]),
        ("tests/builders.py", ["tests/test_engine.py"]),
        ("tests/processes.py", ["tests/test_cli.py"]),
        ("tests/test_engine.py", ["tests/test_engine.py"]),
        ("orchestrator/redis_rq/lua/commit.lua", ["tests/test_cli.py", "tests/test_commit.py"]),
        ("docs/cli.md", ["tests/test_cli.py"]),
        ("docs/other.md", []),
    ],
)
def test_what_imports_or_names_a_changed_file_is_affected(
    script: Any, changed: str, tests: list[str]
) -> None:
    assert script.affected([changed], MODULES) == ["tests/architecture", *tests]


@pytest.mark.parametrize("changed", ["pyproject.toml", "tests/conftest.py", "compose.yaml"])
def test_what_concerns_all_tests_affects_all_of_them(script: Any, changed: str) -> None:
    assert script.affected([changed, "docs/cli.md"], MODULES) == ["tests"]


def test_without_a_change_nothing_is_affected(script: Any) -> None:
    assert script.affected([], MODULES) == []
