"""The README is correct: every code block in it is executed, and it stays short."""

from __future__ import annotations

import re
import tomllib

import pytest

from e2e.pages import README, ROOT, Block, Reader, Shell, blocks, end_service, fits, prose, sentences

WORKFLOW_ID = "c867fd57c0ab4ff337daa30424682099"
MAX_WORDS = 1_200
MAX_WORDS_PER_SENTENCE = 25
MAX_LONG_SENTENCES = 3
MAX_TABLE_ROWS = 6


@pytest.mark.slow
def test_everything_in_the_readme_works(reader: Reader) -> None:
    for block in blocks():
        reader.do(block)

    _, worker, _ = reader.services
    assert [service.poll() for service in reader.services] == [None, None, None], "a service has ended"
    end_service(worker)
    shell = Shell(reader.folder, reader.environment)
    assert shell.run("""orchestrator start greeting --inputs '{"name": "Ada"}' --execution-id stock""") == [
        "stock"
    ]
    reader.expect(
        shell,
        Block("the stock worker alone", "", "", 0),
        f"redis-cli HGET 'orchestrator:workflow:{WORKFLOW_ID}#stock' status",
        ["complete"],
    )
    shell.close()


def test_every_block_says_how_it_is_tested() -> None:
    found = blocks()

    assert len(found) == README.count("\n```") / 2
    assert not [f"README.md:{block.line}" for block in found if not block.treatment]


def test_the_first_workflow_is_short() -> None:
    (first,) = [block for block in blocks() if block.treatment == "file greeting.yaml"]

    assert len(first.text.splitlines()) <= 15


def test_the_first_block_is_the_two_commands() -> None:
    commands = [line.split("#")[0].strip() for line in blocks()[0].text.splitlines()]

    assert commands == ["./scripts/quickstart", "./scripts/test"]


def test_the_readme_is_short_and_its_sentences_are_too() -> None:
    long = [one for one in sentences(README) if len(one.split()) > MAX_WORDS_PER_SENTENCE]

    assert len(prose(README).split()) <= MAX_WORDS
    assert len(long) <= MAX_LONG_SENTENCES, "\n".join(long)


def test_no_table_of_the_readme_is_long() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", prose(README), re.M)

    assert not [table for table in tables if table.count("\n") - 2 > MAX_TABLE_ROWS]


def test_the_readme_names_the_package_and_extras_that_pip_installs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = re.findall(r"pip install '\.\[(\w+)\]'", README)

    assert f"`{project['name']}`" in README
    assert extras == ["embedded"]
    assert set(extras) <= set(project["optional-dependencies"])


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("One. Two? See\n[three four](five.md).", ["One.", "Two?", "See three four."]),
        ("- one\n- two\n  and three\n\nFour: `a.b`.", ["- one", "- two and three", "Four: `a.b`."]),
        ("# Title\n\n<!-- test: console -->\n```sh\nnothing. here\n```\nText", ["# Title", "Text"]),
        ("| one. two | three |\n|---|---|", ["one.", "two", "three", "---", "---"]),
    ],
)
def test_sentences_are_separated(page: str, expected: list[str]) -> None:
    assert sentences(page) == expected


@pytest.mark.parametrize(
    ("expected", "printed", "is_so"),
    [
        (["status: ..."], ["status: complete"], True),
        (["status: ..."], ["status:"], False),
        (["a", "...", "z"], ["a", "b", "c", "z"], True),
        (["a", "...", "z"], ["a", "z"], True),
        (["a", "...", "z"], ["a", "b"], False),
        (["..."], ["anything"], True),
        ([], [], True),
        ([], ["something"], False),
    ],
)
def test_dots_stand_for_anything(expected: list[str], printed: list[str], is_so: bool) -> None:
    assert fits(expected, printed) is is_so
