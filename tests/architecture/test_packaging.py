"""What is shipped, and what must never be in it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from effort import sample

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "orchestrator", ROOT / "executors" / "orchestrator_executors")

# Each module is imported as the first of ours, so that an import cycle shows; libraries stay loaded.
IMPORT_EACH = """
import importlib, sys
for name in sys.argv[1:]:
    for loaded in list(sys.modules):
        if loaded.split(".")[0] in {"orchestrator", "orchestrator_executors"}:
            del sys.modules[loaded]
    try:
        importlib.import_module(name)
    except BaseException as error:
        raise SystemExit(f"{name}: {error!r}")
"""

PREPARE_METADATA = "from setuptools import build_meta; build_meta.prepare_metadata_for_build_wheel('.')"

# Spelled in pieces, so that this file passes its own test.
FORBIDDEN = {
    "a path of somebody's machine": re.compile(r"(?<![\w.*)}>~-])/(?:wor" + r"k|roo" + r"t|hom" + r"e)/"),
    "a package registry": re.compile(r"pypi\." + r"org|python" + r"hosted", re.IGNORECASE),
    "a tool that wrote it": re.compile(
        r"\b(?:anthro" + r"pic|cl" + r"aude|open" + r"ai|chat" + r"gpt|copi" + r"lot)\b", re.IGNORECASE
    ),
}


def tracked_files() -> list[Path]:
    """What git knows; where there is no git, every file outside the folders of tools."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
        )
        names = listed.stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if _is_source(path)]
    return sorted(path for name in names if name and (path := ROOT / name).is_file())


def text_of(path: Path) -> str:
    """The text of a file; nothing when it is not text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_file_that_is_read_beside_the_modules_is_package_data(pyproject: dict[str, Any]) -> None:
    patterns = pyproject["tool"]["setuptools"]["package-data"]["*"]
    needed = [path for package in PACKAGES for path in package.rglob("*") if _is_data(path)]

    assert {path.parent.name for path in needed if path.name == "py.typed"} == {
        package.name for package in PACKAGES
    }
    assert {path.suffix for path in needed} >= {".css", ".html", ".js", ".lua", ".svg"}
    assert not [path for path in needed if not any(fnmatch(_in_package(path), one) for one in patterns)]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_with_modules_is_a_package(package: Path) -> None:
    folders = {path.parent for path in package.rglob("*.py")}

    assert not [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()]


def test_the_version_is_written_once(tmp_path: Path) -> None:
    shutil.copytree(PACKAGES[0], tmp_path / "orchestrator", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(PACKAGES[1], tmp_path / "executors" / PACKAGES[1].name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    front = tmp_path / "orchestrator" / "__init__.py"
    text, found = re.subn(r'^(__version__ = )"[^"]+"', r'\1"98.7.6"', front.read_text(), flags=re.MULTILINE)
    front.write_text(text)

    built = subprocess.run(
        [sys.executable, "-c", PREPARE_METADATA], cwd=tmp_path, capture_output=True, text=True
    )
    imported = subprocess.run(
        [sys.executable, "-c", "import orchestrator; print(orchestrator.__version__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert found == 1
    assert built.returncode == 0, built.stderr
    [metadata] = tmp_path.glob("*.dist-info/METADATA")
    assert "\nVersion: 98.7.6\n" in metadata.read_text()
    assert imported.stdout == "98.7.6\n", imported.stderr


def test_rq_is_pinned_to_its_major_version(pyproject: dict[str, Any]) -> None:
    (rq,) = [text for text in pyproject["project"]["dependencies"] if re.match(r"rq\b", text)]

    assert re.fullmatch(r"rq>=2\.\d+,<3", rq)


def test_every_module_can_be_imported_first_and_without_a_warning() -> None:
    names = [
        ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
        for package in PACKAGES
        for path in sorted(package.rglob("*.py"))
        if path.name != "__main__.py"
    ]

    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_EACH, *sample(names, 25)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in tracked_files()
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if FORBIDDEN[what].search(line)
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("a path of somebody's machine", "see /wor" + "k/notes.md"),
        ("a path of somebody's machine", '"/hom' + 'e/me/x"'),
        ("a package registry", "https://pypi." + "org/project/rq"),
        ("a tool that wrote it", "by Cl" + "aude"),
    ],
)
def test_the_search_for_forbidden_words_finds(what: str, text: str) -> None:
    assert FORBIDDEN[what].search(text)


def test_a_relative_path_is_not_taken_for_a_path_of_a_machine() -> None:
    assert not FORBIDDEN["a path of somebody's machine"].search("layers/wor" + "k/x, $HOME/roo" + "t/x")


def test_text_files_end_with_one_newline() -> None:
    texts = {path: text_of(path) for path in tracked_files()}

    wrong = [
        str(path.relative_to(ROOT))
        for path, text in texts.items()
        if text and (not text.endswith("\n") or text.endswith("\n\n"))
    ]

    assert not wrong


def _is_data(path: Path) -> bool:
    return path.suffix in {".css", ".html", ".js", ".lua", ".svg"} or path.name == "py.typed"


def _in_package(path: Path) -> str:
    """The path of a file below the package that it belongs to, as the patterns of package data have it."""
    package = next(folder for folder in path.parents if (folder / "__init__.py").exists())
    return path.relative_to(package).as_posix()


def _is_source(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    tools = {
        ".git",
        ".venv",
        ".hypothesis",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        "__pycache__",
        "build",
    }
    return path.is_file() and not any(part in tools or part.endswith(".egg-info") for part in parts)
