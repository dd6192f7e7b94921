"""docs/python.md is correct: its programs run in order, with the files of the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.pages import check_treatments, do_page
from orchestrator import client
from orchestrator.application import errors
from orchestrator.application.explain.run_status import make_run_status
from orchestrator.application.explain.status_view import QUEUED, StatusView
from orchestrator.application.records.status import StepStatus
from orchestrator.client import Client
from worlds.records import NOW_MS, record

PAGE = "docs/python.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")
FLOWTOY = {
    *(f"RunStatus.{name}" for name in ("run_id", "started_at", "ended_at", "steps")),
    *(f"StepStatus.{name}" for name in ("name", "state", "started_at", "ended_at", "error")),
    *("total_steps", "completed_steps", "running_steps", "running_count", "notes", "outputs"),
}
"""The attributes of flowtoy's RunStatus and StepStatus, and what else its `/status` replies."""


@pytest.mark.slow
def test_everything_on_the_page_about_python_works(tmp_path: Path) -> None:
    do_page(tmp_path, PAGE, has_files_of_readme=True)


def test_every_block_of_it_names_its_treatment() -> None:
    check_treatments(PAGE)


def test_it_names_the_public_methods_of_the_client() -> None:
    methods = {name for name, value in vars(Client).items() if callable(value) and name[0] != "_"}
    rare = {"payload", "send_start", "status", "wait_for_reply"}

    assert (
        methods - rare - set(re.findall(r"`(\w+)`", TEXT)) - set(re.findall(r"client\.(\w+)\(", TEXT))
        == set()
    )


def test_the_exceptions_that_it_names_exist() -> None:
    table = TEXT.partition("| method | raises |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([A-Z]\w+)`", table))

    assert named
    assert named - {*client.__all__, *vars(errors)} == set()


def rows(heading: str) -> list[list[str]]:
    """The cells of the rows of a table, by the first cell of its heading."""
    table = TEXT.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_table_of_the_status_has_every_field() -> None:
    status = make_run_status(StatusView(record()), NOW_MS)
    listed, steps = rows("field of `RunStatus`"), rows("field of a step")

    assert sorted(name for row in listed for name in names(row[0])) == sorted(status.as_dict())
    assert sorted(name for row in steps for name in names(row[0])) == sorted(status.steps["a"].as_dict())


def test_every_field_of_the_status_of_flowtoy_has_one_here() -> None:
    listed = [*rows("field of `RunStatus`"), *rows("field of a step")]

    named = [name for row in listed for name in names(row[2])]

    assert sorted(set(named) - {"/status"}) == sorted(FLOWTOY)
    assert all(names(row[0]) for row in listed)


def test_every_state_has_one_of_flowtoy() -> None:
    table = {names(row[0])[0]: names(row[1]) for row in rows("flowtoy")}

    assert list(table) == ["pending", "running", "succeeded", "failed", "skipped"]
    assert sorted(state for states in table.values() for state in states) == sorted([*StepStatus, QUEUED])
