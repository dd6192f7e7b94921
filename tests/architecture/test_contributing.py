"""CONTRIBUTING.md and its siblings: every path, test, command, option and name in them exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.cli import main

ROOT = Path(__file__).parents[2]
ARCHITECTURE = ROOT / "docs" / "architecture.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = [ARCHITECTURE, CONTRIBUTING, ROOT / "SECURITY.md", ROOT / ".github" / "pull_request_template.md"]
FILES = [*PAGES, *sorted((ROOT / ".github").rglob("*.yml")), ROOT / ".pre-commit-config.yaml"]

FOLDERS = "orchestrator|executors|tests|scripts|docs|.github|.ci"
PATH = re.compile(
    rf"(?<![\w/.:-])(?:\./)?((?:{FOLDERS.replace('.', chr(92) + '.')})/[\w./-]*\w|[A-Z]{{4,}}\.md)"
)
TEST = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
PLACEHOLDER = "NAME"


def by_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def paths_in(text: str) -> set[str]:
    """Every path of the repository that a text names from its root."""
    return set(PATH.findall(text))


def is_there(path: str) -> bool:
    """Whether a path exists; of one with a placeholder, its folder."""
    found = ROOT / path
    return found.parent.is_dir() if PLACEHOLDER in found.name else found.exists()


# ---- names


@pytest.mark.parametrize("path", FILES, ids=by_name)
def test_every_path_that_a_file_names_exists(path: Path) -> None:
    assert [one for one in sorted(paths_in(text_of(path))) if not is_there(one)] == []


def test_a_path_that_does_not_exist_is_found() -> None:
    text = "`scripts/tset`, ./docs/index.md (orchestrator/cli/commands/NAME.py) SECURITI.md x/docs/y"
    text += " tests/nowhere/NAME.py"

    found = paths_in(text)

    assert found == {
        "scripts/tset",
        "docs/index.md",
        "orchestrator/cli/commands/NAME.py",
        "tests/nowhere/NAME.py",
        "SECURITI.md",
    }
    assert {one for one in found if not is_there(one)} == {
        "scripts/tset",
        "tests/nowhere/NAME.py",
        "SECURITI.md",
    }


def test_the_pages_name_enough_paths_to_be_worth_the_search() -> None:
    assert len(paths_in(text_of(CONTRIBUTING))) > 60
    assert len(LINK.findall(text_of(ARCHITECTURE))) > 80


@pytest.mark.parametrize("path", PAGES, ids=by_name)
def test_every_link_of_a_page_leads_to_a_file_of_the_repository(path: Path) -> None:
    links = [target.partition("#")[0] for _, target in LINK.findall(text_of(path))]

    assert [one for one in links if not (path.parent / one).exists()] == []


@pytest.mark.parametrize(
    "named", sorted({"::".join(one) for page in PAGES for one in TEST.findall(text_of(page))})
)
def test_every_test_that_a_page_names_is_one(named: str) -> None:
    file, _, name = named.partition("::")

    assert name in {
        one.name for one in ast.parse(text_of(ROOT / file)).body if isinstance(one, ast.FunctionDef)
    }


@pytest.mark.parametrize("path", FILES, ids=by_name)
def test_every_command_of_the_command_line_that_a_file_names_exists(path: Path) -> None:
    named = {
        words.split()[1] for words in CODE.findall(text_of(path)) if re.match(r"orchestrator [a-z]", words)
    }

    assert named <= set(main.commands)


@pytest.mark.parametrize("path", FILES, ids=by_name)
def test_every_option_of_a_script_that_a_file_names_is_in_the_script(path: Path) -> None:
    called = re.findall(r"(?:\./)?(scripts/[\w-]+)((?: +[^\s`|;&]+)*)", text_of(path))
    named = {(script, option) for script, words in called for option in re.findall(r"--[\w-]+", words)}

    missing = {one for one in named if one[1] not in "".join(map(text_of, sources_of(one[0])))}

    assert missing == set()


def sources_of(script: str) -> Iterator[Path]:
    """A script, and the package in scripts/ that it imports."""
    yield ROOT / script
    for package in re.findall(r"from scripts\.(\w+)", text_of(ROOT / script)):
        yield from (ROOT / "scripts" / package).glob("*.py")


@pytest.mark.parametrize("path", [CONTRIBUTING, ROOT / "SECURITY.md"], ids=by_name)
def test_a_page_without_a_test_of_its_code_has_no_code(path: Path) -> None:
    assert "```" not in text_of(path)


# ---- recipes


def rows() -> Iterator[tuple[str, str]]:
    """The file and the reason of each row of the recipes."""
    recipes = text_of(CONTRIBUTING).partition("\n## Recipes\n")[2].partition("\n## ")[0]
    for line in recipes.splitlines():
        if found := re.match(r"\| `([^`]+)` \| (.*?) \| .*\|$", line):
            yield found[1], found[2]


def test_every_recipe_has_a_table() -> None:
    recipes = text_of(CONTRIBUTING).partition("\n## Recipes\n")[2].partition("\n## ")[0]

    assert recipes.count("\n### ") == recipes.count("| file | why | asked for |") == 8
    assert len(list(rows())) == len(re.findall(r"^\| `", recipes, re.M))


@pytest.mark.parametrize(("file", "why"), list(rows()))
def test_what_a_recipe_names_is_in_its_file(file: str, why: str) -> None:
    """A name such as `BUILT_IN` is in the file of its row, or in one of the files of its folder."""
    path = ROOT / file
    names = [name for name in CODE.findall(why) if re.fullmatch(r"\w+", name) and name != "orchestrator"]
    sources = [] if PLACEHOLDER in file else [path] if path.is_file() else path.rglob("*.py")
    text = "".join(map(text_of, sources))

    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []
