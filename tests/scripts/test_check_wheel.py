"""What scripts/check-wheel looks for: files in the wheel, and the first workflow of the README."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from scripts.compatibility.wheel import (
    ROOT,
    CheckFailed,
    check_wheel,
    missing_files,
    read_example,
    surplus_files,
)

PAGE = """
<!-- test: file add.yaml -->
```yaml
name: add
```

<!-- test: console -->
```console
$ orchestrator validate add.yaml
$ orchestrator run add.yaml 2>/dev/null
add ...: complete in ...
outcome: {"sum": 3}
$ orchestrator run other.yaml
outcome: {"sum": 4}
```
"""
WHEEL = ("orchestrator/__init__.py", "orchestrator/py.typed", "orchestrator/lua/commit.lua")
SOURCES = (*WHEEL, "executors/orchestrator_executors/file.py")


def make_sources(folder: Path) -> Path:
    for name in SOURCES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def make_wheel(folder: Path, *names: str) -> Path:
    wheel = folder / "made-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in (*names, "made-1.0.dist-info/METADATA"):
            archive.writestr(name, "")
    return wheel


def test_the_example_is_the_first_run_of_the_page_with_its_files_and_outcome() -> None:
    example = read_example(PAGE)

    assert example.files == {"add.yaml": "name: add\n"}
    assert example.command == "orchestrator run add.yaml 2>/dev/null"
    assert example.outcome == 'outcome: {"sum": 3}'


def test_the_readme_has_an_example() -> None:
    example = read_example((ROOT / "README.md").read_text(encoding="utf-8"))

    assert {word for word in example.command.split() if word.endswith(".yaml")} <= example.files.keys()


def test_a_page_without_an_example_is_an_error() -> None:
    with pytest.raises(CheckFailed, match="no `orchestrator run`"):
        read_example(PAGE.replace("outcome", "result"))


def test_a_wheel_with_all_files_is_as_it_should_be(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, *WHEEL, "orchestrator_executors/file.py")

    assert missing_files(wheel, make_sources(tmp_path)) == []
    assert surplus_files(wheel, make_sources(tmp_path)) == []


def test_files_that_are_missing_and_files_that_are_gone_are_found(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, *WHEEL[:2], "orchestrator_executors/gone.py", "executors/__init__.py")

    assert missing_files(wheel, make_sources(tmp_path)) == [
        *("orchestrator/lua/commit.lua", "orchestrator_executors/file.py")
    ]
    assert surplus_files(wheel, make_sources(tmp_path)) == [
        *("executors/__init__.py", "orchestrator_executors/gone.py")
    ]


def test_a_python_that_is_not_there_fails_the_check(tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match="Python /no/python was not found"):
        check_wheel(["/no/python"], None, read_example(PAGE), tmp_path)
