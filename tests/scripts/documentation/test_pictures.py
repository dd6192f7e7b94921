"""The pictures of the documentation are as the scripts draw them, and show what the code says."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import combinations

import pytest

from orchestrator.application.records.status import (
    STEP_TRANSITIONS,
    WORKFLOW_TRANSITIONS,
    StepStatus,
    WorkflowStatus,
)
from scripts.documentation.drawing import BOX_HEIGHT, BOX_WIDTH, Box
from scripts.documentation.pictures import (
    EXECUTION_ARROWS,
    EXECUTION_PLACES,
    PICTURES,
    STEP_ARROWS,
    STEP_PLACES,
)
from scripts.documentation.staging import DOCS


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_the_one_that_scripts_pictures_draws(name: str) -> None:
    assert (DOCS / "pictures" / name).read_text(encoding="utf-8") == PICTURES[name](), "run scripts/pictures"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_on_a_page_and_loads_nothing(name: str) -> None:
    text = PICTURES[name]()

    ElementTree.fromstring(text)
    assert "prefers-color-scheme: dark" in text
    assert text.count("http") == 1, "the namespace"
    assert any(f"(pictures/{name})" in page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))


def test_the_states_of_a_step_are_those_of_the_code_and_each_arrow_is_legal() -> None:
    assert set(STEP_PLACES) == {status.value for status in StepStatus}
    for arrow in STEP_ARROWS:
        assert StepStatus(arrow.end) in STEP_TRANSITIONS[StepStatus(arrow.start)], arrow
    assert {arrow.end for arrow in STEP_ARROWS} == set(STEP_PLACES)


def test_the_states_of_an_execution_are_those_of_the_code_and_each_arrow_is_legal() -> None:
    assert set(EXECUTION_PLACES) == {status.value for status in WorkflowStatus}
    for arrow in EXECUTION_ARROWS:
        assert WorkflowStatus(arrow.end) in WORKFLOW_TRANSITIONS[WorkflowStatus(arrow.start)], arrow
    assert {arrow.end for arrow in EXECUTION_ARROWS} == set(EXECUTION_PLACES) - {"pending"}


@pytest.mark.parametrize("places", [STEP_PLACES, EXECUTION_PLACES], ids=["step", "execution"])
def test_no_two_boxes_overlap(places: dict[str, tuple[float, float]]) -> None:
    boxes = [Box(name, *place) for name, place in places.items()]

    for one, other in combinations(boxes, 2):
        assert abs(one.x - other.x) > BOX_WIDTH or abs(one.y - other.y) > BOX_HEIGHT, (one, other)
