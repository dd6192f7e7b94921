"""Without the extra `convert`, only documents that need one of its libraries are rejected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli import main
from orchestrator.convert import MissingLibrary, convert

PLAIN = "flow: [{name: a, source: {type: x}, input: {text: hello}, output: [{name: all, type: raw}]}]"
TEMPLATE = "flow: [{name: a, source: {type: x}, input: {text: '{{ flows.b.c }}'}}]"
PATH = "flow: [{name: a, source: {type: x}, output: [{name: n, type: jmespath, value: a.b}]}]"
FLOW8 = '{"Flowlets": [{"Name": "a", "ModuleRef": "m", "InputMapping": {"x": "Dear {{ input.name }}"}}]}'


@pytest.fixture(autouse=True)
def _without_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("jinja_parser", "jmespath_parser"):
        monkeypatch.delitem(sys.modules, f"orchestrator.convert.{module}", raising=False)
    for library in ("jinja2", "jmespath", "jmespath.exceptions"):
        monkeypatch.setitem(sys.modules, library, None)


@pytest.mark.parametrize(("text", "library"), [(TEMPLATE, "jinja2"), (PATH, "jmespath")])
def test_a_document_that_needs_a_library_names_the_extra(text: str, library: str) -> None:
    with pytest.raises(MissingLibrary) as error:
        convert(text)

    assert f"needs {library}, which is not installed: pip install 'rq-orchestrator[convert]'" in str(
        error.value
    )
    assert error.value.library == library


@pytest.mark.parametrize("text", [PLAIN, FLOW8, "steps: [{op: a}]"])
def test_other_documents_are_converted(text: str) -> None:
    assert convert(text).document["steps"]


def test_the_command_prints_the_message_without_a_traceback(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(TEMPLATE)

    result = CliRunner().invoke(main, ["convert", str(file)])

    assert result.exit_code == 1
    assert "pip install 'rq-orchestrator[convert]'" in result.stderr


def test_the_libraries_are_imported_only_when_a_document_needs_them() -> None:
    code = f"""
import sys
from orchestrator.convert import convert
convert({PLAIN!r}); convert({FLOW8!r})
assert not {{"jinja2", "jmespath"}} & sys.modules.keys()
convert({TEMPLATE!r})
assert "jinja2" in sys.modules and "jmespath" not in sys.modules
"""

    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2], timeout=300)
