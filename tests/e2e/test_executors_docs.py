"""The page about executors does what it says: every block of it is written, run or compared.

Besides the treatments of the README it has two of its own:

    <!-- test: part of FILE -->   stands in that file of the example package
    <!-- test: install -->        the example package is installed from here on
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from e2e.pages import Block, Reader, blocks, reading
from installation import EXAMPLE, install
from orchestrator.invocation.parameters import OFFERED_PARAMETERS, build_context
from orchestrator.worker.executors.spec_check import CODES

PAGE = "docs/executors.md"
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
def test_everything_on_the_page_about_executors_works(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        for block in blocks(TEXT):
            if block.treatment == "install":
                install_as_told(block, reader)
            elif block.treatment.startswith("part of "):
                name = block.treatment.removeprefix("part of ")
                assert block.text in (EXAMPLE / name).read_text(encoding="utf-8"), f"{PAGE}:{block.line}"
            else:
                reader.do(block)


def install_as_told(block: Block, reader: Reader) -> None:
    assert block.text == f"pip install {EXAMPLE.relative_to(ROOT)}\n"
    site = install(EXAMPLE, reader.folder)
    reader.environment["PYTHONPATH"] += f"{os.pathsep}{site}"


def test_every_block_of_it_is_marked_with_its_test() -> None:
    found = blocks(TEXT)

    assert len(found) == TEXT.count("\n```") / 2
    assert not [f"{PAGE}:{block.line}" for block in found if not block.treatment]


def test_it_names_every_parameter_that_an_executor_may_request() -> None:
    context = build_context(
        "w#e", "s", run_id=0, attempt=1, round=0, iteration=None, idempotency_key="k", deadline=None
    )

    assert [word for word in (*OFFERED_PARAMETERS, *context, *CODES) if f"`{word}`" not in TEXT] == []


def test_every_link_of_it_works() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        name, _, anchor = target.partition("#")
        path = ROOT / "docs" / name if name else ROOT / PAGE
        assert path.exists(), target
        titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M) if anchor else []
        anchors = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in titles}
        assert not anchor or anchor in anchors, target
